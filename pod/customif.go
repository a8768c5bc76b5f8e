package pod

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Annotations that a pod's author writes.
const (
	AnnotationPrefix  = "contivpp.io/"
	AnnotationCustom  = AnnotationPrefix + "custom-if"
	AnnotationOptions = AnnotationPrefix + "custom-if-options"
	AnnotationPools   = AnnotationPrefix + "ip-pools"
	AnnotationIPs     = AnnotationPrefix + "ip-addresses"

	// AnnotationEndpoint names the interface by which a pod serves the Services that ask for that.
	AnnotationEndpoint = AnnotationPrefix + "service-endpoint-if"
	// AnnotationMicroservice is kept, and has no effect.
	AnnotationMicroservice = AnnotationPrefix + "microservice-label"
)

// bandwidthAnnotations are Kubernetes' own: limits of a pod's bandwidth, in bits a second, which Weft does not implement.
var bandwidthAnnotations = []string{"kubernetes.io/egress-bandwidth", "kubernetes.io/ingress-bandwidth"}

// KeepsAnnotation reports whether an annotation is kept with an attachment.
func KeepsAnnotation(name string) bool {
	return strings.HasPrefix(name, AnnotationPrefix) || name == AnnotationNetworks || slices.Contains(bandwidthAnnotations, name)
}

// known are all of them, of our prefix.
var known = []string{AnnotationCustom, AnnotationOptions, AnnotationPools, AnnotationIPs, AnnotationEndpoint, AnnotationMicroservice}

// Interface types that a pod can ask for.
const (
	TypeTap   = "tap"
	TypeVeth  = "veth"
	TypeMemif = "memif"
)

// TypeIPAM is the type of an interface that is another plugin's, and of which Weft gave the addresses only.
const TypeIPAM = "ipam"

// MaxCustomInterfaces is how many extra interfaces a pod can have.
const MaxCustomInterfaces = 16

// maxAnnotation bounds an annotation, in bytes: it is user's data, and more than any sound one needs.
const maxAnnotation = 16 << 10

// InterfaceRequest is one extra interface that a pod asks for.
type InterfaceRequest struct {
	Name    string // in the pod
	Type    string // tap, veth or memif; "": that of main interfaces
	Network string // "default", "stub", or a custom network's name
	Options InterfaceOptions

	Definition string // the NetworkAttachmentDefinition that asks for it, namespace/name; "": an annotation of Weft's does
}

// By says who asks for the interface: what a pod's author is to look at.
func (r InterfaceRequest) By() string {
	if r.Definition != "" {
		return AnnotationNetworks
	}
	return AnnotationCustom
}

// InterfaceOptions are what a pod may choose about one of its interfaces. The zero value leaves all to Weft.
type InterfaceOptions struct {
	MTU int            // bytes
	MAC string         // of the pod's end
	IPs []netip.Prefix // at most one a family; of the longest length where the pod's author gave none

	RxQueues int // that the pod reads from
	TxQueues int // that the pod writes to

	Memif MemifOptions // of type memif only
}

// Suit says what is wrong with the options for an interface of that type; "" is the one that main interfaces have.
func (o InterfaceOptions) Suit(kind string) error {
	switch {
	case kind != TypeMemif && o.Memif != (MemifOptions{}):
		return fmt.Errorf("%s: only an interface of type memif has this option", o.Memif.first())
	case kind == TypeTap && o.RxQueues != 0 && o.TxQueues != 0 && o.RxQueues != o.TxQueues:
		return fmt.Errorf("rxQueues is %d and txQueues %d: a tap has as many of both, so set them alike, or one of them", o.RxQueues, o.TxQueues)
	}
	return nil
}

