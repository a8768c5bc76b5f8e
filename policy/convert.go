package policy

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	adminv1 "sigs.k8s.io/network-policy-api/apis/v1alpha1"
)

// AnnotationFor lists the networks that a MultiNetworkPolicy is about: names of NetworkAttachmentDefinitions ("name" is in the policy's
// namespace) and of Weft's networks, separated by commas.
const AnnotationFor = "k8s.v1.cni.cncf.io/policy-for"

// OfNetworkPolicy converts a NetworkPolicy.
func OfNetworkPolicy(o *networkingv1.NetworkPolicy) (Policy, error) {
	return ofSpec(Ref{Network, o.Namespace, o.Name}, &o.Spec)
}

// OfMultiNetworkPolicy converts a MultiNetworkPolicy, whose spec has the fields of a NetworkPolicy's. Without a network it is about none.
func OfMultiNetworkPolicy(o metav1.Object, spec *networkingv1.NetworkPolicySpec) (Policy, error) {
	p, err := ofSpec(Ref{Multi, o.GetNamespace(), o.GetName()}, spec)
	p.Networks = networksOf(o.GetAnnotations()[AnnotationFor], o.GetNamespace())
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

func ofSpec(id Ref, spec *networkingv1.NetworkPolicySpec) (Policy, error) {
	p := Policy{Ref: id}
	pods, err := metav1.LabelSelectorAsSelector(&spec.PodSelector)
	if err != nil {
		return p, fmt.Errorf("%s: podSelector: %w", id, err)
	}
	p.Subject = newSelector(id.Namespace, nil, pods)
	p.Isolates = isolated(spec)
	for n, r := range spec.Ingress {
		if err := p.add(Ingress, n, r.From, r.Ports); err != nil {
			return p, err
		}
	}
	for n, r := range spec.Egress {
		if err := p.add(Egress, n, r.To, r.Ports); err != nil {
			return p, err
		}
	}
	return p, nil
}

// isolated returns the directions of a policy. Without policyTypes these are ingress, and egress if the policy has egress rules.
func isolated(spec *networkingv1.NetworkPolicySpec) [2]bool {
	if len(spec.PolicyTypes) == 0 {
		return [2]bool{true, len(spec.Egress) > 0}
	}
	return [2]bool{
		slices.Contains(spec.PolicyTypes, networkingv1.PolicyTypeIngress), slices.Contains(spec.PolicyTypes, networkingv1.PolicyTypeEgress),
	}
}

// add converts the rule of a number. The rules of a direction that is not isolated have no effect.
func (p *Policy) add(d Direction, n int, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) error {
	r := Clause{Name: fmt.Sprintf("%s[%d]", d, n), Any: len(peers) == 0, AnyPort: len(ports) == 0}
	var errs []error
	for _, o := range peers {
		peer, err := ofPeer(p.Namespace, o)
		errs = append(errs, err)
		r.Peers = append(r.Peers, peer)
	}
	for _, o := range ports {
		port, err := ofPort(o)
		errs = append(errs, err)
		r.Ports = append(r.Ports, port)
	}
	r.namePeers(d)
	p.Rules[d] = append(p.Rules[d], r)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: %s: %w", p, r.Name, err)
	}
	return nil
}

// namePeers makes all pods peers for the named ports of an egress rule to any address: only pods have named ports.
func (r *Clause) namePeers(d Direction) {
	if d == Egress && r.Any && slices.ContainsFunc(r.Ports, func(p Port) bool { return p.Name != "" }) {
		all := newSelector("", labels.Everything(), labels.Everything())
		r.Peers = []Peer{{Pods: &all}}
	}
}

