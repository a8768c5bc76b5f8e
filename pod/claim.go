package pod

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// ClaimDriver is the name of the DRA driver, of its DeviceClass, and of the domain of its attributes.
const ClaimDriver = "memif.contivpp.io"

// Version and kind of the parameters of a claim.
const (
	ClaimAPIVersion = AnnotationPrefix + "v1"
	ClaimKind       = "MemifParameters"
)

// ClaimID identifies a ResourceClaim. UID alone identifies it for ever.
type ClaimID struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// String returns namespace/name.
func (c ClaimID) String() string { return c.Namespace + "/" + c.Name }

// ClaimedDevice is a device of a claim, with the interface that the claim requests for it.
type ClaimedDevice struct {
	ClaimID
	Device     string          `json:"device"`
	Request    string          `json:"request"`    // of the claim, with the subrequest if there is one
	Parameters ClaimParameters `json:"parameters"` // valid
	Pods       []string        `json:"pods"`       // UIDs of the pods that the claim was reserved for
}

// IsFor reports whether the claim is reserved for a pod.
func (d *ClaimedDevice) IsFor(id ID) bool {
	return d.Namespace == id.Namespace && id.UID != "" && slices.Contains(d.Pods, id.UID)
}

// IsClaimedAs reports whether a deviceID of Multus names the device of a claim: by its attribute
// k8s.cni.cncf.io/deviceID, or, in Multus 4.3.0, by one of the CDI devices of its request: that of the allocation, and
// that of the metadata (KEP-5304), which k8s.io/dynamic-resource-allocation names.
func (a *Allocation) IsClaimedAs(device string) bool {
	if a.Claim == nil {
		return false
	}
	request, _, _ := strings.Cut(a.Claim.Request, "/")
	return device == a.Claim.Device || device == a.ID || device == a.Claim.UID+"_"+request
}

// SocketVariable returns the environment variable with the socket of a claim's memif: the name of the interface in
// upper case, with _ for other characters than letters and digits. Different names may have the same variable.
func SocketVariable(interfaceName string) string {
	return "MEMIF_SOCKET_" + strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, strings.ToUpper(interfaceName))
}

// ClaimParameters are the parameters of a memif in a claim or a DeviceClass. They take the place of the annotations.
type ClaimParameters struct {
	Interface string                     `json:"interface,omitempty"` // its name in the pod
	Network   string                     `json:"network,omitempty"`
	Options   map[string]json.RawMessage `json:"options,omitempty"` // as in AnnotationOptions

	// Delegate means that the claim gives a device without an interface: a delegate's ADD names the device, as Multus
	// does, and has network, options and name of the interface.
	Delegate bool `json:"delegate,omitempty"`
}

// ParameterProblem is an error of the parameters of a claim.
type ParameterProblem struct {
	Parameter string // "": the parameters as a whole
	Err       error
}

// Merge parses opaque parameters. They replace the parameters so far, each option for itself: those of a claim precede
// those of its DeviceClass. The result may be invalid as a whole, which Request reports.
func (p *ClaimParameters) Merge(raw []byte) error {
	if problems := p.MergeEach(raw); len(problems) > 0 {
		return problems[0].Err
	}
	return nil
}

// MergeEach is Merge with all errors.
func (p *ClaimParameters) MergeEach(raw []byte) (problems []ParameterProblem) {
	if len(raw) > maxAnnotation {
		return []ParameterProblem{{"", fmt.Errorf("%d bytes, at most %d are read", len(raw), maxAnnotation)}}
	}
	keys, err := members(raw)
	if err != nil {
		return []ParameterProblem{{"", err}}
	}
	kind := ""
	version := ""
	for _, key := range keys {
		var errs []error
		switch key.name {
		case "apiVersion":
			errs = append(errs, textOf(&version, key.value))
		case "kind":
			errs = append(errs, textOf(&kind, key.value))
		case "interface":
			errs = append(errs, textOf(&p.Interface, key.value))
		case "network":
			errs = append(errs, textOf(&p.Network, key.value))
		case "delegate":
			if err := json.Unmarshal(key.value, &p.Delegate); err != nil {
				errs = append(errs, fmt.Errorf("expected true or false, not %.300q", key.value))
			}
		case "options":
			errs = p.mergeOptions(key.value)
		default:
			errs = append(errs,
				errors.New("unknown parameter; known are apiVersion, kind, delegate, interface, network and options"))
		}
		for _, err := range errs {
			if err != nil {
				problems = append(problems, ParameterProblem{key.name, fmt.Errorf("%.80s: %w", key.name, err)})
			}
		}
	}
	if version != ClaimAPIVersion || kind != ClaimKind {
		problems = append(problems, ParameterProblem{
			"",
			fmt.Errorf("apiVersion %.80q and kind %.80q: expected %s and %s", version, kind, ClaimAPIVersion,
				ClaimKind),
		})
	}
	return problems
}

