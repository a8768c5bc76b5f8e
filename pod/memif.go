package pod

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/weftnet/weft/internal/secret"
)

// Modes of a memif: the first header of its packets.
const (
	MemifEthernet = "ethernet"
	MemifIP       = "ip"
)

// MemifOptions are the options of a memif from the pod's point of view. Weft chooses the value of each zero field. The
// node has upper limits.
type MemifOptions struct {
	Container  string // that gets the memif
	RingSize   int    // slots, a power of two
	BufferSize int    // bytes of a slot
	Mode       string // MemifEthernet or MemifIP
	Role       string // RoleClient or RoleServer, on a direct network
	UID, GID   *ID32  // may connect
}

// Roles of a pod's program on a direct network: the server listens. On other networks the dataplane is the server.
const (
	RoleClient = "client"
	RoleServer = "server"
)

// DirectMembers are the memifs of one pod on direct networks: the interface of each role and network.
type DirectMembers map[string]string

// Add rejects a memif if the network has one with its role, "" means client.
func (d DirectMembers) Add(name, network, role string) error {
	role = cmp.Or(role, RoleClient)
	member := role + " " + network
	if other, is := d[member]; is {
		return Errorf(CodeInvalidAnnotation,
			"interfaces %s and %s are both the %s of direct network %s; it connects one server (option role) and one client",
			other, name, role, network)
	}
	d[member] = name
	return nil
}

// ID32 is the number of a user or group.
type ID32 uint32

// Limits of the protocol.
const (
	MaxRingSize   = 1 << 14
	MaxBufferSize = 1 << 16
	MaxQueues     = 255
)

// Values of MemifOptions that are zero.
const (
	DefaultRingSize   = 1024
	DefaultBufferSize = 2048
)

// ethernetHeader is the size of what precedes a packet of the MTU on a memif of mode MemifEthernet.
const ethernetHeader = 14

// Holds rejects a ring whose buffers together are too small for one packet of the MTU: such packets would be lost, and
// no others.
func (o MemifOptions) Holds(mtu int) error {
	slots := cmp.Or(o.RingSize, DefaultRingSize)
	bytes := cmp.Or(o.BufferSize, DefaultBufferSize)
	packet := mtu
	if o.Mode != MemifIP {
		packet += ethernetHeader
	}
	if slots*bytes >= packet {
		return nil
	}
	return fmt.Errorf(
		"ringSize %d x bufferSize %d: the ring holds %d bytes, and a packet of MTU %d has %d; set a larger ringSize or bufferSize, or a smaller mtu",
		slots, bytes, slots*bytes, mtu, packet)
}

// memifOptions are the parsers of the keys of a memif's options.
var memifOptions = map[string]func(*MemifOptions, json.RawMessage) error{
	"container": func(o *MemifOptions, raw json.RawMessage) error {
		if json.Unmarshal(raw, &o.Container) != nil || !IsLabel(o.Container) {
			return fmt.Errorf("expected the name of a container of the pod, not %.300q", raw)
		}
		return nil
	},
	"ringSize": func(o *MemifOptions, raw json.RawMessage) error {
		if err := (interval{2, MaxRingSize, "slots"}).parse(&o.RingSize, raw); err != nil {
			return err
		}
		if bits.OnesCount(uint(o.RingSize)) != 1 {
			return fmt.Errorf("expected a power of two, not %d", o.RingSize)
		}
		return nil
	},
	"bufferSize": func(o *MemifOptions, raw json.RawMessage) error {
		return interval{64, MaxBufferSize, "bytes"}.parse(&o.BufferSize, raw)
	},
	"mode": func(o *MemifOptions, raw json.RawMessage) error {
		if json.Unmarshal(raw, &o.Mode) != nil || o.Mode != MemifEthernet && o.Mode != MemifIP {
			return fmt.Errorf("expected %q or %q, not %.300q", MemifEthernet, MemifIP, raw)
		}
		return nil
	},
	"role": func(o *MemifOptions, raw json.RawMessage) error {
		if json.Unmarshal(raw, &o.Role) != nil || o.Role != RoleClient && o.Role != RoleServer {
			return fmt.Errorf("expected %q or %q, not %.300q", RoleClient, RoleServer, raw)
		}
		return nil
	},
	"uid": func(o *MemifOptions, raw json.RawMessage) error { return parseID(&o.UID, raw) },
	"gid": func(o *MemifOptions, raw json.RawMessage) error { return parseID(&o.GID, raw) },
}

// interval is the valid range of a number.
type interval struct {
	min, max int
	unit     string
}

