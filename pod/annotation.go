package pod

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
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

// parseOptions reads the annotation of options: JSON, interface name -> options. Unknown keys, and what occurs twice, are
// refused by name.
func parseOptions(text string) (map[string]InterfaceOptions, error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > maxAnnotation {
		return nil, Errorf(CodeInvalidAnnotation, "annotation %s: %d bytes, at most %d are read", AnnotationOptions, len(text), maxAnnotation)
	}
	items, err := members([]byte(text))
	if err != nil {
		return nil, Errorf(CodeInvalidAnnotation, "annotation %s: expected JSON, interface name -> options: %w", AnnotationOptions, err)
	}
	options := map[string]InterfaceOptions{}
	for _, item := range items {
		o, err := parseOption(item.value)
		if err != nil {
			return nil, Errorf(CodeInvalidAnnotation, "annotation %s: %.80q: %w", AnnotationOptions, item.name, err)
		}
		options[item.name] = o
	}
	return options, nil
}

func parseOption(raw json.RawMessage) (o InterfaceOptions, err error) {
	keys, err := members(raw)
	if err != nil {
		return o, err
	}
	for _, key := range keys {
		if err := o.set(key.name, key.value); err != nil {
			return o, fmt.Errorf("%.80s: %w", key.name, err)
		}
	}
	return o, nil
}

func (o *InterfaceOptions) set(key string, raw json.RawMessage) error {
	switch key {
	case "mtu":
		return o.setMTU(raw)
	case "mac":
		return o.setMAC(raw)
	case "ips":
		return o.setIPs(raw)
	case "rxQueues":
		return span{1, MostQueues, "queues"}.read(&o.RxQueues, raw)
	case "txQueues":
		return span{1, MostQueues, "queues"}.read(&o.TxQueues, raw)
	}
	if set, known := memifOptions[key]; known {
		return set(&o.Memif, raw)
	}
	return errors.New("unknown option; known are ips, mac, mtu, rxQueues and txQueues, and for a memif " + strings.Join(sortedKeys(memifOptions), ", "))
}

func (o *InterfaceOptions) setMTU(raw json.RawMessage) error {
	if err := json.Unmarshal(raw, &o.MTU); err != nil || o.MTU < 576 || o.MTU > 9000 {
		return fmt.Errorf("expected 576 to 9000 bytes, not %.300q", raw)
	}
	return nil
}

func (o *InterfaceOptions) setMAC(raw json.RawMessage) error {
	if err := json.Unmarshal(raw, &o.MAC); err != nil {
		return fmt.Errorf("expected a MAC, not %.300q", raw)
	}
	mac, err := net.ParseMAC(o.MAC)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 || bytes.Equal(mac, make([]byte, 6)) {
		return fmt.Errorf("expected a unicast MAC of 6 octets, not %.300q", raw)
	}
	o.MAC = mac.String()
	return nil
}

func (o *InterfaceOptions) setIPs(raw json.RawMessage) (err error) {
	o.IPs, err = parsePrefixes(raw)
	return err
}

// parsePrefixes reads a JSON list of addresses, at most one a family. One without a prefix length has the longest.
func parsePrefixes(raw []byte) ([]netip.Prefix, error) {
	var texts []string
	if err := json.Unmarshal(raw, &texts); err != nil {
		return nil, fmt.Errorf("expected a JSON list of addresses, not %.300q", raw)
	}
	var prefixes []netip.Prefix
	for _, text := range texts {
		p, err := ParseAddress(text)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(prefixes, func(o netip.Prefix) bool { return o.Addr().Is4() == p.Addr().Is4() }) {
			return nil, fmt.Errorf("%s is the second address of its family, one each is possible", p.Addr())
		}
		prefixes = append(prefixes, p)
	}
	return prefixes, nil
}

// ParseAddress reads an address, with or without a prefix length. Without one it has the longest.
func ParseAddress(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		var a netip.Addr
		a, err = netip.ParseAddr(text)
		p = netip.PrefixFrom(a.WithZone(""), a.BitLen())
		if a.Zone() != "" {
			err = errors.New("it has a zone")
		}
	}
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%.300q is not an IPv4 or IPv6 address", text)
	}
	return p, nil
}

type member struct {
	name  string
	value json.RawMessage
}