func ofPeer(namespace string, o networkingv1.NetworkPolicyPeer) (Peer, error) {
	switch {
	case o.IPBlock != nil:
		prefixes, err := ofBlock(o.IPBlock)
		return Peer{Prefixes: prefixes}, err
	case o.PodSelector == nil && o.NamespaceSelector == nil:
		return Peer{}, errors.New("a peer without selector and ipBlock")
	}
	pods, namespaces := labels.Everything(), labels.Selector(nil)
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
	cidr, err := parsePrefix(b.CIDR)
	if err != nil {
		return nil, fmt.Errorf("ipBlock: %w", err)
	}
	var except []netip.Prefix
	for _, text := range b.Except {
		p, err := parsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("ipBlock: except: %w", err)
		}
		except = append(except, p)
	}
	return subtract(cidr, except), nil
}

func parsePrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return p, err
	case p.Addr().Is4In6():
		return p, fmt.Errorf("%q is an IPv4-mapped prefix", text)
	}
	return p.Masked(), nil
}

func ofPort(o networkingv1.NetworkPolicyPort) (Port, error) {
	var name string
	if o.Protocol != nil {
		name = string(*o.Protocol)
	}
	protocol, err := ParseProtocol(name)
	p := Port{Protocol: protocol, Ports: allPorts}
	switch {
	case err != nil || o.Port == nil:
		return p, err
	case o.Port.Type == intstr.String:
		p.Name, p.Ports = o.Port.StrVal, Range{}
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
		return Range{}, fmt.Errorf("ports %d to %d are no range within 1 to 65535", first, last)
	}
	return Range{uint16(first), uint16(last)}, nil
}

// OfAdminNetworkPolicy converts an AdminNetworkPolicy.
func OfAdminNetworkPolicy(o *adminv1.AdminNetworkPolicy) (Policy, error) {
	p := Policy{Ref: Ref{Kind: Admin, Name: o.Name}, Priority: int(o.Spec.Priority)}
	err := p.setSubject(o.Spec.Subject)
	for n, r := range o.Spec.Ingress {
		err = errors.Join(err, p.addAdmin(Ingress, n, adminRule{r.Name, string(r.Action), ingressPeers(r.From), r.Ports}))
	}
	for n, r := range o.Spec.Egress {
		err = errors.Join(err, p.addAdmin(Egress, n, adminRule{r.Name, string(r.Action), r.To, r.Ports}))
	}
	return p, err
}

// OfBaselineAdminNetworkPolicy converts a BaselineAdminNetworkPolicy.
func OfBaselineAdminNetworkPolicy(o *adminv1.BaselineAdminNetworkPolicy) (Policy, error) {
	p := Policy{Ref: Ref{Kind: Baseline, Name: o.Name}}
	err := p.setSubject(o.Spec.Subject)
	for n, r := range o.Spec.Ingress {
		err = errors.Join(err, p.addAdmin(Ingress, n, adminRule{r.Name, string(r.Action), ingressPeers(r.From), r.Ports}))
	}
	for n, r := range o.Spec.Egress {
		var peers []adminv1.AdminNetworkPolicyEgressPeer
		for _, o := range r.To {
			peers = append(peers, adminv1.AdminNetworkPolicyEgressPeer{Namespaces: o.Namespaces, Pods: o.Pods, Nodes: o.Nodes, Networks: o.Networks})
		}
		err = errors.Join(err, p.addAdmin(Egress, n, adminRule{r.Name, string(r.Action), peers, r.Ports}))
	}
	return p, err
}

func ingressPeers(list []adminv1.AdminNetworkPolicyIngressPeer) []adminv1.AdminNetworkPolicyEgressPeer {
	var peers []adminv1.AdminNetworkPolicyEgressPeer
	for _, o := range list {
		peers = append(peers, adminv1.AdminNetworkPolicyEgressPeer{Namespaces: o.Namespaces, Pods: o.Pods})
	}
	return peers
}

func (p *Policy) setSubject(o adminv1.AdminNetworkPolicySubject) error {
	s, err := ofNamespaced(o.Namespaces, o.Pods)
	if err != nil {
		return fmt.Errorf("%s: subject: %w", p, err)
	}
	p.Subject = s
	return nil
}

