package vpp

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/policy"
)

// largePolicies make policies and Services of up to some thousand addresses and ports.
type largePolicies struct{ *rand.Rand }

// upTo returns a number up to a limit, most often a small one.
func (l largePolicies) upTo(limit int) int { return 1 + l.IntN(1+l.IntN(limit)) }

func (l largePolicies) addresses(n int) (list []netip.Addr) {
	for range n {
		a := netip.AddrFrom4([4]byte{198, 18, byte(l.IntN(256)), byte(l.IntN(256))})
		if l.IntN(3) == 0 {
			a = netip.AddrFrom16([16]byte{0: 0x20, 1: 1, 14: byte(l.IntN(256)), 15: byte(l.IntN(256))})
		}
		list = append(list, a)
	}
	return list
}

func (l largePolicies) rule() networkingv1.NetworkPolicyEgressRule {
	var r networkingv1.NetworkPolicyEgressRule
	for _, a := range l.addresses(l.upTo(3000)) {
		r.To = append(r.To, networkingv1.NetworkPolicyPeer{
			IPBlock: &networkingv1.IPBlock{CIDR: netip.PrefixFrom(a, a.BitLen()-l.IntN(3)).Masked().String()},
		})
	}
	if l.IntN(3) == 0 {
		return r
	}
	for range l.upTo(400) {
		port := intstr.FromInt32(int32(1 + l.IntN(65535)))
		r.Ports = append(r.Ports, networkingv1.NetworkPolicyPort{Port: &port})
	}
	return r
}

func (l largePolicies) policy(n int) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprint("p", n)}}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{"Ingress", "Egress"}
	for range 1 + l.IntN(3) {
		r := l.rule()
		p.Spec.Egress = append(p.Spec.Egress, r)
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: r.To, Ports: r.Ports})
	}
	return p
}

func (l largePolicies) service(n int) policy.Service {
	s := policy.Service{Name: fmt.Sprintf("n%d/s%d", l.IntN(3), n)}
	addresses := l.addresses(l.upTo(3000))
	for range l.upTo(100) {
		s.Frontends = append(s.Frontends, policy.Frontend{
			Addresses: addresses, External: true, Protocol: policy.TCP, Port: uint16(1 + l.IntN(65535)),
			Backends: []policy.Backends{{Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.99")}, Port: 80}},
		})
	}
	return s
}

// engine has one pod with a main interface and one on a further network, and up to five policies for each and five
// Services.
func (l largePolicies) engine(t *testing.T) *policy.Engine {
	t.Helper()
	e := policy.NewEngine(policy.Config{})
	e.SetPod(policy.Pod{ID: largePod, Local: true, Interfaces: []policy.Interface{
		{Name: "eth0", Main: true, Networks: []string{policy.DefaultNetwork}}, {
			Name:     "net1",
			Networks: []string{"red"},
		},
	}})
	for i := range l.IntN(6) {
		o := l.policy(i)
		main, err := policy.OfNetworkPolicy(o)
		if err != nil {
			t.Fatal(err)
		}
		e.SetPolicy(main)
		o.Annotations = map[string]string{policy.AnnotationFor: "red"}
		further, err := policy.OfMultiNetworkPolicy(o, &o.Spec)
		if err != nil {
			t.Fatal(err)
		}
		e.SetPolicy(further)
	}
	for i := range l.IntN(6) {
		e.SetService(l.service(i))
	}
	for more := true; more; {
		_, _, more = e.CompileNext()
	}
	return e
}

// largePod is the pod of the engines.
var largePod = policy.ID{Namespace: "a", Name: "p"}

// mustAccept fails the test unless the dataplane accepts the lists of an interface, and they have as many rules as
// counted. It returns the largest number of rules.
func mustAccept(t *testing.T, what string, lists policy.Lists, isGuarded bool) (largest int) {
	t.Helper()
	const always = 5 // neighbour discovery and ICMP errors
	for i, acl := range new(desired.ACLs).Of(lists, isGuarded) {
		direction := []policy.Direction{policy.Egress, policy.Ingress}[i]
		entries := countEntries(acl.Rules)
		size := lists[direction].Size(isGuarded && direction == policy.Egress)
		if err := validateACL(acl.Label, acl); err != nil {
			t.Errorf("%s %s: %v", what, direction, err)
		}
		if entries > size+always {
			t.Errorf("%s %s guarded %t: %d rules, counted %d", what, direction, isGuarded, entries, size)
		}
		largest = max(largest, entries)
	}
	return largest
}

// Whatever policies and Services there are, the dataplane accepts the lists, on guarded networks too.
func TestTheDataplaneAcceptsTheListsOfAllPolicies(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	largest := 0
	for n := range 30 {
		e := largePolicies{rand.New(rand.NewPCG(seed, uint64(n)))}.engine(t)
		compiled, _ := e.ListsOf(largePod)
		for nic, lists := range compiled {
			what := fmt.Sprintf("cluster %d: %s", n, nic)
			largest = max(largest, mustAccept(t, what, lists, false), mustAccept(t, what, lists, nic != "eth0"))
		}
	}
	t.Logf("at most %d rules", largest)
	if largest < 20_000 {
		t.Error("no list is large")
	}
}
