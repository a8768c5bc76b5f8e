package pod

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weftnet/weft/internal/nearest"
	"github.com/weftnet/weft/internal/netaddr"
)

// Annotations of pods.
const (
	AnnotationPrefix  = "contivpp.io/"
	AnnotationCustom  = AnnotationPrefix + "custom-if"
	AnnotationOptions = AnnotationPrefix + "custom-if-options"
	AnnotationPools   = AnnotationPrefix + "ip-pools"
	AnnotationIPs     = AnnotationPrefix + "ip-addresses"

	// AnnotationEndpoint names the interface on which a pod serves those Services that request it.
	AnnotationEndpoint = AnnotationPrefix + "service-endpoint-if"
	// AnnotationMicroservice is stored and has no effect.
	AnnotationMicroservice = AnnotationPrefix + "microservice-label"
)

// KeepsAnnotation reports whether attachments store the annotation.
func KeepsAnnotation(name string) bool {
	return strings.HasPrefix(name, AnnotationPrefix) || name == AnnotationNetworks || IsLimit(name)
}

// knownAnnotations are the valid annotations with AnnotationPrefix.
var knownAnnotations = []string{
	AnnotationCustom, AnnotationOptions, AnnotationPools, AnnotationIPs, AnnotationEndpoint, AnnotationMicroservice,
}

// Interface types that a pod can request.
const (
	TypeTap   = "tap"
	TypeVeth  = "veth"
	TypeMemif = "memif"
)

// TypeIPAM is the type of an interface of another plugin that got only its addresses from Weft.
const TypeIPAM = "ipam"

// MaxCustomInterfaces is the maximum number of extra interfaces of a pod.
const MaxCustomInterfaces = 16

// maxAnnotation bounds the size of an annotation in bytes.
const maxAnnotation = 16 << 10

// InterfaceRequest is an extra interface that a pod requests.
type InterfaceRequest struct {
	Name    string // in the pod
	Type    string // tap, veth or memif; "": the type of main interfaces
	Network string // "default", "stub", or a custom network's name
	Options InterfaceOptions

	// Definition is the NetworkAttachmentDefinition that requests it, namespace/name; "": AnnotationCustom does, or a
	// claim.
	Definition string
	Claim      string // ResourceClaim that requests it, namespace/name; "": none
	Allocation string // id of the claim's allocation
}

// Source names what requests the interface, for errors.
func (r InterfaceRequest) Source() string {
	if r.Claim != "" {
		return "claim " + r.Claim
	}
	return "annotation " + r.Annotation()
}

// OptionsSource names what has the interface's options, for errors.
func (r InterfaceRequest) OptionsSource() string {
	if r.Claim != "" {
		return r.Source()
	}
	return "annotation " + AnnotationOptions
}

// Annotation returns the annotation that requests the interface, for errors.
func (r InterfaceRequest) Annotation() string {
	if r.Definition != "" {
		return AnnotationNetworks
	}
	return AnnotationCustom
}

// InterfaceOptions are the options of one interface. Weft chooses the value of each zero field.
type InterfaceOptions struct {
	MTU int // bytes
	AddressRequest

	RxQueues int // the pod receives from
	TxQueues int // the pod sends to

	Routes       []RouteRequest // precede those of the network
	DefaultRoute bool           // the default route of the pod leads through the interface
	Gateway      Gateway        // next hop of that default route; zero: the network's gateway
	IPForwarding bool           // the pod's kernel forwards packets from the interface
	DNS          bool           // the CNI result has the DNS of the network

	Moving Moving // addresses that others may have too

	RoutedPrefixes []netip.Prefix // that the network routes to the pod; masked

	Limits Limits

	VLANs netaddr.VLANs // of the network, by their tags

	Memif MemifOptions // of type memif only
}

// IsDefault reports whether the default route of the pod leads through the interface.
func (o InterfaceOptions) IsDefault() bool { return o.DefaultRoute || !o.Gateway.IsZero() }

