package policy

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	adminv1 "sigs.k8s.io/network-policy-api/apis/v1alpha1"

	"github.com/weftnet/weft/internal/netaddr"
)

var (
	policySeed   = flag.Uint64("policy.seed", 0, "of the tests with random clusters; random by default")
	policyWorlds = flag.Int("policy.worlds", 10000, "number of random clusters")
)

func seedOf(t *testing.T) uint64 {
	seed := *policySeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-policy.seed %d -policy.worlds %d", seed, *policyWorlds)
	return seed
}

// dice make random clusters from few names, labels, addresses and ports, so that selectors and rules often match.
type dice struct{ *rand.Rand }

func newDice(seed uint64, n int) dice { return dice{rand.New(rand.NewPCG(seed, uint64(n)))} }

func (d dice) chance(percent int) bool { return d.IntN(100) < percent }

func pick[T any](d dice, list ...T) T { return list[d.IntN(len(list))] }

func several[T any](d dice, least, most int, one func() T) []T {
	var list []T
	for range least + d.IntN(most-least+1) {
		list = append(list, one())
	}
	return list
}

func (d dice) labels() map[string]string {
	set := map[string]string{}
	for _, key := range []string{"app", "tier", "team"} {
		if d.chance(60) {
			set[key] = pick(d, "a", "b", "c")
		}
	}
	return set
}

func (d dice) selector() metav1.LabelSelector {
	var s metav1.LabelSelector
	if d.chance(50) {
		s.MatchLabels = map[string]string{pick(d, "app", "tier", "team"): pick(d, "a", "b", "c")}
	}
	for d.chance(30) {
		e := metav1.LabelSelectorRequirement{
			Key: pick(d, "app", "tier", "team"),
			Operator: pick(d, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists,
				metav1.LabelSelectorOpDoesNotExist),
		}
		if e.Operator == metav1.LabelSelectorOpIn || e.Operator == metav1.LabelSelectorOpNotIn {
			e.Values = several(d, 1, 2, func() string { return pick(d, "a", "b", "c") })
		}
		s.MatchExpressions = append(s.MatchExpressions, e)
	}
	return s
}

// address returns one of 24 addresses of a family.
func (d dice) address() netip.Addr {
	if d.chance(60) {
		return netip.AddrFrom4([4]byte{10, 0, 0, byte(d.IntN(24))})
	}
	return netip.AddrFrom16([16]byte{0xfd, 15: byte(d.IntN(24))})
}

// remote returns an address, or the client address of one.
func (d dice) remote() netip.Addr {
	a := d.address()
	if d.chance(70) {
		return a
	}
	raw := a.AsSlice()
	if raw[0] = 0xfc; a.Is4() {
		raw[0] = 10
		raw[2] = 1
	}
	a, _ = netip.AddrFromSlice(raw)
	return a
}

// clients returns the client addresses of pods: 10.0.1.x of 10.0.0.x, and fc::x of fd::x; of the first 16, or of all,
// or of none.
func (d dice) clients(t testing.TB) ClientMap {
	t.Helper()
	ranges, err := NewClientRanges(several(d, 0, 1, func() netip.Prefix {
		return netip.MustParsePrefix("10.0.1.0/27")
	}))
	if d.chance(50) {
		ranges, err = NewClientRanges(append(ranges.Prefixes(), netip.MustParsePrefix("fc00::/8")))
	}
	if err != nil {
		t.Fatal(err)
	}
	m, why := NewClientMap(ranges, several(d, 0, 2, func() netip.Prefix {
		return netip.MustParsePrefix(pick(d, "10.0.0.0/28", "10.0.0.0/27", "fd00::/124", "fd00::/123"))
	}), nil)
	if len(why) > 0 {
		t.Fatal(why)
	}
	return m
}

func (d dice) cidr() string {
	if d.chance(5) {
		return pick(d, "0.0.0.0/0", "::/0")
	}
	a := d.remote()
	bits := a.BitLen() - d.IntN(10)
	return netip.PrefixFrom(a, bits).Masked().String()
}

func (d dice) port() int32       { return int32(78 + d.IntN(7)) }
func (d dice) protocol() string  { return pick(d, "TCP", "UDP", "SCTP") }
func (d dice) name() string      { return pick(d, "web", "dns") }
func (d dice) namespace() string { return pick(d, "x", "y", "z") }

var networkNames = []string{"red", DefaultNetwork, "x/nad", "y/nad"}

func (d dice) pod(n int) *machine {
	p := &machine{
		Pod:         Pod{ID: ID{d.namespace(), fmt.Sprintf("p%d", n)}, Labels: d.labels(), Local: d.chance(70)},
		hostNetwork: d.chance(5),
	}
	p.Interfaces = []Interface{
		{Name: "eth0", Main: true, Networks: []string{DefaultNetwork}, Addresses: several(d, 0, 2, d.address)},
	}
	if d.chance(60) {
		p.Interfaces = append(p.Interfaces, Interface{
			Name:      "net1",
			Networks:  []string{pick(d, networkNames...)},
			Addresses: several(d, 0, 2, d.address),
		})
	}
	for d.chance(50) {
		p.Ports = append(p.Ports, NamedPort{d.name(), numbers[d.protocol()], uint16(d.port())})
	}
	return p
}

