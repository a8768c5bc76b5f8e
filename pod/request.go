package pod

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weftnet/weft/internal/line"
)

// Request has the interfaces that a pod requests of this node. It is complete before its event is queued, so handlers
// do not wait for other components.
type Request struct {
	Key             Key
	ID              ID
	Netns           Netns
	Mode            string // one of the Mode constants; "" is primary
	Annotations     map[string]string
	AnnotationsFrom string // source: runtime, cache, API server, or none
	Requested       Requested
	Resolved

	// IsEdit means that the pod is connected, and that its annotations were edited.
	IsEdit bool

	extra func() ([]InterfaceRequest, error) // result of Extra; nil before the first call
}

// Resolved are the answers of other components to the requests that name their objects.
type Resolved struct {
	Selected   []InterfaceRequest   // by NetworkAttachmentDefinitions
	Claimed    []InterfaceRequest   // by ResourceClaims
	IPAMClaims map[string]IPAMClaim // that the interfaces refer to, by name
	// of devices: first by claims, then, if the pod requests other memifs, by the containers in their order
	Grants []Grant
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
func (r *Request) HasMain() bool { return HasMain(r.Mode) }

// HasMain reports whether Weft creates the main interface of an attachment in a mode.
func HasMain(mode string) bool { return mode != ModeChained && mode != ModeIPAM }

// Extra returns the interfaces that the pod requests in addition to the main one: those of its annotations in their
// order, then those of its NetworkAttachmentDefinitions, then those of its claims. Errors have code 103. The first call
// parses the annotations, so Annotations, Selected and Claimed must be set before. The caller must not change the
// result.
func (r *Request) Extra() ([]InterfaceRequest, error) {
	if r.extra == nil {
		requests, err := r.parseExtra()
		r.extra = func() ([]InterfaceRequest, error) { return requests, err }
	}
	return r.extra()
}

func (r *Request) parseExtra() ([]InterfaceRequest, error) {
	requests, err := InterfaceRequests(r.Annotations, r.Key.IfName)
	if err != nil {
		return nil, err
	}
	if n := len(requests) + len(r.Selected) + len(r.Claimed); n > MaxCustomInterfaces {
		return nil, Errorf(CodeInvalidAnnotation,
			"annotations %s and %s, and claims: %d interfaces, at most %d are possible", AnnotationCustom,
			AnnotationNetworks, n, MaxCustomInterfaces)
	}
	taken := map[string]bool{r.Key.IfName: true}
	for _, i := range requests {
		taken[i.Name] = true
	}
	for _, i := range r.Selected {
		if taken[i.Name] {
			return nil, Errorf(CodeInvalidAnnotation,
				"annotation %s: network %q: interface %s is another interface of the pod; choose another name: %s@NAME",
				AnnotationNetworks, i.Definition, i.Name, i.Definition)
		}
		taken[i.Name] = true
	}
	for _, i := range r.Claimed {
		if taken[i.Name] {
			return nil, Errorf(CodeInvalidAnnotation,
				"%s: interface %s is another interface of the pod; choose another name in the claim's parameters",
				i.Source(), i.Name)
		}
		taken[i.Name] = true
	}
	all := slices.Concat(requests, r.Selected, r.Claimed)
	for i := range all {
		if err := all[i].nameClaim(r.ID); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// String returns the name of the event in logs and records.
func (r *Request) String() string {
	if r.IsEdit {
		return "change interfaces of " + describe(r.ID, r.Key)
	}
	return "add " + describe(r.ID, r.Key)
}

// Failed prefixes an error with the pod of the event. The error keeps its code.
func (r *Request) Failed(err error) error {
	if coded, ok := errors.AsType[*Error](err); ok {
		return Errorf(coded.Code, "%s: %w", r, err)
	}
	return fmt.Errorf("%s: %w", r, err)
}

// maxRecorded limits an annotation in the record of an event, in bytes.
const maxRecorded = 1024

// Recorded returns the annotations for the record of the event. A pod that is refused has no attachment that shows
// them.
func (r *Request) Recorded() map[string]string { return ShownAnnotations(r.Annotations) }

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

// Subject returns the key of the attachment. A DeletePod of the same subject cancels this event.
func (r *Request) Subject() string { return r.Key.String() }

// Pod returns the pod and its interface. An AddPod of a newer sandbox cancels an unfinished AddPod of an older one.
func (r *Request) Pod() string {
	if r.ID.IsZero() {
		return ""
	}
	return r.ID.String() + "/" + r.Key.Network + "/" + r.Key.IfName
}

// Validate rejects an invalid key, mode or network namespace, and a request with too long lists.
func (r *Request) Validate() error {
	if err := r.Key.Validate(); err != nil {
		return err
	}
	if !slices.Contains([]string{"", ModePrimary, ModeChained, ModeDelegate, ModeIPAM}, r.Mode) {
		return Errorf(CodeInvalidConfig, "%s: mode %q is not one of primary, chained, delegate, ipam", r, r.Mode)
	}
	if r.Netns.Path == "" || r.Netns.Inode == 0 {
		return Errorf(CodeInvalidEnvironment, "%s: no network namespace: ADD requires CNI_NETNS", r)
	}
	if err := r.Requested.Validate(); err != nil {
		return r.Failed(err)
	}
	return nil
}
