package policy

import (
	"cmp"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	adminv1 "sigs.k8s.io/network-policy-api/apis/v1alpha1"
)

// world is a cluster as the API server has it. Its methods evaluate policies as the documentation of their API
// describes them, one packet at a time. They share no code with the engine.
type world struct {
	namespaces map[string]map[string]string
	nodes      map[string]map[string]string
	nodeAt     map[string][]netip.Prefix
	pods       []*machine
	clients    ClientMap
	policies   []*networkingv1.NetworkPolicy
	multi      []*networkingv1.NetworkPolicy // MultiNetworkPolicies have the same spec
	admin      []*adminv1.AdminNetworkPolicy
	baseline   *adminv1.BaselineAdminNetworkPolicy
}

// machine is a pod, or a pod in its node's network namespace.
type machine struct {
	Pod
	hostNetwork bool
}

// packet is the first packet of a connection between an interface of a pod and a remote address.
type packet struct {
	pod       *machine
	nic       *Interface
	direction Direction
	remote    netip.Addr
	protocol  uint8
	port      uint16
}

// permits reports whether all policies together permit a packet.
func (w *world) permits(k packet) bool {
	if k.pod.hostNetwork {
		return true
	}
	if k.direction == Ingress && slices.Contains(k.nic.Networks, DefaultNetwork) {
		k.remote = w.sender(k.remote)
	}
	if !k.nic.Main {
		return w.isolationPermits(k, w.multi)
	}
	switch w.adminDecides(k) {
	case "Allow":
		return true
	case "Deny":
		return false
	}
	if w.isIsolated(k, w.policies) {
		return w.isolationPermits(k, w.policies)
	}
	return w.baselinePermits(k)
}

// sender returns the pod's address of a client address, and any other address as it is.
func (w *world) sender(a netip.Addr) netip.Addr {
	for last := range 32 {
		for _, p := range []netip.Addr{
			netip.AddrFrom4([4]byte{10, 0, 0, byte(last)}), netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(last)}),
		} {
			if client, has := w.clients.Of(p); has && client == a {
				return p
			}
		}
	}
	return a
}

func (w *world) selecting(k packet, policies []*networkingv1.NetworkPolicy) []*networkingv1.NetworkPolicy {
	var list []*networkingv1.NetworkPolicy
	for _, p := range policies {
		types := p.Spec.PolicyTypes
		if len(types) == 0 {
			if types = []networkingv1.PolicyType{"Ingress"}; len(p.Spec.Egress) > 0 {
				types = append(types, "Egress")
			}
		}
		want := networkingv1.PolicyType("Ingress")
		if k.direction == Egress {
			want = "Egress"
		}
		if p.Namespace == k.pod.Namespace && labelled(&p.Spec.PodSelector, k.pod.Labels) &&
			slices.Contains(types, want) && isAbout(p, k.nic) {
			list = append(list, p)
		}
	}
	return list
}

// isAbout reports whether a policy is about an interface: a NetworkPolicy is about the main one.
func isAbout(p *networkingv1.NetworkPolicy, i *Interface) bool {
	text, isMulti := p.Annotations[AnnotationFor]
	if !isMulti {
		return i.Main
	}
	for _, n := range i.Networks {
		if !i.Main && (n == text || n == p.Namespace+"/"+text) {
			return true
		}
	}
	return false
}

func (w *world) isIsolated(k packet, policies []*networkingv1.NetworkPolicy) bool {
	return len(w.selecting(k, policies)) > 0
}

func (w *world) isolationPermits(k packet, policies []*networkingv1.NetworkPolicy) bool {
	if !w.isIsolated(k, policies) {
		return true
	}
	for _, p := range w.selecting(k, policies) {
		if k.direction == Ingress {
			for _, r := range p.Spec.Ingress {
				if w.ruleMatches(k, p, r.From, r.Ports) {
					return true
				}
			}
			continue
		}
		for _, r := range p.Spec.Egress {
			if w.ruleMatches(k, p, r.To, r.Ports) {
				return true
			}
		}
	}
	return false
}

func (w *world) ruleMatches(
	k packet, p *networkingv1.NetworkPolicy, peers []networkingv1.NetworkPolicyPeer,
	ports []networkingv1.NetworkPolicyPort,
) bool {
	// Each way by which the remote address can be a peer: as an address, or as that of a pod.
	for _, q := range append([]*machine{nil}, w.podsAt(k, p)...) {
		if w.isPeer(k, p, peers, q) &&
			(len(ports) == 0 ||
				slices.ContainsFunc(ports, func(o networkingv1.NetworkPolicyPort) bool {
					return portMatches(k, o, q)
				})) {
			return true
		}
	}
	return false
}

