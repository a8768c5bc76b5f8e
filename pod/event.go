package pod

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// AddPod asks to wire a sandbox. The request's part is complete before the event is queued: no handler has to ask
// anybody. The handlers fill in Attachment.
type AddPod struct {
	Key             Key
	ID              ID
	Netns           Netns
	Mode            string // what Weft is to the sandbox: one of the Mode constants; "" is primary
	Annotations     map[string]string
	AnnotationsFrom string // runtime, cache, API server, or none: who gave the annotations
	Requested       Requested
	Selected        []InterfaceRequest // by NetworkAttachmentDefinitions, which have been looked up
	Grants          []Grant            // of devices, in the order of the pod's containers; asked for where the annotations want a memif

	// Prepare completes the request's part before the event is queued; nil: it is complete.
	Prepare func(context.Context, *AddPod) error

	// Attachment is made by the first handler and completed by the others. With Repeated it is the one that exists
	// already, complete, and nothing is to be done.
	Attachment *Attachment
	Repeated   bool

	extra func() ([]InterfaceRequest, error) // what Extra parsed; nil: nothing yet

	// HandedOver are the attachments of the pod's older sandboxes that lost something to this one, as they are then.
	HandedOver []*Attachment
}

// What Weft is to a sandbox.
const (
	ModePrimary  = "primary"  // makes the main interface and what the annotations ask for
	ModeChained  = "chained"  // adds what the annotations ask for to the main interface of another plugin, which Key.IfName names
	ModeDelegate = "delegate" // makes an interface beside the main one, by order of another plugin, and what the annotations ask for
	ModeIPAM     = "ipam"     // gives addresses only, to an interface that another plugin makes
)

// Requested is what the runtime asks for the main interface, beside the annotations.
type Requested struct {
	Addresses []netip.Prefix // at most one a family; of the longest length where the runtime gave none
	MAC       string         // "" = ours to choose
	Pools     []string       // that they come from; none: those of the pod
	DeviceID  string         // of the device plugin, when another component chose the device

	// Network, Type and Options are of mode delegate, where the configuration of another plugin specifies the interface.
	Network string // "default", "stub", or a custom network's name; "" is default
	Type    string // tap, veth or memif; "": that of main interfaces
	Options InterfaceOptions

	// Delegated are the addresses, at most one a family, that a foreign IPAM plugin gave: the main interface has these and
	// no others. DelegatedGateways are theirs, in the same order, each not valid where there is none; Weft's own gateways
	// stand in for them.
	Delegated         []netip.Prefix
	DelegatedGateways []netip.Addr
	Delegation        Delegation // the rest of what it gave

	// AwaitsAddresses says that a foreign IPAM plugin will ask for them by the main interface, which is made without any;
	// an AddressPod gives them.
	AwaitsAddresses bool
}

// HasMain reports whether the main interface is Weft's to make.
func (e *AddPod) HasMain() bool { return e.Mode != ModeChained && e.Mode != ModeIPAM }

// Extra returns the interfaces that the pod requests in addition to the main one: those of its annotations in their order, then those of
// its NetworkAttachmentDefinitions. Errors have code 103. The first call parses the annotations, so Annotations and Selected must be set
// before. The caller must not change the result.
func (e *AddPod) Extra() ([]InterfaceRequest, error) {
	if e.extra == nil {
		requests, err := e.parseExtra()
		e.extra = func() ([]InterfaceRequest, error) { return requests, err }
	}
	return e.extra()
}

func (e *AddPod) parseExtra() ([]InterfaceRequest, error) {
	requests, err := InterfaceRequests(e.Annotations, e.Key.IfName)
	if err != nil {
		return nil, err
	}
	if n := len(requests) + len(e.Selected); n > MaxCustomInterfaces {
		return nil, Errorf(CodeInvalidAnnotation, "annotations %s and %s: %d interfaces, at most %d are possible", AnnotationCustom, AnnotationNetworks, n, MaxCustomInterfaces)
	}
	taken := map[string]bool{e.Key.IfName: true}
	for _, r := range requests {
		taken[r.Name] = true
	}
	for _, r := range e.Selected {
		if taken[r.Name] {
			return nil, Errorf(CodeInvalidAnnotation, "annotation %s: network %q: interface %s is another interface of the pod; choose another name: %s@NAME",
				AnnotationNetworks, r.Definition, r.Name, r.Definition)
		}
		taken[r.Name] = true
	}
	return append(requests, e.Selected...), nil
}