func (d dice) ports() []networkingv1.NetworkPolicyPort {
	if d.chance(40) {
		return nil
	}
	return several(d, 1, 3, func() networkingv1.NetworkPolicyPort {
		var o networkingv1.NetworkPolicyPort
		if d.chance(80) {
			protocol := corev1.Protocol(d.protocol())
			o.Protocol = &protocol
		}
		if d.chance(30) {
			name := intstr.FromString(d.name())
			o.Port = &name
		} else if d.chance(85) {
			number := intstr.FromInt32(d.port())
			o.Port = &number
			if d.chance(30) {
				last := number.IntVal + int32(d.IntN(4))
				o.EndPort = &last
			}
		}
		return o
	})
}

func (d dice) peers() []networkingv1.NetworkPolicyPeer {
	if d.chance(15) {
		return nil
	}
	return several(d, 1, 3, func() networkingv1.NetworkPolicyPeer {
		var o networkingv1.NetworkPolicyPeer
		if d.chance(30) {
			o.IPBlock = &networkingv1.IPBlock{CIDR: d.cidr()}
			for d.chance(40) {
				o.IPBlock.Except = append(o.IPBlock.Except, d.cidr())
			}
			return o
		}
		if pods := d.selector(); d.chance(70) {
			o.PodSelector = &pods
		}
		if namespaces := d.selector(); o.PodSelector == nil || d.chance(40) {
			o.NamespaceSelector = &namespaces
		}
		return o
	})
}

func (d dice) policy(n int, multi bool) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace(), Name: fmt.Sprintf("n%d", n)},
	}
	if multi {
		p.Annotations = map[string]string{AnnotationFor: pick(d, "nad", "red", "x/nad", "blue")}
	}
	p.Spec.PodSelector = d.selector()
	if d.chance(60) {
		p.Spec.PolicyTypes = pick(d, []networkingv1.PolicyType{"Ingress"}, []networkingv1.PolicyType{"Egress"},
			[]networkingv1.PolicyType{"Ingress", "Egress"})
	}
	for d.chance(60) {
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{
			From:  d.peers(),
			Ports: d.ports(),
		})
	}
	for d.chance(40) {
		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: d.peers(), Ports: d.ports()})
	}
	return p
}

func (d dice) namespaced() (namespaces *metav1.LabelSelector, pods *adminv1.NamespacedPod) {
	s := d.selector()
	if d.chance(50) {
		return &s, nil
	}
	return nil, &adminv1.NamespacedPod{NamespaceSelector: s, PodSelector: d.selector()}
}

func (d dice) adminPorts() *[]adminv1.AdminNetworkPolicyPort {
	if d.chance(50) {
		return nil
	}
	list := several(d, 1, 2, func() (o adminv1.AdminNetworkPolicyPort) {
		protocol := corev1.Protocol(d.protocol())
		first := d.port()
		switch d.IntN(3) {
		case 0:
			o.PortNumber = &adminv1.Port{Protocol: protocol, Port: first}
		case 1:
			o.PortRange = &adminv1.PortRange{Protocol: protocol, Start: first, End: first + int32(d.IntN(3))}
		default:
			name := d.name()
			o.NamedPort = &name
		}
		return o
	})
	return &list
}

func (d dice) adminPeers() []adminv1.AdminNetworkPolicyEgressPeer {
	return several(d, 1, 2, func() (o adminv1.AdminNetworkPolicyEgressPeer) {
		switch d.IntN(6) {
		case 0:
			o.Networks = several(d, 1, 2, func() adminv1.CIDR { return adminv1.CIDR(d.cidr()) })
		case 1:
			s := d.selector()
			o.Nodes = &s
		default:
			o.Namespaces, o.Pods = d.namespaced()
		}
		return o
	})
}

func (d dice) ingressPeers() []adminv1.AdminNetworkPolicyIngressPeer {
	return several(d, 1, 2, func() (o adminv1.AdminNetworkPolicyIngressPeer) {
		o.Namespaces, o.Pods = d.namespaced()
		return o
	})
}

func (d dice) admin(n int) *adminv1.AdminNetworkPolicy {
	p := &adminv1.AdminNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("a%d", n)}}
	p.Spec.Priority = int32(d.IntN(3))
	p.Spec.Subject.Namespaces, p.Spec.Subject.Pods = d.namespaced()
	action := func() adminv1.AdminNetworkPolicyRuleAction {
		return pick[adminv1.AdminNetworkPolicyRuleAction](d, "Allow", "Deny", "Pass")
	}
	for d.chance(60) {
		p.Spec.Ingress = append(p.Spec.Ingress, adminv1.AdminNetworkPolicyIngressRule{
			Action: action(),
			From:   d.ingressPeers(),
			Ports:  d.adminPorts(),
		})
	}
	for d.chance(50) {
		p.Spec.Egress = append(p.Spec.Egress, adminv1.AdminNetworkPolicyEgressRule{
			Action: action(),
			To:     d.adminPeers(),
			Ports:  d.adminPorts(),
		})
	}
	return p
}