// podsAt lists the pods with the remote address on the network of the packet.
func (w *world) podsAt(k packet, p *networkingv1.NetworkPolicy) []*machine {
	var list []*machine
	for _, q := range w.pods {
		for n := range q.Interfaces {
			i := &q.Interfaces[n]
			reachable := k.nic.Main && i.Main ||
				!k.nic.Main && !i.Main &&
					slices.ContainsFunc(i.Networks, func(n string) bool { return slices.Contains(k.nic.Networks, n) })
			if !q.hostNetwork && reachable && (p == nil || isAbout(p, i)) && slices.Contains(i.Addresses, k.remote) {
				list = append(list, q)
			}
		}
	}
	return list
}

// isPeer reports whether the remote address is a peer: by itself if q is nil, else as that of the pod.
func (w *world) isPeer(
	k packet, p *networkingv1.NetworkPolicy, peers []networkingv1.NetworkPolicyPeer, q *machine,
) bool {
	if len(peers) == 0 {
		return true
	}
	for _, peer := range peers {
		if peer.IPBlock != nil {
			outside := func(text string) bool { return !netip.MustParsePrefix(text).Contains(k.remote) }
			if q == nil && !outside(peer.IPBlock.CIDR) &&
				!slices.ContainsFunc(peer.IPBlock.Except, func(t string) bool { return !outside(t) }) {
				return true
			}
			continue
		}
		if q == nil {
			continue
		}
		inNamespace := q.Namespace == p.Namespace
		if peer.NamespaceSelector != nil {
			inNamespace = w.inNamespace(q, peer.NamespaceSelector, false)
		}
		if inNamespace && (peer.PodSelector == nil || labelled(peer.PodSelector, q.Labels)) {
			return true
		}
	}
	return false
}

func portMatches(k packet, o networkingv1.NetworkPolicyPort, q *machine) bool {
	protocol := "TCP"
	if o.Protocol != nil {
		protocol = string(*o.Protocol)
	}
	if numbers[protocol] != k.protocol {
		return false
	}
	switch {
	case o.Port == nil:
		return true
	case o.Port.Type == intstr.String:
		return hasNamedPort(k, o.Port.StrVal, q)
	case o.EndPort != nil:
		return int32(k.port) >= o.Port.IntVal && int32(k.port) <= *o.EndPort
	}
	return int32(k.port) == o.Port.IntVal
}

var numbers = map[string]uint8{"TCP": 6, "UDP": 17, "SCTP": 132}

// hasNamedPort reports whether the destination of the packet has a port of that name.
func hasNamedPort(k packet, name string, q *machine) bool {
	destination := k.pod
	if k.direction == Egress {
		destination = q
	}
	return destination != nil && slices.Contains(destination.Ports, NamedPort{name, k.protocol, k.port})
}

func labelled(s *metav1.LabelSelector, set map[string]string) bool {
	for key, want := range s.MatchLabels {
		if have, has := set[key]; !has || have != want {
			return false
		}
	}
	for _, e := range s.MatchExpressions {
		have, has := set[e.Key]
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			if !has || !slices.Contains(e.Values, have) {
				return false
			}
		case metav1.LabelSelectorOpNotIn:
			if has && slices.Contains(e.Values, have) {
				return false
			}
		case metav1.LabelSelectorOpExists:
			if !has {
				return false
			}
		case metav1.LabelSelectorOpDoesNotExist:
			if has {
				return false
			}
		}
	}
	return true
}

// adminDecides returns the action of the first rule that matches; "Pass" and "" leave the decision to other policies.
func (w *world) adminDecides(k packet) string {
	policies := slices.SortedFunc(slices.Values(w.admin), func(a, b *adminv1.AdminNetworkPolicy) int {
		return cmp.Or(cmp.Compare(a.Spec.Priority, b.Spec.Priority), cmp.Compare(a.Name, b.Name))
	})
	for _, p := range policies {
		if !w.isAdminSubject(k, p.Spec.Subject) {
			continue
		}
		if k.direction == Ingress {
			for _, r := range p.Spec.Ingress {
				if action := w.adminAction(k, string(r.Action), ingressPeers(r.From), r.Ports); action != "" {
					return action
				}
			}
			continue
		}
		for _, r := range p.Spec.Egress {
			if action := w.adminAction(k, string(r.Action), r.To, r.Ports); action != "" {
				return action
			}
		}
	}
	return ""
}

func (w *world) baselinePermits(k packet) bool {
	if w.baseline == nil || !w.isAdminSubject(k, w.baseline.Spec.Subject) {
		return true
	}
	if k.direction == Ingress {
		for _, r := range w.baseline.Spec.Ingress {
			if action := w.adminAction(k, string(r.Action), ingressPeers(r.From), r.Ports); action != "" {
				return action == "Allow"
			}
		}
		return true
	}
	for _, r := range w.baseline.Spec.Egress {
		var peers []adminv1.AdminNetworkPolicyEgressPeer
		for _, o := range r.To {
			peers = append(peers, adminv1.AdminNetworkPolicyEgressPeer{
				Namespaces: o.Namespaces,
				Pods:       o.Pods,
				Nodes:      o.Nodes,
				Networks:   o.Networks,
			})
		}
		if action := w.adminAction(k, string(r.Action), peers, r.Ports); action != "" {
			return action == "Allow"
		}
	}
	return true
}