// String names the event as logs and records show it.
func (e *AddPod) String() string { return "add " + describe(e.ID, e.Key) }

// Failed prefixes an error with the pod of the event. The error keeps its code.
func (e *AddPod) Failed(err error) error {
	if coded, ok := errors.AsType[*Error](err); ok {
		return Errorf(coded.Code, "%s: %w", e, err)
	}
	return fmt.Errorf("%s: %w", e, err)
}

// Subject is the attachment: a DeletePod of the same one cancels this event.
func (e *AddPod) Subject() string { return e.Key.String() }

// Pod is the pod and its interface: an AddPod of a newer sandbox cancels an older one that is still under way.
func (e *AddPod) Pod() string {
	if e.ID.IsZero() {
		return ""
	}
	return e.ID.String() + "/" + e.Key.Network + "/" + e.Key.IfName
}

// Load completes the request's part.
func (e *AddPod) Load(ctx context.Context) error {
	if e.Prepare == nil {
		return nil
	}
	return e.Prepare(ctx, e)
}

// Validate refuses an event that no handler could make sense of.
func (e *AddPod) Validate() error {
	if err := e.Key.Validate(); err != nil {
		return err
	}
	if !slices.Contains([]string{"", ModePrimary, ModeChained, ModeDelegate, ModeIPAM}, e.Mode) {
		return Errorf(CodeInvalidConfig, "add %s: mode %q is none of primary, chained, delegate, ipam", describe(e.ID, e.Key), e.Mode)
	}
	if e.Netns.Path == "" || e.Netns.Inode == 0 {
		return Errorf(CodeInvalidEnvironment, "add %s: no network namespace: CNI_NETNS is needed for ADD", describe(e.ID, e.Key))
	}
	return nil
}

// DeletePod takes an attachment away, whether it is complete, half made or was never there.
type DeletePod struct {
	Key    Key
	Reason string // who asks: DEL, queued DEL, GC, namespace gone, reboot

	// ID is filled in by the caller if it knows it; it is only for people.
	ID ID
}

// String names the event as logs and records show it.
func (e *DeletePod) String() string { return "delete " + describe(e.ID, e.Key) }

// Subject is the attachment.
func (e *DeletePod) Subject() string { return e.Key.String() }

// Removal makes handlers run in reverse order and go on past errors.
func (e *DeletePod) Removal() {}

// Validate refuses a key that cannot be one.
func (e *DeletePod) Validate() error { return e.Key.Validate() }

// Validate refuses a key with an empty part. The forms of the parts are checked where they come in.
func (k Key) Validate() error {
	if k.Network == "" || k.ContainerID == "" || k.IfName == "" {
		return Errorf(CodeInvalidEnvironment, "attachment %q: network, container id and interface name are all needed", k.String())
	}
	return nil
}

func describe(id ID, k Key) string {
	if id.IsZero() {
		return fmt.Sprintf("container %s %s (%s)", ShortID(k.ContainerID), k.IfName, k.Network)
	}
	return fmt.Sprintf("pod %s %s (%s, sandbox %s)", id, k.IfName, k.Network, ShortID(k.ContainerID))
}

// WithholdPods makes Keys the attachments whose objects in the dataplane are not desired, in place of those before. Their
// objects in the kernel, addresses and memif directories stay.
type WithholdPods struct {
	Keys   []Key
	Reason string // one line, which logs and records show
}

// String names the event as logs and records show it.
func (e *WithholdPods) String() string { return e.Reason }

// BestEffort keeps what was committed when the dataplane dies meanwhile.
func (e *WithholdPods) BestEffort() bool { return true }
