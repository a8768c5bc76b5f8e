package vpp

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"go.fd.io/govpp/binapi/acl_types"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/wire"
)

// randomEntries returns entries of which neighbours often differ in one respect only.
func randomEntries(random *rand.Rand) []aclEntry {
	prefixes := []netip.Prefix{
		{}, netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("10.0.0.2/32"),
		netip.MustParsePrefix("10.1.0.0/16"),
	}
	e := aclEntry{permit: true, family: netaddr.IP4}
	var list []aclEntry
	for range 40 {
		switch random.IntN(12) {
		case 0:
			e.permit = !e.permit
			e.reflect = false
		case 1:
			e.reflect = e.permit && !e.reflect
		case 2, 3, 4:
			e.from = prefixes[random.IntN(len(prefixes))]
		case 5, 6, 7:
			e.to = prefixes[random.IntN(len(prefixes))]
		default:
			first := uint16(random.IntN(3))
			e.protocol = []uint16{0, 6, 17}[random.IntN(3)]
			e.destinations = wire.Range{First: first, Last: first + uint16(random.IntN(2))}
		}
		list = append(list, e)
	}
	return list
}

// What is read back has the entries of the dataplane in their order, however they are joined.
func TestJoinedRulesHaveTheSameEntries(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	joined := 0
	for range 2000 {
		want := randomEntries(random)
		var list []acl_types.ACLRule
		for _, e := range want {
			list = append(list, apiACLRule(e))
		}
		rules := aclRulesOf(list)
		if got := slices.Collect(entries(rules)); !slices.Equal(got, want) {
			t.Fatalf("entries %+v\nare read as %+v", want, rules)
		}
		joined += len(want) - len(rules)
	}
	if joined < 2000*3 {
		t.Errorf("only %d entries were joined", joined)
	}
}

// Policies have many addresses with one range of ports, and Services one address with many ports: the memory of both is
// that of the written rule.
func TestListsOfPoliciesAndServicesAreReadAsOneRule(t *testing.T) {
	addresses := rule(true, 80, 80)
	ports := rule(true, 1, 1)
	addresses.From = nil
	ports.Ports = nil
	for n := range uint16(1000) {
		addresses.From = append(addresses.From,
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}), 32))
		ports.Ports = append(ports.Ports, rule(true, 2*n+1, 2*n+1).Ports...)
	}
	ports.To = []netip.Prefix{netip.MustParsePrefix("10.96.0.1/32")}
	for _, written := range []wire.ACLRule{addresses, ports} {
		var list []acl_types.ACLRule
		for e := range entriesOfRule(&written) {
			list = append(list, apiACLRule(e))
		}
		if got := aclRulesOf(list); len(got) != 1 || !got[0].Equal(written) {
			t.Errorf("a rule with %d addresses and %d ports is read as %d rules", len(written.From), len(written.Ports),
				len(got))
		}
	}
}

// What is no entry is not joined with others, and differs from each desired rule.
func TestRulesThatWeftCannotWriteAreReadAsInvalid(t *testing.T) {
	good := apiACLRule(aclEntry{permit: true, family: netaddr.IP4, protocol: 6, destinations: wire.Single(1)})
	bad := good
	bad.TCPFlagsMask = 2
	rules := aclRulesOf([]acl_types.ACLRule{good, bad, good, good})
	if len(rules) != 4 || rules[1].Family != "" || validateACLRule(rules[1]) == nil {
		t.Errorf("read as %+v", rules)
	}
}

// A named ACL is read without the others: their rules may be many. If the index is of another ACL now, the name
// decides.
func TestNamedACLsAreReadAlone(t *testing.T) {
	l := newLab(t)
	var objects []object
	for n := range 5 {
		objects = append(objects, aclOf(fmt.Sprint("x", n), rule(true, uint16(n), uint16(n))))
	}
	objects = append(objects, loopback("a", wire.Interface{}), loopback("b", wire.Interface{}), aclOn("a", "x1"),
		aclOn("b", "x2"))
	l.mustCommit(objects...)
	read := func(names ...string) (found []string) {
		for a, err := range (acls{l.client}).Read(l.Context(), l.s.View(), names) {
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, a.Name)
		}
		return found
	}
	if got := read("x3"); !slices.Equal(got, []string{"x3"}) {
		t.Errorf("x3 is read with %v", got)
	}
	if got := read("x3", "y"); !slices.Contains(got, "x3") {
		t.Errorf("x3 and a missing one are read as %v", got)
	}
	on, err := interfaceACLs{l.client}.read(l.Context(), []string{"b"})
	if err != nil || len(on) != 1 || on[0].Name != "b" || !slices.Equal(on[0].V.Input, []string{"x2"}) {
		t.Errorf("the lists of b are read as %+v, %v", on, err)
	}

	_, meta, _ := l.s.View().Applied(ref(wire.KindACL, "x3"))
	moved := setACL(aclOf("x3", rule(true, 3, 3)).value.(wire.ACL), noACLIndex)
	l.client.exchange(l.Context(), removeACL("x3", meta.(ACLIndex)))
	l.client.exchange(l.Context(), moved)
	if got := read("x3"); !slices.Contains(got, "x3") {
		t.Errorf("x3 at another index is read as %v", got)
	}
}

// One more or one less at the end is a difference, whichever of both has it.
func TestListsOfOtherLengthsAreNotTheSame(t *testing.T) {
	one := wire.ACLRule{Permit: true, Family: netaddr.IP4}
	two := wire.ACLRule{Family: netaddr.IP4}
	for _, lists := range [][2][]wire.ACLRule{
		{{one}, {one, two}}, {{one, two}, {one}}, {nil, {one}}, {{one}, nil}, {{one}, {two}},
	} {
		if sameEntries(lists[0], lists[1]) {
			t.Errorf("%v and %v are the same", lists[0], lists[1])
		}
	}
	if !sameEntries([]wire.ACLRule{one, two}, []wire.ACLRule{one, two}) || !sameEntries(nil, nil) {
		t.Error("equal lists differ")
	}
}
