package policy

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
)

// A rule that denies more because of the limit denies as little more as fits: a cluster with thousands of selected pods
// does not lose connections with all others.
func TestWidenedRulesDenyPrefixesAroundTheirAddresses(t *testing.T) {
	var remotes []netip.Prefix
	for i := range 300 {
		remotes = append(remotes, netaddr.Single(netip.AddrFrom4([4]byte{10, 1, byte(i >> 7), byte(i << 1)})))
	}
	ports := func(n int) (list []PortRange) {
		for i := range n {
			list = append(list, PortRange{TCP, Range{uint16(80 + 10*i), uint16(80 + 10*i)}})
		}
		return list
	}
	plain := func(r *Rule) int { return r.Size(false) }
	// denied: an address on its port, another port, 10.1.1.3, 192.0.2.1
	type contacts struct{ selected, otherPort, neighbour, far bool }
	for name, tt := range map[string]struct {
		ports []PortRange
		most  int
		size  func(*Rule) int
		want  contacts
	}{
		"all ports":              {ports(2), 300, plain, contacts{true, true, false, false}},
		"prefixes":               {ports(2), 60, plain, contacts{true, false, true, false}},
		"few prefixes":           {ports(2), 4, plain, contacts{true, false, true, false}},
		"prefixes and all ports": {ports(50), 60, plain, contacts{true, true, true, false}},
		"all addresses": {
			ports(2), 60, func(r *Rule) int { return 10 * r.Size(false) * len(r.Remotes) },
			contacts{true, true, true, true},
		},
		"addresses on its ports": {ports(2), 60, func(r *Rule) int {
			if slices.Equal(r.Remotes, everywhere) {
				return r.Size(false)
			}
			return 61
		}, contacts{true, false, true, true}},
	} {
		rule := Rule{Action: Deny, Remotes: remotes, Ports: tt.ports, Origin: "o"}
		wide := rule.widen(tt.most, tt.size)
		denies := func(a string, port uint16) bool {
			l := List{Rules: []Rule{wide, rest(Allow, "")}}
			return l.Decide(address(a), TCP, port).Action == Deny
		}
		got := contacts{
			denies("10.1.1.2", 80), denies("10.1.1.2", 443), denies("10.1.1.3", 80), denies("192.0.2.1", 80),
		}
		if got != tt.want {
			t.Errorf("%s: denies %+v, want %+v: %d prefixes, %d ports", name, got, tt.want, len(wide.Remotes),
				len(wide.Ports))
		}
	}
}
