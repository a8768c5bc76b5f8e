package pod

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weftnet/weft/internal/line"
)

// Preparation is what the caller of an event did before it was queued. A refused event only makes a record.
type Preparation struct {
	Began   time.Time // when the caller began to complete the event; zero: it had nothing to do
	Refused error     // why the caller could not
}

// Prepared returns both.
func (p Preparation) Prepared() (began time.Time, refused error) { return p.Began, p.Refused }

// AddPod connects a sandbox. The fields of the request are complete before the event is queued, so handlers do not wait
// for other components. The handlers set Attachment.
type AddPod struct {
	Key             Key
	ID              ID
	Netns           Netns
	Mode            string // one of the Mode constants; "" is primary
	Annotations     map[string]string
	AnnotationsFrom string // source: runtime, cache, API server, or none
	Requested       Requested
	Selected        []InterfaceRequest   // by NetworkAttachmentDefinitions
	Claimed         []InterfaceRequest   // by ResourceClaims
	IPAMClaims      map[string]IPAMClaim // that the interfaces refer to, by name
	// of devices: those of claims, and if the pod requests other memifs, those of its containers in their order
	Grants []Grant

	// Connected means that the attachment existed when the request came: the event only repeats the answer. What only a
	// new pod needs is not complete then: annotations, requests for interfaces, grants.
	Connected bool

	// FixedInterfaces means that later edits of the annotations do not change the interfaces, see Attachment.
	FixedInterfaces bool

	// IsEdit means that the request is that of a connected pod after an edit of its annotations, see ChangePod.
	IsEdit bool

	// Preparation is how the fields of the request were completed.
	Preparation

	// Awaits reports whether the caller can get what the event lacks after this error, and repeats the event then; nil:
	// it cannot.
	Awaits func(err error) bool
	// Cancelled returns why the event must not be handled any more; nil, also as a function: it may.
	Cancelled func() error

	// Attachment is set by the first handler and completed by the others. Repeated means that it existed and is
	// complete.
	Attachment *Attachment
	Repeated   bool

	extra func() ([]InterfaceRequest, error) // result of Extra; nil before the first call

	// HandedOver are the changed attachments of older sandboxes that lost addresses or devices to this one.
	HandedOver []*Attachment
}

// Modes: the role of Weft for a sandbox.
const (
	ModePrimary = "primary" // creates the main interface and those that the annotations request
	// another plugin created the main interface Key.IfName; creates those that the annotations request
	ModeChained = "chained"
	// another plugin requests an interface in addition to the main one; creates it and those that the annotations
	// request
	ModeDelegate = "delegate"
	ModeIPAM     = "ipam" // allocates addresses for an interface of another plugin
)

// HasMain reports whether Weft creates the main interface.
func (e *AddPod) HasMain() bool { return e.Mode != ModeChained && e.Mode != ModeIPAM }

