package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// AnnotationFor lists the networks that a MultiNetworkPolicy is about: names of NetworkAttachmentDefinitions ("name" is
// in the policy's namespace) and of Weft's networks, separated by commas.
const AnnotationFor = "k8s.v1.cni.cncf.io/policy-for"

// OfNetworkPolicy converts a NetworkPolicy. The policy is valid with an error, too: see [InvalidError]. The rules of
// one that is oversize are not read.
func OfNetworkPolicy(o *networkingv1.NetworkPolicy) (Policy, error) {
	id := Ref{Network, o.Namespace, o.Name}
	size := MeasureNetworkPolicy(&o.Spec, "")
	if over := size.Oversize(); !over.IsZero() {
		kept := WithoutRules(&o.Spec)
		p, err := ofSpec(id, &kept)
		p.Oversize = over
		return p, err
	}
	return ofSpec(id, &o.Spec)
}

// OfMultiNetworkPolicy converts a MultiNetworkPolicy. Its spec has the fields of a NetworkPolicy's spec. A policy
// without a network applies to no interface. The policy is valid with an error, too: see [InvalidError]. The rules of
// an oversize policy are not read.
func OfMultiNetworkPolicy(o metav1.Object, spec *networkingv1.NetworkPolicySpec) (Policy, error) {
	id := Ref{Multi, o.GetNamespace(), o.GetName()}
	networks := o.GetAnnotations()[AnnotationFor]
	size := MeasureNetworkPolicy(spec, networks)
	over := size.Oversize()
	isOfAll := false
	if !over.IsZero() {
		kept := WithoutRules(spec)
		spec = &kept
		var isKept bool
		networks, isKept = KeptNetworks(networks)
		isOfAll = !isKept
	}
	p, err := ofSpec(id, spec)
	p.Oversize = over
	if p.AllNetworks = isOfAll; !isOfAll {
		p.Networks = networksOf(networks, id.Namespace)
	}
	return p, err
}