// InterfaceRequests reads what a pod's annotations ask for, in their order; main is the name of the main interface. Its
// errors have code 103 and name the annotation, the item, and what was expected.
func InterfaceRequests(annotations map[string]string, main string) ([]InterfaceRequest, error) {
	requests, err := parseCustom(annotations[AnnotationCustom], main)
	if err != nil {
		return nil, err
	}
	options, err := parseOptions(annotations[AnnotationOptions])
	if err != nil {
		return nil, err
	}
	for i := range requests {
		o := options[requests[i].Name]
		if err := o.Suit(requests[i].Type); err != nil {
			return nil, Errorf(CodeInvalidAnnotation, "annotation %s: %q: %w", AnnotationOptions, requests[i].Name, err)
		}
		requests[i].Options = o
		delete(options, requests[i].Name)
	}
	for _, name := range sortedKeys(options) {
		return nil, Errorf(CodeInvalidAnnotation, "annotation %s: %.80q is no interface of %s", AnnotationOptions, name, AnnotationCustom)
	}
	return requests, nil
}

func parseCustom(text, main string) ([]InterfaceRequest, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	if len(text) > maxAnnotation {
		return nil, Errorf(CodeInvalidAnnotation, "annotation %s: %d bytes, at most %d are read", AnnotationCustom, len(text), maxAnnotation)
	}
	items := strings.Split(text, ",")
	if len(items) > MaxCustomInterfaces {
		return nil, Errorf(CodeInvalidAnnotation, "annotation %s: %d interfaces, at most %d are possible", AnnotationCustom, len(items), MaxCustomInterfaces)
	}
	taken := []string{main}
	var requests []InterfaceRequest
	for _, item := range items {
		r, why := parseItem(item)
		if why == "" && slices.Contains(taken, r.Name) {
			why = "the name is taken by another interface of the pod"
		}
		if why != "" {
			return nil, Errorf(CodeInvalidAnnotation, "annotation %s: item %.300q: %s", AnnotationCustom, strings.TrimSpace(item), why)
		}
		taken = append(taken, r.Name)
		requests = append(requests, r)
	}
	return requests, nil
}

// parseItem reads name/type[/network]; why says what is wrong, "" is nothing.
func parseItem(item string) (r InterfaceRequest, why string) {
	parts := strings.Split(strings.TrimSpace(item), "/")
	if len(parts) < 2 || len(parts) > 3 {
		return r, "expected name/type or name/type/network"
	}
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	r = InterfaceRequest{Name: parts[0], Type: parts[1], Network: DefaultNetwork}
	if len(parts) == 3 {
		r.Network = parts[2]
	}
	switch {
	case !IsLinkName(r.Name):
		return r, "the name must be one of a Linux interface: 1 to 15 bytes, no slash, colon or blank, not lo, all or default"
	case !IsInterfaceType(r.Type):
		return r, "the type must be tap, veth or memif"
	case !IsLabel(r.Network):
		return r, "the network must be default, stub or the name of a custom network"
	}
	return r, ""
}

// IsInterfaceType reports whether s is a type of interface that a pod can ask for.
func IsInterfaceType(s string) bool {
	return slices.Contains([]string{TypeTap, TypeVeth, TypeMemif}, s)
}

// IsReservedLinkName reports whether s is a well-formed name that no link of a pod can have: each namespace has a lo, and the
// kernel refuses all and default, directories of /proc/sys/net/ipv4/conf (sysctl_dev_name_is_allowed in net/ipv4/devinet.c).
func IsReservedLinkName(s string) bool { return s == "lo" || s == "all" || s == "default" }

// IsLinkName reports whether Linux takes s as the name of a link (dev_valid_name in net/core/dev.c), and it is not reserved.
func IsLinkName(s string) bool {
	if len(s) == 0 || len(s) > 15 || s == "." || s == ".." || IsReservedLinkName(s) {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || r == '/' || r == ':' || r == '%' || r == '*'
	})
}

// IsLabel reports whether s is a DNS label (RFC 1123), as names of Kubernetes' objects are.
func IsLabel(s string) bool {
	if len(s) == 0 || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	})
}
