package desired

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/policy"
	"github.com/weftnet/weft/wire"
)

// packet is a packet as ACL rules see it.
type packet struct {
	source, destination    netip.Addr
	protocol               uint16
	sourcePort, targetPort uint16 // ports, or ICMP type and code
}

// decide returns the decision of the first rule that matches.
func decide(rules []wire.ACLRule, k packet) bool {
	in := func(list []netip.Prefix, a netip.Addr) bool {
		return len(list) == 0 || slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	within := func(r wire.Range, n uint16) bool { return r.First <= n && n <= r.Last }
	for _, r := range rules {
		if r.Family != netaddr.FamilyOf(k.source) || !in(r.From, k.source) || !in(r.To, k.destination) {
			continue
		}
		hasPort := slices.ContainsFunc(r.Ports, func(p wire.ACLPorts) bool {
			return within(p.Protocols, k.protocol) && within(p.Sources, k.sourcePort) &&
				within(p.Destinations, k.targetPort)
		})
		if len(r.Ports) == 0 || hasPort {
			return r.Permit
		}
	}
	return false
}

func TestGuardedPolicyPermitsWhatGuardAndPolicyPermit(t *testing.T) {
	prefixes := func(texts ...string) (list []netip.Prefix) {
		for _, text := range texts {
			list = append(list, netip.MustParsePrefix(text))
		}
		return list
	}
	ports := func(protocol uint8, first, last uint16) policy.PortRange {
		return policy.PortRange{Protocol: protocol, Range: policy.Range{First: first, Last: last}}
	}
	list := &policy.List{Name: "x", Rules: []policy.Rule{
		{Action: policy.Deny, Remotes: prefixes("10.0.0.0/30"), Ports: []policy.PortRange{ports(policy.UDP, 60, 80)}},
		{Remotes: prefixes("10.0.0.0/29")},
		{
			Remotes: prefixes("10.0.0.8/31", "10.0.0.12/32", "fd00::8/128"),
			Ports:   []policy.PortRange{ports(policy.TCP, 60, 61), ports(policy.UDP, 66, 70)},
		},
		{Remotes: prefixes("fd00::/125"), Ports: []policy.PortRange{ports(policy.TCP, 66, 70)}},
		{Remotes: prefixes("fd00::/126")},
		{Action: policy.Deny, Remotes: prefixes("0.0.0.0/0", "::/0")},
	}}
	plain := policyACL(list, policy.Egress, false)
	guarded := policyACL(list, policy.Egress, true)
	if plain.Label == guarded.Label {
		t.Error("both have one name")
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	permitted := 0
	for range 20000 {
		k := packet{
			source:      netip.MustParseAddr("10.0.0.1"),
			destination: netip.AddrFrom4([4]byte{10, 0, 0, byte(dice.IntN(16))}),
			protocol:    []uint16{1, 6, 17, 132}[dice.IntN(4)],
			sourcePort:  uint16(dice.IntN(12)),
			targetPort:  uint16(58 + dice.IntN(24)),
		}
		if dice.IntN(2) == 0 {
			k.source = netip.MustParseAddr("fd00::1")
			k.destination = netip.AddrFrom16([16]byte{0xfd, 15: byte(dice.IntN(16))})
			if k.protocol == 1 {
				k.protocol = 58
				k.sourcePort = uint16(125 + dice.IntN(15))
			}
			if dice.IntN(10) == 0 {
				k.targetPort = 546
			}
		}
		want := decide(plain.Rules, k) && decide(Guard().Rules, k)
		if got := decide(guarded.Rules, k); got != want {
			t.Fatalf("%+v: permitted %t, want %t", k, got, want)
		}
		if want {
			permitted++
		}
	}
	if permitted == 0 {
		t.Error("no packet is permitted")
	}
}

// Users choose parts of the content of lists, so a name that two contents share must not be found, and must fit into
// the label.
func TestNamesOfListsAreLongHashesThatFitIntoALabel(t *testing.T) {
	for d, list := range policy.Closed(nil) {
		if bits := 4 * len(list.Name); bits < 112 {
			t.Errorf("the name %s has %d bits", list.Name, bits)
		}
		isGuarded := policy.Direction(d) == policy.Egress // only what pods send is guarded
		if label := nameOfPolicy(list, policy.Direction(d), isGuarded); len(label) > 48 {
			t.Errorf("the label %s has %d bytes", label, len(label))
		}
	}
}

func TestICMPErrorsReachPodsWhateverPoliciesSay(t *testing.T) {
	closed := policy.Closed(nil)
	ingress := policyACL(closed[policy.Ingress], policy.Ingress, false)
	egress := policyACL(closed[policy.Egress], policy.Egress, false)
	four := netip.MustParseAddr("10.0.0.1")
	six := netip.MustParseAddr("fd00::1")
	for _, tt := range []struct {
		what           string
		address        netip.Addr
		protocol, kind uint16
		toPod, fromPod bool
	}{
		{"fragmentation needed", four, 1, 3, true, false}, {"TTL exceeded", four, 1, 11, true, false}, {
			"echo request", four, 1, 8, false, false,
		},
		{"packet too big", six, 58, 2, true, false}, {"neighbour solicitation", six, 58, 135, true, true}, {
			"echo request", six, 58, 128, false, false,
		},
		{"router advertisement", six, 58, 134, false, false},
	} {
		k := packet{source: tt.address, destination: tt.address, protocol: tt.protocol, sourcePort: tt.kind}
		if got := decide(ingress.Rules, k); got != tt.toPod {
			t.Errorf("%s to the pod: permitted %t", tt.what, got)
		}
		if got := decide(egress.Rules, k); got != tt.fromPod {
			t.Errorf("%s from the pod: permitted %t", tt.what, got)
		}
	}
}

// Lists of a namespace have up to 400,000 rules on a node. Each event asks for the ACLs of all pods before and after
// it.
func TestAnACLIsConvertedOnceWhileItIsInUse(t *testing.T) {
	port := func() []policy.PortRange {
		return []policy.PortRange{{Protocol: policy.TCP, Range: policy.Range{First: 80, Last: 80}}}
	}
	rules := []policy.Rule{
		{Remotes: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}, Ports: port()},
		{Remotes: []netip.Prefix{netip.MustParsePrefix("10.0.0.3/32")}, Ports: port()},
	}
	lists := policy.Lists{{Name: "a", Rules: rules}, {Name: "b", Rules: rules}}
	var acls ACLs
	ask := func(isGuarded bool) []wire.ACL {
		of := acls.Of(lists, isGuarded)
		want := new(ACLs).Of(lists, isGuarded)
		if !reflect.DeepEqual(of, want) {
			t.Errorf("guarded %t: %+v, want %+v", isGuarded, of, want)
		}
		return of
	}
	isSame := func(a, b wire.ACL) bool { return &a.Rules[0] == &b.Rules[0] }
	first := ask(false)
	guarded := ask(true)
	acls.Forget()
	if again := ask(false); !isSame(first[0], again[0]) || !isSame(first[1], again[1]) {
		t.Error("ACLs in use were converted again")
	}
	acls.Forget()
	acls.Forget()
	if again := ask(true); isSame(guarded[0], again[0]) {
		t.Error("an ACL that is not in use was kept")
	}
	ports := first[0].Rules[len(first[0].Rules)-2:]
	if &ports[0].Ports[0] != &ports[1].Ports[0] {
		t.Error("two rules with the same port do not share it")
	}
}