// networksOf parses the annotation AnnotationFor.
func networksOf(text, namespace string) []string {
	var list []string
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		switch {
		case item == "":
			continue
		case strings.Contains(item, "/"):
			list = append(list, item)
		default:
			list = append(list, item, namespace+"/"+item)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// ofSpec converts a spec. What its rules permit is permitted only to pods that the policy surely selects, in directions
// that it surely isolates: other policies may isolate the others.
func ofSpec(id Ref, spec *networkingv1.NetworkPolicySpec) (Policy, error) {
	p := Policy{Ref: id}
	var invalid faults
	pods, err := atLeast(&spec.PodSelector)
	invalid.add("podSelector", err)
	p.Subject = newSelector(id.Namespace, nil, pods)
	isSubjectKnown := err == nil
	is, err := directionsOf(spec)
	invalid.add("policyTypes", err)
	p.Isolates = is.isolated
	for n, r := range spec.Ingress {
		invalid.add(p.add(Ingress, n, r.From, r.Ports))
	}
	for n, r := range spec.Egress {
		invalid.add(p.add(Egress, n, r.To, r.Ports))
	}
	for d := range p.Rules {
		if !isSubjectKnown || !is.granted[d] {
			p.Rules[d] = nil
		}
	}
	return p, invalid.of(id)
}

// directions are the directions of a policy.
type directions struct {
	isolated [2]bool
	granted  [2]bool // the rules apply
}

// directionsOf returns the directions of a policy. Without policyTypes these are ingress, and egress if the policy has
// egress rules. An unknown type may stand for any direction.
func directionsOf(spec *networkingv1.NetworkPolicySpec) (directions, error) {
	if len(spec.PolicyTypes) == 0 {
		both := [2]bool{true, len(spec.Egress) > 0}
		return directions{both, both}, nil
	}
	var is directions
	var unknown []error
	for _, t := range spec.PolicyTypes {
		switch t {
		case networkingv1.PolicyTypeIngress:
			is.granted[Ingress] = true
		case networkingv1.PolicyTypeEgress:
			is.granted[Egress] = true
		default:
			unknown = append(unknown, fmt.Errorf("%q is neither Ingress nor Egress", t))
		}
	}
	is.isolated = is.granted
	if len(unknown) > 0 {
		is.isolated = [2]bool{true, true}
	}
	return is, errors.Join(unknown...)
}

// add converts the rule of a number, without its invalid peers and ports. It returns the rule's name and the
// invalid parts.
func (p *Policy) add(
	d Direction, n int, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort,
) (string, error) {
	r := Clause{Name: fmt.Sprintf("%s[%d]", d, n), Any: len(peers) == 0, AnyPort: len(ports) == 0}
	var errs []error
	for _, o := range peers {
		peer, err := ofPeer(p.Namespace, o)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		r.Peers = append(r.Peers, peer)
	}
	for _, o := range ports {
		port, err := ofPort(o)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		r.Ports = append(r.Ports, port)
	}
	r.namePeers(d)
	p.Rules[d] = append(p.Rules[d], r)
	return r.Name, errors.Join(errs...)
}

// namePeers makes all pods peers for the named ports of an egress rule to any address: only pods have named ports.
func (r *Clause) namePeers(d Direction) {
	if d == Egress && r.Any && slices.ContainsFunc(r.Ports, func(p Port) bool { return p.Name != "" }) {
		all := newSelector("", labels.Everything(), labels.Everything())
		r.Peers = []Peer{{Pods: &all}}
	}
}

func ofPeer(namespace string, o networkingv1.NetworkPolicyPeer) (Peer, error) {
	hasSelector := o.PodSelector != nil || o.NamespaceSelector != nil
	switch {
	case o.IPBlock != nil && hasSelector:
		return Peer{}, errors.New("a peer with an ipBlock and a selector")
	case o.IPBlock != nil:
		prefixes, err := ofBlock(o.IPBlock)
		return Peer{Prefixes: prefixes}, err
	case !hasSelector:
		return Peer{}, errors.New("a peer without selector and ipBlock")
	}
	pods := labels.Everything()
	namespaces := labels.Selector(nil)
	var errs [2]error
	if o.PodSelector != nil {
		pods, errs[0] = metav1.LabelSelectorAsSelector(o.PodSelector)
	}
	if o.NamespaceSelector != nil {
		namespace = ""
		namespaces, errs[1] = metav1.LabelSelectorAsSelector(o.NamespaceSelector)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return Peer{}, err
	}
	s := newSelector(namespace, namespaces, pods)
	return Peer{Pods: &s}, nil
}

func ofBlock(b *networkingv1.IPBlock) ([]netip.Prefix, error) {
	cidr, except, err := parseBlock(b)
	if err != nil {
		return nil, err
	}
	return subtract(cidr, except), nil
}

func ofPort(o networkingv1.NetworkPolicyPort) (Port, error) {
	var name string
	if o.Protocol != nil {
		name = string(*o.Protocol)
	}
	protocol, err := ParseProtocol(name)
	p := Port{Protocol: protocol, Ports: allPorts}
	isNumber := o.Port != nil && o.Port.Type == intstr.Int
	switch {
	case err != nil:
		return p, err
	case o.EndPort != nil && !isNumber:
		return p, errors.New("an endPort without the number of a port")
	case o.Port == nil:
		return p, nil
	case !isNumber:
		p.Name = o.Port.StrVal
		p.Ports = Range{}
		if p.Name == "" {
			return p, errors.New("a named port without name")
		}
		return p, nil
	}
	last := o.Port.IntVal
	if o.EndPort != nil {
		last = *o.EndPort
	}
	p.Ports, err = ofRange(o.Port.IntVal, last)
	return p, err
}

func ofRange(first, last int32) (Range, error) {
	if first < 1 || last < first || last > 65535 {
		return Range{}, fmt.Errorf("ports %d to %d are not a range within 1 to 65535", first, last)
	}
	return Range{uint16(first), uint16(last)}, nil
}