func (d dice) baseline() *adminv1.BaselineAdminNetworkPolicy {
	p := &adminv1.BaselineAdminNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	p.Spec.Subject.Namespaces, p.Spec.Subject.Pods = d.namespaced()
	action := func() adminv1.BaselineAdminNetworkPolicyRuleAction {
		return pick[adminv1.BaselineAdminNetworkPolicyRuleAction](d, "Allow", "Deny")
	}
	for d.chance(60) {
		p.Spec.Ingress = append(p.Spec.Ingress, adminv1.BaselineAdminNetworkPolicyIngressRule{
			Action: action(),
			From:   d.ingressPeers(),
			Ports:  d.adminPorts(),
		})
	}
	for d.chance(50) {
		var to []adminv1.BaselineAdminNetworkPolicyEgressPeer
		for _, o := range d.adminPeers() {
			to = append(to, adminv1.BaselineAdminNetworkPolicyEgressPeer{
				Namespaces: o.Namespaces,
				Pods:       o.Pods,
				Nodes:      o.Nodes,
				Networks:   o.Networks,
			})
		}
		p.Spec.Egress = append(p.Spec.Egress, adminv1.BaselineAdminNetworkPolicyEgressRule{
			Action: action(),
			To:     to,
			Ports:  d.adminPorts(),
		})
	}
	return p
}

func (d dice) node(w *world, n int) {
	name := fmt.Sprintf("node%d", n)
	w.nodes[name] = d.labels()
	w.nodeAt[name] = several(d, 0, 2, func() netip.Prefix { return netaddr.Single(d.address()) })
}

func newWorld() *world {
	return &world{
		namespaces: map[string]map[string]string{},
		nodes:      map[string]map[string]string{},
		nodeAt:     map[string][]netip.Prefix{},
	}
}

// world returns a random cluster.
func (d dice) world(t testing.TB) *world {
	w := newWorld()
	w.clients = d.clients(t)
	for _, ns := range []string{"x", "y", "z"} {
		if d.chance(85) { // else no watch has shown it
			w.namespaces[ns] = d.labels()
		}
	}
	for n := range 1 + d.IntN(8) {
		w.pods = append(w.pods, d.pod(n))
	}
	for n := range d.IntN(5) {
		w.policies = append(w.policies, d.policy(n, false))
	}
	for n := range d.IntN(3) {
		w.multi = append(w.multi, d.policy(n, true))
	}
	if d.chance(40) {
		for n := range d.IntN(4) {
			w.admin = append(w.admin, d.admin(n))
		}
	}
	if d.chance(30) {
		w.baseline = d.baseline()
	}
	for n := range d.IntN(3) {
		d.node(w, n)
	}
	return w
}

// packet returns a random packet of a pod, most often with an address of another pod.
func (d dice) packet(w *world) packet {
	k := packet{
		pod:       pick(d, w.pods...),
		direction: Direction(d.IntN(2)),
		remote:    d.remote(),
		protocol:  numbers[d.protocol()],
		port:      uint16(d.port()),
	}
	k.nic = &k.pod.Interfaces[d.IntN(len(k.pod.Interfaces))]
	return k
}

// fill gives an engine everything of a world.
func (w *world) fill(t testing.TB, e *Engine) {
	e.SetClients(w.clients)
	for name, set := range w.namespaces {
		e.SetNamespace(name, set)
	}
	for name, set := range w.nodes {
		e.SetNode(name, set, w.nodeAt[name])
	}
	for _, p := range w.pods {
		w.setPod(e, p)
	}
	for _, p := range w.policies {
		set(t, e)(OfNetworkPolicy(p))
	}
	for _, p := range w.multi {
		set(t, e)(OfMultiNetworkPolicy(p, &p.Spec))
	}
	for _, p := range w.admin {
		set(t, e)(OfAdminNetworkPolicy(p))
	}
	if w.baseline != nil {
		set(t, e)(OfBaselineAdminNetworkPolicy(w.baseline))
	}
}

// setPod gives a pod to an engine. Pods in their node's network namespace are not given.
func (w *world) setPod(e *Engine, p *machine) {
	if p.hostNetwork {
		e.DeletePod(p.ID)
		return
	}
	e.SetPod(p.Pod)
}

func set(t testing.TB, e *Engine) func(Policy, error) {
	return func(p Policy, err error) {
		if err != nil {
			t.Fatal(err)
		}
		e.SetPolicy(p)
	}
}

type (
	policyObject = networkingv1.NetworkPolicy
	adminObject  = adminv1.AdminNetworkPolicy
)