// ValidateFor rejects options that an interface of the type cannot have; "" is the type of main interfaces.
func (o InterfaceOptions) ValidateFor(kind string) error {
	if err := cmp.Or(o.Moving.Validate(), checkCount(o.VLANs)); err != nil {
		return err
	}
	if err := validateRouted(o.RoutedPrefixes); err != nil {
		return err
	}
	leastMTU := cmp.Or(o.MTU, MinMTU(false)) // the MTU of the network is not known here
	if err := cmp.Or(o.Limits.validate(), o.Limits.Holds(leastMTU)); err != nil {
		return err
	}
	switch {
	case kind == TypeMemif && o.IPForwarding:
		return errors.New("ipForwarding: the kernel does not forward packets of a memif; its program does")
	case kind != TypeMemif && o.Memif != (MemifOptions{}):
		return fmt.Errorf("%s: only an interface of type memif has this option", o.Memif.first())
	case kind == TypeTap && o.RxQueues != 0 && o.TxQueues != 0 && o.RxQueues != o.TxQueues:
		return fmt.Errorf("rxQueues is %d and txQueues is %d: a tap has equal numbers of both, set one of them only",
			o.RxQueues, o.TxQueues)
	}
	if kind == TypeMemif {
		return o.Memif.Holds(leastMTU)
	}
	return nil
}

// AddressRequest is a request for certain addresses.
type AddressRequest struct {
	MAC netaddr.MAC    // of the pod's end; zero: any
	IPs []netip.Prefix // at most one of each family, a single address unless the request has a prefix length

	IPAMClaim     string // name of the claim that holds the addresses, in the namespace of the pod; "": none
	PersistentIPs bool   // a claim with the pod's name holds the addresses, see ReplicaClaim
}

// or returns the request with its zero fields from other.
func (a AddressRequest) or(other AddressRequest) AddressRequest {
	if len(a.IPs) == 0 {
		a.IPs = other.IPs
	}
	if a.MAC.IsZero() {
		a.MAC = other.MAC
	}
	if a.IPAMClaim == "" { // else the pod refers to a claim itself
		a.IPAMClaim = other.IPAMClaim
		a.PersistentIPs = other.PersistentIPs
	}
	return a
}

// InterfaceRequests parses the annotations with extra interfaces, in their order; main is the name of the main
// interface. Its errors have code 103 and name the annotation, the item, and what was expected.
func InterfaceRequests(annotations map[string]string, main string) ([]InterfaceRequest, error) {
	requests, problems := interfaceRequests(annotations, main)
	if len(problems) > 0 {
		return nil, problems[0].Err
	}
	return requests, nil
}

// interfaceRequests is InterfaceRequests with all errors. The requests include only valid items and options.
func interfaceRequests(annotations map[string]string, main string) ([]InterfaceRequest, []AnnotationProblem) {
	requests, problems := parseCustom(annotations, main)
	options, invalid := parseAllOptions(annotations)
	incomplete := len(problems) > 0
	problems = append(problems, invalid...)
	if incomplete {
		return requests, problems // the options of an invalid item would have further errors
	}
	for i := range requests {
		o := options[requests[i].Name]
		delete(options, requests[i].Name)
		if err := cmp.Or(o.ValidateFor(requests[i].Type), o.checkPersistent(requests[i].Name)); err != nil {
			problems = append(problems, problemOf(AnnotationOptions, "%q: %w", requests[i].Name, err))
			continue
		}
		requests[i].Options = o
	}
	if err := AtMostOneDNS(askingForDNS(requests)); err != nil {
		problems = append(problems, problemOf(AnnotationOptions, "%w", err))
	}
	for _, name := range sortedKeys(options) {
		problems = append(problems,
			problemOf(AnnotationOptions, "%.80q is not an interface of %s", name, AnnotationCustom))
	}
	return requests, problems
}

func askingForDNS(requests []InterfaceRequest) (names []string) {
	for _, r := range requests {
		if r.Options.DNS {
			names = append(names, r.Name)
		}
	}
	return names
}

// AnnotationProblem is an error of an annotation of a pod, with code 103.
type AnnotationProblem struct {
	Annotation string
	Err        error
}

func problemOf(annotation, format string, args ...any) AnnotationProblem {
	return AnnotationProblem{annotation, Errorf(CodeInvalidAnnotation, "annotation "+annotation+": "+format, args...)}
}

func parseCustom(
	annotations map[string]string, main string,
) (requests []InterfaceRequest, problems []AnnotationProblem) {
	text, err := annotationText(annotations, AnnotationCustom)
	switch {
	case err != nil:
		return nil, []AnnotationProblem{{AnnotationCustom, err}}
	case text == "":
		return nil, nil
	}
	items := strings.Split(text, ",")
	if len(items) > MaxCustomInterfaces {
		return nil, []AnnotationProblem{
			problemOf(AnnotationCustom, "%d interfaces, at most %d are possible", len(items), MaxCustomInterfaces),
		}
	}
	taken := []string{main}
	for _, item := range items {
		r, why := parseItem(item)
		if why == "" && slices.Contains(taken, r.Name) {
			why = "the name is taken by another interface of the pod"
		}
		if why != "" {
			problems = append(problems, problemOf(AnnotationCustom, "item %.300q: %s", strings.TrimSpace(item), why))
			continue
		}
		taken = append(taken, r.Name)
		requests = append(requests, r)
	}
	return requests, problems
}

