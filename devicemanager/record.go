package devicemanager

import (
	"time"

	"github.com/weftnet/weft/pod"
)

// record is the owner record beside an allocation's directory: the account that outlives a lost state file. It holds no
// secret.
type record struct {
	Allocation string    `json:"allocation"`
	Socket     uint32    `json:"socket"`
	Devices    []string  `json:"devices,omitempty"`
	Created    time.Time `json:"created"`
	Pod        pod.ID    `json:"pod,omitzero"`
	Container  string    `json:"container,omitempty"`
	UID        int       `json:"uid"`
	GID        int       `json:"gid"`
	Granted    bool      `json:"granted,omitempty"`
	Attachment pod.Key   `json:"attachment,omitzero"`
	Netns      pod.Netns `json:"netns,omitzero"`
	Heir       string    `json:"heir,omitempty"`
}

func recordOf(a *allocation) record {
	return record{
		Allocation: a.ID, Socket: a.Socket, Devices: a.Devices, Created: a.Created,
		Pod: a.Pod, Container: a.Container, UID: a.UID, GID: a.GID, Granted: a.Granted,
		Attachment: a.Attachment, Netns: a.Netns, Heir: a.heir,
	}
}

func (r record) allocation(directory string) *allocation {
	return &allocation{heir: r.Heir, Allocation: pod.Allocation{
		ID: r.Allocation, Socket: r.Socket, Devices: r.Devices, Directory: directory, Created: r.Created,
		Pod: r.Pod, Container: r.Container, UID: r.UID, GID: r.GID, Granted: r.Granted,
		Attachment: r.Attachment, Netns: r.Netns,
	}}
}