// members reads a JSON object in the order of its text and refuses a name that is there twice: encoding/json would take
// the last one in silence.
func members(raw []byte) ([]member, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("expected a JSON object")
	}
	var all []member
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: fmt.Sprint(t)}
		if err := d.Decode(&m.value); err != nil {
			return nil, fmt.Errorf("%.80q: %w", m.name, err)
		}
		if slices.ContainsFunc(all, func(o member) bool { return o.name == m.name }) {
			return nil, fmt.Errorf("%.80q is there twice", m.name)
		}
		all = append(all, m)
	}
	if _, err := d.Token(); err != nil {
		return nil, errors.New("the JSON object does not end")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON object")
	}
	return all, nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// PoolsAsked reads which pools of addresses a pod's annotations ask for. Its errors have code 103.
func PoolsAsked(annotations map[string]string) ([]string, error) {
	text, err := list(annotations, AnnotationPools)
	if text == "" || err != nil {
		return nil, err
	}
	var names []string
	if err := json.Unmarshal([]byte(text), &names); err != nil || slices.Contains(names, "") {
		return nil, Errorf(CodeInvalidAnnotation, "annotation %s: expected a JSON list of names of pools, not %.300q", AnnotationPools, text)
	}
	return names, nil
}

// AddressesAsked reads which addresses a pod's annotations ask for, at most one a family. Its errors have code 103.
func AddressesAsked(annotations map[string]string) ([]netip.Addr, error) {
	text, err := list(annotations, AnnotationIPs)
	if text == "" || err != nil {
		return nil, err
	}
	prefixes, err := parsePrefixes([]byte(text))
	if err != nil {
		return nil, Errorf(CodeInvalidAnnotation, "annotation %s: %w", AnnotationIPs, err)
	}
	var addresses []netip.Addr
	for _, p := range prefixes {
		if !p.IsSingleIP() {
			return nil, Errorf(CodeInvalidAnnotation, "annotation %s: %q is not an IPv4 or IPv6 address", AnnotationIPs, p)
		}
		addresses = append(addresses, p.Addr())
	}
	return addresses, nil
}

func list(annotations map[string]string, name string) (string, error) {
	text := strings.TrimSpace(annotations[name])
	if len(text) > maxAnnotation {
		return "", Errorf(CodeInvalidAnnotation, "annotation %s: %d bytes, at most %d are read", name, len(text), maxAnnotation)
	}
	return text, nil
}

// AnnotationFaults are what is wrong with a pod's annotations, in the words in which the pod's ADD says the first of them,
// and annotations that look like ours and are not.
func AnnotationFaults(annotations map[string]string, namespace, main string) []error {
	requests, extra := InterfaceRequests(annotations, main)
	_, pools := PoolsAsked(annotations)
	_, addresses := AddressesAsked(annotations)
	selected, selections := Selections(annotations, namespace)
	names := []string{main}
	for _, r := range requests {
		names = append(names, r.Name)
	}
	for _, s := range selected {
		names = append(names, s.Interface)
	}
	faults := []error{extra, pools, addresses, selections, endpointFault(annotations, names)}
	faults = append(faults, UnknownAnnotations(annotations)...)
	return slices.DeleteFunc(faults, func(err error) bool { return err == nil })
}

// UnknownAnnotations returns an error for each annotation contivpp.io/... that Weft does not know. They do not keep a pod from being added.
func UnknownAnnotations(annotations map[string]string) (faults []error) {
	for _, name := range sortedKeys(annotations) {
		switch {
		case !strings.HasPrefix(name, AnnotationPrefix) || slices.Contains(known, name):
		case strings.HasPrefix(name, AnnotationCustom+"-"): // Contiv-VPP had custom-if-2 and so on
			faults = append(faults, Errorf(CodeInvalidAnnotation, "unknown annotation %s: list all interfaces in %s, separated by commas", name, AnnotationCustom))
		default:
			faults = append(faults, Errorf(CodeInvalidAnnotation, "unknown annotation %s; known are %s", name, strings.Join(known, ", ")))
		}
	}
	return faults
}

// UnservedLimits returns an error for each annotation by which a pod asks for a limit of its bandwidth. They do not keep a pod from being
// added.
func UnservedLimits(annotations map[string]string) (faults []error) {
	for _, name := range bandwidthAnnotations {
		if annotations[name] != "" {
			faults = append(faults, Errorf(CodeInvalidAnnotation, "annotation %s: Weft limits no bandwidth, so the pod runs without this limit", name))
		}
	}
	return faults
}

// endpointFault is that a pod serves by an interface that is none of those it has.
func endpointFault(annotations map[string]string, has []string) error {
	name := annotations[AnnotationEndpoint]
	if name == "" || slices.Contains(has, name) {
		return nil
	}
	return Errorf(CodeInvalidAnnotation, "annotation %s: %q is no interface of %s, and none of %s", AnnotationEndpoint, name, AnnotationCustom, AnnotationNetworks)
}