// parseItem parses name/type[/network]. It returns why the item is invalid, or "".
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
		return r, invalidLinkName
	case !IsInterfaceType(r.Type):
		return r, "the type must be tap, veth or memif"
	case !IsLabel(r.Network):
		return r, invalidNetwork
	}
	return r, ""
}

// invalidNetwork is the error of a network that cannot be one.
const invalidNetwork = "the network must be default, stub or the name of a custom network"

// IsInterfaceType reports whether s is an interface type that a pod can request.
func IsInterfaceType(s string) bool {
	return slices.Contains([]string{TypeTap, TypeVeth, TypeMemif}, s)
}

// IsReservedLinkName reports whether s is a well-formed name that no link of a pod can have: each namespace has a lo,
// and the kernel rejects all and default, directories of /proc/sys/net/ipv4/conf (sysctl_dev_name_is_allowed in
// net/ipv4/devinet.c).
func IsReservedLinkName(s string) bool { return s == "lo" || s == "all" || s == "default" }

// invalidLinkName is the error of a name that IsLinkName rejects.
const invalidLinkName = "the name must be a Linux interface name: 1 to 15 bytes, no slash, colon or blank, not lo, all or default"

// IsLinkName reports whether s is a valid link name (dev_valid_name in net/core/dev.c) that is not reserved.
func IsLinkName(s string) bool {
	if len(s) == 0 || len(s) > 15 || s == "." || s == ".." || IsReservedLinkName(s) {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || r == '/' || r == ':' || r == '%' || r == '*'
	})
}

// IsLabel reports whether s is a DNS label (RFC 1123), like most names of Kubernetes objects.
func IsLabel(s string) bool {
	if len(s) == 0 || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	})
}

// parseAllOptions parses the annotation with options: JSON, interface name -> options. It rejects unknown and repeated
// keys.
func parseAllOptions(annotations map[string]string) (map[string]InterfaceOptions, []AnnotationProblem) {
	text, err := annotationText(annotations, AnnotationOptions)
	switch {
	case err != nil:
		return nil, []AnnotationProblem{{AnnotationOptions, err}}
	case annotations[AnnotationOptions] == "":
		return nil, nil
	}
	items, err := members([]byte(text))
	if err != nil {
		return nil, []AnnotationProblem{
			problemOf(AnnotationOptions, "expected JSON, interface name -> options: %w", err),
		}
	}
	var problems []AnnotationProblem
	options := map[string]InterfaceOptions{}
	for _, item := range items {
		o, errs := parseEachOption(item.value)
		for _, err := range errs {
			problems = append(problems, problemOf(AnnotationOptions, "%.80q: %w", item.name, err))
		}
		options[item.name] = o
	}
	return options, problems
}

// parseOptions parses the options of one interface.
func parseOptions(raw json.RawMessage) (InterfaceOptions, error) {
	o, errs := parseEachOption(raw)
	if len(errs) > 0 {
		return o, errs[0]
	}
	return o, nil
}

// parseEachOption is parseOptions with all errors.
func parseEachOption(raw json.RawMessage) (o InterfaceOptions, errs []error) {
	keys, err := members(raw)
	if err != nil {
		return o, []error{err}
	}
	for _, key := range keys {
		if err := o.set(key.name, key.value); err != nil {
			errs = append(errs, fmt.Errorf("%.80s: %w", key.name, err))
		}
	}
	return o, errs
}

// generalOptions are the options of interfaces of all types.
var generalOptions = []string{
	"allowedAddresses", "burst", "defaultRoute", "dns", "dscp", "gateway", "ipForwarding", "ipamClaim", "ips", "mac",
	"mtu", "persistentIPs", "rate", "routedPrefixes", "routes", "rxQueues", "txQueues", "virtualRouters", "vlans",
}