func (i interval) parse(n *int, raw json.RawMessage) error {
	if err := json.Unmarshal(raw, n); err != nil || *n < i.min || *n > i.max {
		return fmt.Errorf("expected %d to %d %s, not %.300q", i.min, i.max, i.unit, raw)
	}
	return nil
}

// parseID parses the number of an owner. The kernel reserves the highest number.
func parseID(id **ID32, raw json.RawMessage) error {
	var n ID32
	if err := json.Unmarshal(raw, &n); err != nil || n == ^ID32(0) {
		return fmt.Errorf("expected a number from 0 to 4294967294, not %.300q", raw)
	}
	*id = &n
	return nil
}

// first returns the name of the first option that is set.
func (o MemifOptions) first() string {
	for _, option := range []struct {
		name string
		set  bool
	}{
		{"container", o.Container != ""}, {"ringSize", o.RingSize != 0}, {"bufferSize", o.BufferSize != 0},
		{"mode", o.Mode != ""}, {"role", o.Role != ""}, {"uid", o.UID != nil},
	} {
		if option.set {
			return option.name
		}
	}
	return "gid"
}

// Resource is the extended resource that a pod limits to the number of its memifs.
const Resource = AnnotationPrefix + "memif"

// FewMemifs says that a container, or all containers of a pod together ("" as the container), have fewer memifs than
// the pod requests. The admission policy for pods has the same text (k8s/manifests/pods.yaml).
func FewMemifs(container string, have, needed int) string {
	where := "the pod's containers have"
	if container != "" {
		where = "container " + container + " has"
	}
	return fmt.Sprintf("%s %d of %s and annotation %s asks for %d; raise the limits, or ask for fewer", where, have,
		Resource, AnnotationCustom, needed)
}

// NoMemifs says that the container that an option names has no memif; have lists the containers that have one.
func NoMemifs(container, have string) string {
	return fmt.Sprintf(
		"container %s has no %s in its limits; these have: %s; set it there, or choose another container in annotation %s",
		container, Resource, have, AnnotationOptions)
}

// UnknownGroup is the group of a container whose group is unknown.
const UnknownGroup = -1

// Allocation are the devices of one container, or one device of a claim: a directory with a socket of the dataplane and
// its secret. It outlives sandboxes: kubelet allocates once in a pod's life, and prepares a claim once.
type Allocation struct {
	ID        string    // 20 letters and digits; name of the directory
	Socket    uint32    // number of its socket in the dataplane
	Devices   []string  // ids, sorted
	Directory string    // on the node, absolute
	Created   time.Time // by Allocate

	Secret secret.Text

	// Pod and Container are the owner, if it is known: kubelet does not pass it to Allocate.
	Pod       ID
	Container string

	// Attachment and Netns are those of the last ADD that was granted the allocation.
	Attachment Key
	Netns      Netns

	// UID and GID own the directory and its files after Granted. With UnknownGroup each container that mounts the
	// directory has access.
	UID, GID int
	Granted  bool

	Claim *ClaimedDevice // immutable; nil: kubelet's device plugin manager requested the devices
}

// SocketPath returns the path of the allocation's socket on the node.
func (a *Allocation) SocketPath() string { return a.Directory + "/memif.sock" }

// Grant is the allocation of a container, according to kubelet, or of a claim, with the group of its processes.
type Grant struct {
	Container  string // "": of a claim, which several containers may have
	GID        int    // of fsGroup or runAsGroup, or UnknownGroup
	Allocation Allocation
}

// AllocateDevice creates an allocation for an unknown container.
type AllocateDevice struct {
	Devices []string // ids that kubelet chose

	// Allocation is set by the handler.
	Allocation *Allocation
}

// String returns the name of the event in logs and records.
func (e *AllocateDevice) String() string { return "allocate " + strings.Join(e.Devices, ", ") }

// Validate rejects an event without devices.
func (e *AllocateDevice) Validate() error {
	if len(e.Devices) == 0 || slices.Contains(e.Devices, "") {
		return errors.New("allocate: kubelet requests no device")
	}
	return nil
}

// ReleaseDevice deletes an allocation that kubelet no longer has.
type ReleaseDevice struct {
	Allocation string // its ID
	Reason     string
}

// String returns the name of the event in logs and records.
func (e *ReleaseDevice) String() string {
	return fmt.Sprintf("release allocation %s (%s)", e.Allocation, e.Reason)
}

// Subject returns the key of the allocation.
func (e *ReleaseDevice) Subject() string { return "allocation/" + e.Allocation }

// Removal makes handlers run in reverse order and continue after errors.
func (e *ReleaseDevice) Removal() {}
