package devicemanager

import (
	"time"

	"github.com/weftnet/weft/pod"
)

// account is what is kept of an allocation wherever it is kept. It holds no secret.
type account struct {
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

func accountOf(a *allocation) account {
	return account{
		Socket: a.Socket, Devices: a.Devices, Created: a.Created,
		Pod: a.Pod, Container: a.Container, UID: a.UID, GID: a.GID, Granted: a.Granted,
		Attachment: a.Attachment, Netns: a.Netns, Heir: a.heir,
	}
}

// allocation is the inverse of accountOf: the allocation of that id, which stands in that directory.
func (c account) allocation(id, directory string) *allocation {
	return &allocation{heir: c.Heir, Allocation: pod.Allocation{
		ID: id, Socket: c.Socket, Devices: c.Devices, Directory: directory, Created: c.Created,
		Pod: c.Pod, Container: c.Container, UID: c.UID, GID: c.GID, Granted: c.Granted,
		Attachment: c.Attachment, Netns: c.Netns,
	}}
}

// record is the owner record beside an allocation's directory: the account that outlives a lost state file.
type record struct {
	Allocation string `json:"allocation"`
	account
}

func recordOf(a *allocation) record { return record{a.ID, accountOf(a)} }