func (o *InterfaceOptions) set(key string, raw json.RawMessage) error {
	switch key {
	case "mtu":
		return interval{MinMTU(false), MaxMTU, "bytes"}.parse(&o.MTU, raw)
	case "mac":
		return o.setMAC(raw)
	case "ipamClaim":
		return o.setIPAMClaim(raw)
	case "persistentIPs":
		return parseBool(&o.PersistentIPs, raw)
	case "ips":
		return o.setIPs(raw)
	case "routes":
		var err error
		o.Routes, err = parseRoutes(raw)
		return err
	case "defaultRoute":
		return parseBool(&o.DefaultRoute, raw)
	case "dns":
		return parseBool(&o.DNS, raw)
	case "gateway":
		return o.setGateway(raw)
	case "ipForwarding":
		return parseBool(&o.IPForwarding, raw)
	case "allowedAddresses":
		return o.Moving.parseAllowed(raw)
	case "virtualRouters":
		return o.Moving.parseVirtualRouters(raw)
	case "routedPrefixes":
		var err error
		o.RoutedPrefixes, err = parseRouted(raw)
		return err
	case "rate":
		return o.Limits.parseRate(raw)
	case "burst":
		return o.Limits.parseBurst(raw)
	case "dscp":
		return o.Limits.parseDSCP(raw)
	case "vlans":
		return o.setVLANs(raw)
	case "rxQueues":
		return interval{1, MaxQueues, "queues"}.parse(&o.RxQueues, raw)
	case "txQueues":
		return interval{1, MaxQueues, "queues"}.parse(&o.TxQueues, raw)
	}
	if set, known := memifOptions[key]; known {
		return set(&o.Memif, raw)
	}
	memif := sortedKeys(memifOptions)
	return errors.New("unknown option; known are " + strings.Join(generalOptions, ", ") + ", and for a memif " +
		strings.Join(memif, ", ") +
		nearest.Hint(key, slices.Concat(generalOptions, memif)))
}

func parseBool(b *bool, raw json.RawMessage) error {
	if json.Unmarshal(raw, b) != nil {
		return fmt.Errorf("expected true or false, not %.300q", raw)
	}
	return nil
}

// setGateway sets the next hop of the default route, which the interface has then.
func (o *InterfaceOptions) setGateway(raw json.RawMessage) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return fmt.Errorf("expected an address, not %.300q", raw)
	}
	g, err := ParseGateway(text)
	switch {
	case err != nil:
		return err
	case len(g.Addresses) == 0:
		return fmt.Errorf("expected the address of a router, not %.80q", text)
	}
	o.Gateway = g
	return nil
}

func (a *AddressRequest) setMAC(raw json.RawMessage) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return fmt.Errorf("expected a MAC, not %.300q", raw)
	}
	mac, err := netaddr.ParseMAC(text)
	if err != nil || !mac.IsUnicast() {
		return fmt.Errorf("expected a unicast MAC of 6 octets, not %.300q", raw)
	}
	a.MAC = mac
	return nil
}

func (a *AddressRequest) setIPs(raw json.RawMessage) (err error) {
	a.IPs, err = parsePrefixes(raw)
	return err
}

// parsePrefixes parses a JSON list of addresses, at most one of each family.
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

// ParseAddress parses an address with or without a prefix length. The default is the length of a single address.
func ParseAddress(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		var a netip.Addr
		a, err = netip.ParseAddr(text)
		p = netaddr.Single(a.WithZone(""))
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

// members parses a JSON object in the order of its text. It rejects a repeated name; encoding/json would silently use
// the last one.
func members(raw []byte) ([]member, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("expected a JSON object")
	}
	var all []member
	seen := make(map[string]bool)
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: fmt.Sprint(t)}
		if err := d.Decode(&m.value); err != nil {
			return nil, fmt.Errorf("%.80q: %w", m.name, err)
		}
		if seen[m.name] {
			return nil, fmt.Errorf("%.80q occurs twice", m.name)
		}
		seen[m.name] = true
		all = append(all, m)
	}
	if _, err := d.Token(); err != nil {
		return nil, errors.New("the JSON object is incomplete")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("unexpected text after the JSON object")
	}
	return all, nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// ParsePools returns the pools that a pod's annotations request. Its errors have code 103.
func ParsePools(annotations map[string]string) ([]string, error) {
	text, err := annotationText(annotations, AnnotationPools)
	if text == "" || err != nil {
		return nil, err
	}
	var names []string
	if err := json.Unmarshal([]byte(text), &names); err != nil || slices.Contains(names, "") {
		return nil, Errorf(CodeInvalidAnnotation, "annotation %s: expected a JSON list of pool names, not %.300q",
			AnnotationPools, text)
	}
	if len(names) > MaxPools {
		return nil, Errorf(CodeInvalidAnnotation, "annotation %s: %d pools, at most %d are possible", AnnotationPools,
			len(names), MaxPools)
	}
	return names, nil
}