// ConcernsRequest reports whether a configuration for the given requests, none are all, is for a request. A request of
// alternatives has the chosen one behind a slash.
func ConcernsRequest(requests []string, request string) bool {
	base, _, _ := strings.Cut(request, "/")
	return len(requests) == 0 || slices.Contains(requests, request) || slices.Contains(requests, base)
}

func textOf(text *string, raw json.RawMessage) error {
	if err := json.Unmarshal(raw, text); err != nil {
		return fmt.Errorf("expected a string, not %.300q", raw)
	}
	return nil
}

// mergeOptions parses the options for their errors and keeps their text.
func (p *ClaimParameters) mergeOptions(raw json.RawMessage) []error {
	if _, errs := parseEachOption(raw); len(errs) > 0 {
		return errs
	}
	keys, err := members(raw)
	if err != nil {
		return []error{err}
	}
	merged := maps.Clone(p.Options)
	if merged == nil {
		merged = make(map[string]json.RawMessage)
	}
	for _, key := range keys {
		merged[key.name] = key.value
	}
	p.Options = merged
	return nil
}

// Named returns the parameters of device n, from 0, of a request with the given number of devices. The name of the
// interface is that of the parameters, else that of the request; each one of several devices has its number behind it,
// from 1.
func (p ClaimParameters) Named(request string, n, devices int) ClaimParameters {
	if p.Interface == "" {
		p.Interface = request[strings.LastIndexByte(request, '/')+1:]
	}
	if devices > 1 {
		p.Interface += strconv.Itoa(n + 1)
	}
	return p
}

// Request returns the interface that the parameters request. The rules are those of the annotations.
func (p ClaimParameters) Request() (InterfaceRequest, error) {
	r, problems := p.RequestEach()
	if len(problems) > 0 {
		return r, problems[0].Err
	}
	return r, nil
}

// RequestEach is Request with all errors.
func (p ClaimParameters) RequestEach() (r InterfaceRequest, problems []ParameterProblem) {
	r = InterfaceRequest{Name: p.Interface, Type: TypeMemif, Network: p.Network}
	if r.Network == "" {
		r.Network = DefaultNetwork
	}
	say := func(parameter, format string, args ...any) {
		problems = append(problems, ParameterProblem{parameter, fmt.Errorf(format, args...)})
	}
	if !IsLinkName(r.Name) {
		say("interface", "interface %.80q: %s", r.Name, invalidLinkName)
	}
	if !IsLabel(r.Network) {
		say("network", "network %.80q: %s", r.Network, invalidNetwork)
	}
	if p.Delegate && (p.Network != "" || len(p.Options) > 0) {
		say("delegate",
			"delegate: the NetworkAttachmentDefinition has network and options; leave them out of the claim")
	}
	if len(p.Options) == 0 {
		return r, problems
	}
	raw, err := json.Marshal(p.Options)
	if err == nil {
		r.Options, err = parseOptions(raw)
	}
	if err != nil {
		say("options", "options: %w", err)
	}
	if err := r.Options.ValidateFor(TypeMemif); err != nil {
		say("options", "options: %w", err)
	}
	if r.Options.Memif.Container != "" {
		say("options", "options: container: the pod's spec says which containers have the claim")
	}
	if r.Options.PersistentIPs {
		say("options", "options: %w", errPersistentClaim)
	}
	return r, problems
}

// PrepareClaim creates the allocations of a claim's devices. It may be repeated.
type PrepareClaim struct {
	Claim   ClaimID
	Devices []ClaimedDevice // all that the claim has of this node

	// Allocations are set by the handler, in the order of Devices.
	Allocations []Allocation
}

// String returns the name of the event in logs and records.
func (e *PrepareClaim) String() string { return "prepare claim " + e.Claim.String() }

// Validate rejects an event without devices, with a device of another claim, or with a repeated device.
func (e *PrepareClaim) Validate() error {
	var seen []string
	for _, d := range e.Devices {
		if d.ClaimID != e.Claim || d.UID == "" || d.Device == "" || slices.Contains(seen, d.Device) {
			return fmt.Errorf("%s: device %q: invalid or repeated", e, d.Device)
		}
		seen = append(seen, d.Device)
	}
	if len(seen) == 0 {
		return fmt.Errorf("%s: it has no device of this node", e)
	}
	return nil
}

// ReleaseClaim deletes the allocations of a claim. An unknown claim is no error.
type ReleaseClaim struct {
	Claim  ClaimID
	Reason string
}

// String returns the name of the event in logs and records.
func (e *ReleaseClaim) String() string {
	return fmt.Sprintf("release claim %s (%s)", e.Claim, e.Reason)
}

// Removal makes handlers run in reverse order and continue after errors.
func (e *ReleaseClaim) Removal() {}
