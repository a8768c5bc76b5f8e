package vpp

import (
	"slices"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/wire"
)

func TestMatchesByOriginSumsTheRulesOfAPolicy(t *testing.T) {
	rule := func(permit bool, first, last uint16, origin string) wire.ACLRule {
		r := wire.ACLRule{Permit: permit, Family: netaddr.IP4, Origin: origin}
		if first > 0 {
			r.Ports = []wire.ACLPorts{{Protocols: wire.Range{First: first, Last: last}}}
		}
		return r
	}
	v := wire.ACL{Label: "weft:ingress:x", Rules: []wire.ACLRule{
		rule(true, 1, 1, ""), rule(true, 6, 8, "a"), rule(false, 17, 17, "a"), rule(true, 132, 132, "a"),
		rule(false, 0, 0, "b"),
	}}
	matches := []Matches{{1000, 1000}, {1, 10}, {2, 20}, {3, 30}, {4, 40}, {5, 50}, {6, 60}}
	want := []OriginMatches{{"a", true, Matches{11, 110}}, {"a", false, Matches{4, 40}}, {"b", false, Matches{6, 60}}}
	for name, all := range map[string][]Matches{
		"weft-vswitch": matches,
		"VPP":          append(slices.Clone(matches), Matches{}, Matches{9, 90}),
	} {
		if got, ok := MatchesByOrigin(v, all); !ok || !slices.Equal(got, want) {
			t.Errorf("%s: got %+v, %t", name, got, ok)
		}
	}
	for _, other := range [][]Matches{nil, matches[:6]} {
		if got, ok := MatchesByOrigin(v, other); ok {
			t.Errorf("counters of %d rules are accepted for an ACL with 7: %+v", len(other), got)
		}
	}
}
