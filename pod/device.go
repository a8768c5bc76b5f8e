package pod

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weftnet/weft/internal/secret"
)

// Resource is what a pod counts in its limits: one for each memif.
const Resource = AnnotationPrefix + "memif"

// UnknownGroup is the group of a container whose processes run with one that nobody told.
const UnknownGroup = -1

// Allocation is what kubelet was given for one container: a directory with a socket of the dataplane and its secret. It
// outlives sandboxes: kubelet allocates once in a pod's life.
type Allocation struct {
	ID        string    // 20 letters and digits; the directory's name
	Socket    uint32    // number of its socket in the dataplane
	Devices   []string  // ids, sorted
	Directory string    // on the node, absolute
	Created   time.Time // by Allocate

	Secret secret.Text

	// Pod and Container are who has it, as far as is known: kubelet does not say it to Allocate.
	Pod       ID
	Container string

	// Attachment and Netns are the ADD's that was last granted it.
	Attachment Key
	Netns      Netns

	// UID and GID own the directory and what is in it once a pod of an ADD has it; with UnknownGroup everybody whose
	// container sees the directory may use it.
	UID, GID int
	Granted  bool
}

// SocketPath is the path of the allocation's socket on the node.
func (a *Allocation) SocketPath() string { return a.Directory + "/memif.sock" }

// Grant is what a container of a pod has, as kubelet says: its allocation, and the group that its processes run with.
type Grant struct {
	Container  string
	GID        int // of fsGroup or runAsGroup, or UnknownGroup
	Allocation Allocation
}

// AllocateDevice asks for an allocation, for some container of some pod.
type AllocateDevice struct {
	Devices []string // ids that kubelet chose

	// Allocation is made by the handler.
	Allocation *Allocation
}

// String names the event as logs and records show it.
func (e *AllocateDevice) String() string { return "allocate " + strings.Join(e.Devices, ", ") }

// Validate refuses an event that no handler could make sense of.
func (e *AllocateDevice) Validate() error {
	if len(e.Devices) == 0 || slices.Contains(e.Devices, "") {
		return errors.New("allocate: kubelet names no device")
	}
	return nil
}

// ReleaseDevice takes an allocation away: kubelet no longer knows of it.
type ReleaseDevice struct {
	Allocation string // its ID
	Reason     string
}

// String names the event as logs and records show it.
func (e *ReleaseDevice) String() string {
	return fmt.Sprintf("release allocation %s (%s)", e.Allocation, e.Reason)
}

// Subject is the allocation.
func (e *ReleaseDevice) Subject() string { return "allocation/" + e.Allocation }

// Removal makes handlers run in reverse order and go on past errors.
func (e *ReleaseDevice) Removal() {}
