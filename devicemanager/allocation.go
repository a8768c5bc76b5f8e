package devicemanager

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/pod"
)

// allocation is a set of devices that kubelet requested for one container, or one device of a claim, with its directory, socket and
// secret.
//
//	           AllocateDevice                 AddPod
//	not there ----------------> allocated -------------> granted to a container (again for each sandbox of its pod)
//	    ^                           |                        |
//	    +------ ReleaseDevice ------+------------------------+
//	       kubelet no longer lists its devices, and no attachment uses it
//
// An allocation loses a device when kubelet gives that device to another container. An allocation of a claim has the same states between
// PrepareClaim and ReleaseClaim, and never loses its device.
type allocation struct {
	pod.Allocation

	// successor is the id of the allocation that took over the devices during the admission of the same pod: kubelet
	// reuses the devices of an init container. The mount of the init container must exist as long as the pod does.
	successor string

	// direct means that a memif of the container is on a direct network: its socket is another one than the dataplane's.
	direct bool
}

// clone returns a deep copy of the public part.
func (a *allocation) clone() pod.Allocation {
	c := a.Allocation
	c.Devices = slices.Clone(c.Devices)
	return c
}

// validate rejects an allocation that Allocate cannot have made. Its names become file names, so each one is checked.
func (a *allocation) validate() error {
	switch {
	case !isRandomText(a.ID, idLength):
		return errors.New("its id is invalid")
	case !isRandomText(string(a.Secret), secretLength):
		return errors.New("its secret is invalid")
	case !filepath.IsAbs(a.Directory) || filepath.Clean(a.Directory) != a.Directory || filepath.Base(a.Directory) != a.ID:
		return fmt.Errorf("its directory %q is invalid", a.Directory)
	case a.UID < 0 || a.UID >= math.MaxUint32 || a.GID < pod.UnknownGroup || a.GID >= math.MaxUint32:
		return fmt.Errorf("user %d or group %d is invalid", a.UID, a.GID)
	}
	for _, device := range a.Devices {
		if n, ok := deviceNumber(device); !ok || n >= MostDevices {
			return fmt.Errorf("device %q is invalid", device)
		}
	}
	return a.validateClaim()
}

// metadata is the part of an allocation that the state file and the owner record share. It holds no secret.
type metadata struct {
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
	Successor  string    `json:"heir,omitempty"`
	Direct     bool      `json:"direct,omitempty"`

	Claim *pod.ClaimedDevice `json:"claim,omitempty"`
}

func metadataOf(a *allocation) metadata {
	return metadata{
		Socket: a.Socket, Devices: a.Devices, Created: a.Created,
		Pod: a.Pod, Container: a.Container, UID: a.UID, GID: a.GID, Granted: a.Granted,
		Attachment: a.Attachment, Netns: a.Netns, Successor: a.successor, Direct: a.direct, Claim: a.Claim,
	}
}

// allocation is the inverse of metadataOf.
func (c metadata) allocation(id, directory string) *allocation {
	return &allocation{successor: c.Successor, direct: c.Direct, Allocation: pod.Allocation{
		ID: id, Socket: c.Socket, Devices: c.Devices, Directory: directory, Created: c.Created,
		Pod: c.Pod, Container: c.Container, UID: c.UID, GID: c.GID, Granted: c.Granted,
		Attachment: c.Attachment, Netns: c.Netns, Claim: c.Claim,
	}}
}

// record is the owner record next to an allocation's directory. It survives the loss of the state file.
type record struct {
	Allocation string `json:"allocation"`
	metadata
}

func recordOf(a *allocation) record { return record{a.ID, metadataOf(a)} }

// bucket is the state file's bucket of allocations, by id.
const bucket = "devices"

// Saved is an allocation in the state file. It holds the secret in clear text: do not log it.
type Saved struct {
	ID        string `json:"id"`
	Directory string `json:"directory"`
	Secret    string `json:"secret"`
	metadata
}

// String hides the secret from code that prints the whole value.
func (s Saved) String() string { return "allocation " + s.ID }

// GoString hides it too.
func (s Saved) GoString() string { return s.String() }

func (a *allocation) saved() Saved { return Saved{a.ID, a.Directory, string(a.Secret), metadataOf(a)} }

func (s Saved) allocation() *allocation {
	a := s.metadata.allocation(s.ID, s.Directory)
	a.Secret = secret.Text(s.Secret)
	return a
}