// Extra returns the interfaces that the pod requests in addition to the main one: those of its annotations in their
// order, then those of its NetworkAttachmentDefinitions, then those of its claims. Errors have code 103. The first call
// parses the annotations, so Annotations, Selected and Claimed must be set before. The caller must not change the
// result.
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
	if n := len(requests) + len(e.Selected) + len(e.Claimed); n > MaxCustomInterfaces {
		return nil, Errorf(CodeInvalidAnnotation,
			"annotations %s and %s, and claims: %d interfaces, at most %d are possible", AnnotationCustom,
			AnnotationNetworks, n, MaxCustomInterfaces)
	}
	taken := map[string]bool{e.Key.IfName: true}
	for _, r := range requests {
		taken[r.Name] = true
	}
	for _, r := range e.Selected {
		if taken[r.Name] {
			return nil, Errorf(CodeInvalidAnnotation,
				"annotation %s: network %q: interface %s is another interface of the pod; choose another name: %s@NAME",
				AnnotationNetworks, r.Definition, r.Name, r.Definition)
		}
		taken[r.Name] = true
	}
	for _, r := range e.Claimed {
		if taken[r.Name] {
			return nil, Errorf(CodeInvalidAnnotation,
				"%s: interface %s is another interface of the pod; choose another name in the claim's parameters",
				r.Source(), r.Name)
		}
		taken[r.Name] = true
	}
	all := slices.Concat(requests, e.Selected, e.Claimed)
	for i := range all {
		if err := all[i].nameClaim(e.ID); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// String returns the name of the event in logs and records.
func (e *AddPod) String() string {
	if e.IsEdit {
		return "change interfaces of " + describe(e.ID, e.Key)
	}
	return "add " + describe(e.ID, e.Key)
}

// Failed prefixes an error with the pod of the event. The error keeps its code.
func (e *AddPod) Failed(err error) error {
	if coded, ok := errors.AsType[*Error](err); ok {
		return Errorf(coded.Code, "%s: %w", e, err)
	}
	return fmt.Errorf("%s: %w", e, err)
}

// maxRecorded limits an annotation in the record of an event, in bytes.
const maxRecorded = 1024

// Request returns the annotations for the record of the event. A pod that is refused has no attachment that shows them.
func (e *AddPod) Request() map[string]string { return ShownAnnotations(e.Annotations) }

// ShownAnnotations returns what operators see of a pod's annotations: the known ones without the options, because a
// user may have written a secret into an unknown option. Long ones are cut.
func ShownAnnotations(annotations map[string]string) map[string]string {
	shown := map[string]string{}
	for name, value := range annotations {
		if (name == AnnotationNetworks || slices.Contains(knownAnnotations, name) || IsLimit(name)) &&
			name != AnnotationOptions {
			shown[name] = line.Of(value, maxRecorded)
		}
	}
	return shown
}

// Defers reports whether a failed attempt is no failure of the ADD yet.
func (e *AddPod) Defers(err error) bool { return e.Awaits != nil && e.Awaits(err) }

// Subject returns the key of the attachment. A DeletePod of the same subject cancels this event.
func (e *AddPod) Subject() string { return e.Key.String() }

// Pod returns the pod and its interface. An AddPod of a newer sandbox cancels an unfinished AddPod of an older one.
func (e *AddPod) Pod() string {
	if e.ID.IsZero() {
		return ""
	}
	return e.ID.String() + "/" + e.Key.Network + "/" + e.Key.IfName
}

// Validate rejects an invalid key, mode or network namespace, and a request with too long lists.
func (e *AddPod) Validate() error {
	if err := e.Key.Validate(); err != nil {
		return err
	}
	if !slices.Contains([]string{"", ModePrimary, ModeChained, ModeDelegate, ModeIPAM}, e.Mode) {
		return Errorf(CodeInvalidConfig, "add %s: mode %q is not one of primary, chained, delegate, ipam",
			describe(e.ID, e.Key), e.Mode)
	}
	if e.Netns.Path == "" || e.Netns.Inode == 0 {
		return Errorf(CodeInvalidEnvironment, "add %s: no network namespace: ADD requires CNI_NETNS",
			describe(e.ID, e.Key))
	}
	if err := e.Requested.Validate(); err != nil {
		return e.Failed(err)
	}
	return nil
}

// DeletePod deletes an attachment that is complete, incomplete or missing.
type DeletePod struct {
	Key    Key
	Reason string // DEL, queued DEL, GC, namespace gone, reboot

	ID ID // for people; zero if unknown
}

// String returns the name of the event in logs and records.
func (e *DeletePod) String() string { return "delete " + describe(e.ID, e.Key) }

// Subject returns the key of the attachment.
func (e *DeletePod) Subject() string { return e.Key.String() }

// Removal makes handlers run in reverse order and continue after errors.
func (e *DeletePod) Removal() {}

// Validate validates the key.
func (e *DeletePod) Validate() error { return e.Key.Validate() }

// Validate rejects a key with an empty part. The servers of requests validate the syntax of the parts.
func (k Key) Validate() error {
	if k.Network == "" || k.ContainerID == "" || k.IfName == "" {
		return Errorf(CodeInvalidEnvironment, "attachment %q: network, container id and interface name are required",
			k.String())
	}
	return nil
}

func describe(id ID, k Key) string {
	if id.IsZero() {
		return fmt.Sprintf("container %s %s (%s)", ShortID(k.ContainerID), k.IfName, k.Network)
	}
	return fmt.Sprintf("pod %s %s (%s, sandbox %s)", id, k.IfName, k.Network, ShortID(k.ContainerID))
}

// WithholdPods replaces the set of attachments whose dataplane objects are not desired. Their kernel objects, addresses
// and memif directories stay.
type WithholdPods struct {
	Partial
	Keys   []Key
	Reason string // one line for logs and records
}

// String returns the name of the event in logs and records.
func (e *WithholdPods) String() string { return e.Reason }