// ParseAddresses returns the addresses that a pod's annotations request, at most one of each family. Its errors have
// code 103.
func ParseAddresses(annotations map[string]string) ([]netip.Addr, error) {
	text, err := annotationText(annotations, AnnotationIPs)
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
			return nil, Errorf(CodeInvalidAnnotation, "annotation %s: %q is not an IPv4 or IPv6 address", AnnotationIPs,
				p)
		}
		addresses = append(addresses, p.Addr())
	}
	return addresses, nil
}

// annotationText returns the text of an annotation without surrounding white space. It rejects one that is too long.
func annotationText(annotations map[string]string, name string) (string, error) {
	text := strings.TrimSpace(annotations[name])
	if len(text) > maxAnnotation {
		return "", Errorf(CodeInvalidAnnotation, "annotation %s: %d bytes, at most %d are read", name, len(text),
			maxAnnotation)
	}
	return text, nil
}

// AnnotationProblems returns all errors of a pod's annotations: those that fail the pod's ADD, of which it returns the
// first; of AnnotationEndpoint; and of UnknownAnnotations.
func AnnotationProblems(annotations map[string]string, namespace, main string) []AnnotationProblem {
	requests, problems := interfaceRequests(annotations, main)
	_, pools := ParsePools(annotations)
	_, addresses := ParseAddresses(annotations)
	selected, selections := Selections(annotations, namespace)
	names := []string{main}
	for _, r := range requests {
		names = append(names, r.Name)
	}
	for _, s := range selected {
		names = append(names, s.Interface)
	}
	for _, p := range []AnnotationProblem{
		{AnnotationPools, pools}, {AnnotationIPs, addresses}, {AnnotationNetworks, selections}, {
			AnnotationEndpoint, validateEndpoint(annotations, names),
		},
	} {
		if p.Err != nil {
			problems = append(problems, p)
		}
	}
	for _, name := range sortedKeys(annotations) {
		if err := unknownAnnotation(name); err != nil {
			problems = append(problems, AnnotationProblem{name, err})
		}
	}
	return problems
}

// maxUnknown bounds the errors of a pod's unknown annotations. A pod has room for thousands of them, and the event loop
// looks for a similar known name of each.
const maxUnknown = 16

// UnknownAnnotations returns an error for each unknown annotation contivpp.io/..., for 16 of them at most. They do not
// fail the pod's ADD.
func UnknownAnnotations(annotations map[string]string) (errs []error) {
	for _, name := range sortedKeys(annotations) {
		if len(errs) == maxUnknown {
			break
		}
		if err := unknownAnnotation(name); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// unknownAnnotation returns an error if the annotation has AnnotationPrefix and is unknown.
func unknownAnnotation(name string) error {
	plain, ours := strings.CutPrefix(name, AnnotationPrefix)
	switch {
	case !ours || slices.Contains(knownAnnotations, name):
		return nil
	case isNumbered(name): // Contiv-VPP had custom-if-2 and so on
		return Errorf(CodeInvalidAnnotation, "unknown annotation %s: list all interfaces in %s, separated by commas",
			name, AnnotationCustom)
	}
	var known []string
	for _, k := range knownAnnotations {
		known = append(known, strings.TrimPrefix(k, AnnotationPrefix))
	}
	if best := nearest.Of(plain, known); best != "" {
		return Errorf(CodeInvalidAnnotation, "unknown annotation %s; did you mean %s?", name, AnnotationPrefix+best)
	}
	return Errorf(CodeInvalidAnnotation, "unknown annotation %s; known are %s", name,
		strings.Join(knownAnnotations, ", "))
}

// isNumbered reports whether a name is AnnotationCustom with a number.
func isNumbered(name string) bool {
	number, is := strings.CutPrefix(name, AnnotationCustom+"-")
	_, err := strconv.Atoi(number)
	return is && err == nil
}

// validateEndpoint rejects AnnotationEndpoint if it does not name an interface of the pod.
func validateEndpoint(annotations map[string]string, interfaces []string) error {
	name := annotations[AnnotationEndpoint]
	if name == "" || slices.Contains(interfaces, name) {
		return nil
	}
	return Errorf(CodeInvalidAnnotation, "annotation %s: %q is not an interface of %s or %s", AnnotationEndpoint, name,
		AnnotationCustom, AnnotationNetworks)
}
