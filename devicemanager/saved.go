package devicemanager

import (
	"time"

	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/pod"
)

// bucket is where the state file keeps allocations, by their id.
const bucket = "devices"

// Saved is an allocation as the state file keeps it. It holds the secret as it is: it is not to be shown.
type Saved struct {
	ID        string    `json:"id"`
	Socket    uint32    `json:"socket"`
	Devices   []string  `json:"devices,omitempty"`
	Directory string    `json:"directory"`
	Created   time.Time `json:"created"`
	Secret    string    `json:"secret"`
	Pod       pod.ID    `json:"pod,omitzero"`
	Container string    `json:"container,omitempty"`
	UID       int       `json:"uid"`
	GID       int       `json:"gid"`
	Granted   bool      `json:"granted,omitempty"`

	Attachment pod.Key   `json:"attachment,omitzero"`
	Netns      pod.Netns `json:"netns,omitzero"`

	Heir string `json:"heir,omitempty"`
}

// String hides the secret from whoever prints all of it.
func (s Saved) String() string { return "allocation " + s.ID }

// GoString hides it too.
func (s Saved) GoString() string { return s.String() }

func (a *allocation) saved() Saved {
	return Saved{
		ID: a.ID, Socket: a.Socket, Devices: a.Devices, Directory: a.Directory, Created: a.Created,
		Secret: string(a.Secret), Pod: a.Pod, Container: a.Container,
		UID: a.UID, GID: a.GID, Granted: a.Granted, Attachment: a.Attachment, Netns: a.Netns, Heir: a.heir,
	}
}

func (s Saved) allocation() *allocation {
	return &allocation{heir: s.Heir, Allocation: pod.Allocation{
		ID: s.ID, Socket: s.Socket, Devices: s.Devices, Directory: s.Directory, Created: s.Created,
		Secret: secret.Text(s.Secret), Pod: s.Pod, Container: s.Container,
		UID: s.UID, GID: s.GID, Granted: s.Granted, Attachment: s.Attachment, Netns: s.Netns,
	}}
}