func (w *world) isAdminSubject(k packet, s adminv1.AdminNetworkPolicySubject) bool {
	return w.isNamespaced(k.pod, s.Namespaces, s.Pods, false)
}

// inNamespace reports whether a pod is in a selected namespace. Without the namespace's labels it may be: perhaps is
// what that means.
func (w *world) inNamespace(q *machine, s *metav1.LabelSelector, perhaps bool) bool {
	set, isKnown := w.namespaces[q.Namespace]
	if !isKnown && len(s.MatchLabels)+len(s.MatchExpressions) > 0 {
		return perhaps
	}
	return labelled(s, set)
}

func (w *world) isNamespaced(
	q *machine, namespaces *metav1.LabelSelector, pods *adminv1.NamespacedPod, perhaps bool,
) bool {
	if pods != nil {
		return w.inNamespace(q, &pods.NamespaceSelector, perhaps) && labelled(&pods.PodSelector, q.Labels)
	}
	return namespaces != nil && w.inNamespace(q, namespaces, perhaps)
}

// adminAction returns what a rule does with a packet; "": nothing. A rule that may deny, or leave to other policies, a
// pod of a namespace whose labels are not known denies it.
func (w *world) adminAction(
	k packet, action string, peers []adminv1.AdminNetworkPolicyEgressPeer, ports *[]adminv1.AdminNetworkPolicyPort,
) string {
	surely := w.adminMatches(k, peers, ports, false)
	perhaps := w.adminMatches(k, peers, ports, true)
	switch {
	case action == "Pass" && w.matchesUnknown(k, peers, ports):
		return "Deny"
	case surely, perhaps && action == "Deny":
		return action
	}
	return ""
}

// matchesUnknown reports whether one of the pods with the address is a peer only perhaps.
func (w *world) matchesUnknown(
	k packet, peers []adminv1.AdminNetworkPolicyEgressPeer, ports *[]adminv1.AdminNetworkPolicyPort,
) bool {
	for _, o := range peers {
		for _, q := range w.podsAt(k, nil) {
			isPort := ports == nil ||
				slices.ContainsFunc(*ports, func(o adminv1.AdminNetworkPolicyPort) bool {
					return adminPortMatches(k, o, q)
				})
			if isPort && w.isNamespaced(q, o.Namespaces, o.Pods, true) &&
				!w.isNamespaced(q, o.Namespaces, o.Pods, false) {
				return true
			}
		}
	}
	return false
}

func (w *world) adminMatches(
	k packet, peers []adminv1.AdminNetworkPolicyEgressPeer, ports *[]adminv1.AdminNetworkPolicyPort, perhaps bool,
) bool {
	for _, q := range append([]*machine{nil}, w.podsAt(k, nil)...) {
		isPeer := slices.ContainsFunc(peers, func(o adminv1.AdminNetworkPolicyEgressPeer) bool {
			return w.isAdminPeer(k, o, q, perhaps)
		})
		if isPeer &&
			(ports == nil ||
				slices.ContainsFunc(*ports, func(o adminv1.AdminNetworkPolicyPort) bool {
					return adminPortMatches(k, o, q)
				})) {
			return true
		}
	}
	return false
}

func (w *world) isAdminPeer(k packet, o adminv1.AdminNetworkPolicyEgressPeer, q *machine, perhaps bool) bool {
	if q != nil {
		return w.isNamespaced(q, o.Namespaces, o.Pods, perhaps)
	}
	for _, cidr := range o.Networks {
		if netip.MustParsePrefix(string(cidr)).Contains(k.remote) {
			return true
		}
	}
	if o.Nodes == nil {
		return false
	}
	for name, set := range w.nodes {
		if labelled(o.Nodes, set) &&
			slices.ContainsFunc(w.nodeAt[name], func(p netip.Prefix) bool { return p.Contains(k.remote) }) {
			return true
		}
	}
	return false
}

func adminPortMatches(k packet, o adminv1.AdminNetworkPolicyPort, q *machine) bool {
	switch {
	case o.PortNumber != nil:
		return numbers[string(o.PortNumber.Protocol)] == k.protocol && o.PortNumber.Port == int32(k.port)
	case o.PortRange != nil:
		return numbers[string(o.PortRange.Protocol)] == k.protocol && o.PortRange.Start <= int32(k.port) &&
			int32(k.port) <= o.PortRange.End
	}
	return hasNamedPort(k, *o.NamedPort, q)
}
