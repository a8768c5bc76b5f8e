package pod

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/weftnet/weft/internal/secret"
)

// Modes of a memif: what its packets begin with.
const (
	MemifEthernet = "ethernet"
	MemifIP       = "ip"
)

// MemifOptions are what a pod may choose about a memif, as its own program sees it. Zero values leave it to Weft; the
// node's caps apply.
type MemifOptions struct {
	Container  string // that gets it
	RingSize   int    // slots, a power of two
	BufferSize int    // bytes of a slot
	Mode       string // MemifEthernet or MemifIP
	UID, GID   *ID32  // who may connect
}

// ID32 is the number of a user or a group.
type ID32 uint32

// Bounds of what the protocol can do.
const (
	MostRingSize   = 1 << 14
	MostBufferSize = 1 << 16
	MostQueues     = 255
)

// memifOptions are the keys of a memif's options, and how each is read.
var memifOptions = map[string]func(*MemifOptions, json.RawMessage) error{
	"container": func(o *MemifOptions, raw json.RawMessage) error {
		if json.Unmarshal(raw, &o.Container) != nil || !IsLabel(o.Container) {
			return fmt.Errorf("expected the name of a container of the pod, not %.300q", raw)
		}
		return nil
	},
	"ringSize": func(o *MemifOptions, raw json.RawMessage) error {
		if err := (span{2, MostRingSize, "slots"}).read(&o.RingSize, raw); err != nil {
			return err
		}
		if bits.OnesCount(uint(o.RingSize)) != 1 {
			return fmt.Errorf("expected a power of two, not %d", o.RingSize)
		}
		return nil
	},
	"bufferSize": func(o *MemifOptions, raw json.RawMessage) error {
		return span{64, MostBufferSize, "bytes"}.read(&o.BufferSize, raw)
	},
	"mode": func(o *MemifOptions, raw json.RawMessage) error {
		if json.Unmarshal(raw, &o.Mode) != nil || o.Mode != MemifEthernet && o.Mode != MemifIP {
			return fmt.Errorf("expected %q or %q, not %.300q", MemifEthernet, MemifIP, raw)
		}
		return nil
	},
	"uid": func(o *MemifOptions, raw json.RawMessage) error { return readID(&o.UID, raw) },
	"gid": func(o *MemifOptions, raw json.RawMessage) error { return readID(&o.GID, raw) },
}

// span is what a number can be.
type span struct {
	least, most int
	unit        string
}

func (s span) read(n *int, raw json.RawMessage) error {
	if err := json.Unmarshal(raw, n); err != nil || *n < s.least || *n > s.most {
		return fmt.Errorf("expected %d to %d %s, not %.300q", s.least, s.most, s.unit, raw)
	}
	return nil
}

// readID reads a number that the kernel takes for an owner: the highest one means none.
func readID(id **ID32, raw json.RawMessage) error {
	var n ID32
	if err := json.Unmarshal(raw, &n); err != nil || n == ^ID32(0) {
		return fmt.Errorf("expected a number from 0 to 4294967294, not %.300q", raw)
	}
	*id = &n
	return nil
}

// first names one of the options that are set.
func (o MemifOptions) first() string {
	for _, option := range []struct {
		name string
		set  bool
	}{
		{"container", o.Container != ""}, {"ringSize", o.RingSize != 0}, {"bufferSize", o.BufferSize != 0},
		{"mode", o.Mode != ""}, {"uid", o.UID != nil},
	} {
		if option.set {
			return option.name
		}
	}
	return "gid"
}

// Resource is what a pod counts in its limits: one for each memif.
const Resource = AnnotationPrefix + "memif"

// UnknownGroup is the group of a container if it is not known.
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