func ofNamespaced(namespaces *metav1.LabelSelector, pods *adminv1.NamespacedPod) (Selector, error) {
	podSelector := &metav1.LabelSelector{}
	switch {
	case (namespaces == nil) == (pods == nil):
		return Selector{}, errors.New("it must select either namespaces or pods")
	case pods != nil:
		namespaces, podSelector = &pods.NamespaceSelector, &pods.PodSelector
	}
	ns, err := metav1.LabelSelectorAsSelector(namespaces)
	if err != nil {
		return Selector{}, err
	}
	ps, err := metav1.LabelSelectorAsSelector(podSelector)
	return newSelector("", ns, ps), err
}

var actions = map[string]Action{
	string(adminv1.AdminNetworkPolicyRuleActionAllow): Allow, string(adminv1.AdminNetworkPolicyRuleActionDeny): Deny,
	string(adminv1.AdminNetworkPolicyRuleActionPass): Pass,
}

// adminRule is what the four types of rules of AdminNetworkPolicies and BaselineAdminNetworkPolicies have in common.
type adminRule struct {
	name, action string
	peers        []adminv1.AdminNetworkPolicyEgressPeer
	ports        *[]adminv1.AdminNetworkPolicyPort
}

// addAdmin adds the n-th rule of a direction.
func (p *Policy) addAdmin(d Direction, n int, o adminRule) error {
	r := Clause{Name: fmt.Sprintf("%s[%d]", d, n), AnyPort: o.ports == nil || len(*o.ports) == 0}
	if o.name != "" {
		r.Name += " " + o.name
	}
	var known bool
	var errs []error
	if r.Action, known = actions[o.action]; !known || r.Action == Pass && p.Kind != Admin {
		errs = append(errs, fmt.Errorf("unknown action %q", o.action))
	}
	for _, x := range o.peers {
		peer, err := ofAdminPeer(x)
		errs = append(errs, err)
		r.Peers = append(r.Peers, peer)
	}
	if o.ports != nil {
		for _, x := range *o.ports {
			port, err := ofAdminPort(x)
			errs = append(errs, err)
			r.Ports = append(r.Ports, port)
		}
	}
	p.Rules[d] = append(p.Rules[d], r)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: %s: %w", p, r.Name, err)
	}
	return nil
}

func ofAdminPeer(o adminv1.AdminNetworkPolicyEgressPeer) (Peer, error) {
	switch {
	case o.Nodes != nil:
		nodes, err := metav1.LabelSelectorAsSelector(o.Nodes)
		return Peer{Nodes: nodes}, err
	case len(o.Networks) > 0:
		var peer Peer
		for _, cidr := range o.Networks {
			p, err := parsePrefix(string(cidr))
			if err != nil {
				return peer, fmt.Errorf("networks: %w", err)
			}
			peer.Prefixes = append(peer.Prefixes, p)
		}
		return peer, nil
	case len(o.DomainNames) > 0:
		return Peer{}, errors.New("domainNames are not supported")
	}
	s, err := ofNamespaced(o.Namespaces, o.Pods)
	return Peer{Pods: &s}, err
}

func ofAdminPort(o adminv1.AdminNetworkPolicyPort) (p Port, err error) {
	switch {
	case o.PortNumber != nil:
		if p.Protocol, err = ParseProtocol(string(o.PortNumber.Protocol)); err == nil {
			p.Ports, err = ofRange(o.PortNumber.Port, o.PortNumber.Port)
		}
	case o.PortRange != nil:
		if p.Protocol, err = ParseProtocol(string(cmp.Or(o.PortRange.Protocol, corev1.ProtocolTCP))); err == nil {
			p.Ports, err = ofRange(o.PortRange.Start, o.PortRange.End)
		}
	case o.NamedPort != nil && *o.NamedPort != "":
		p.Name = *o.NamedPort
	default:
		err = errors.New("a port without number, range and name")
	}
	return p, err
}
