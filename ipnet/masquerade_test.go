package ipnet_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/wire"
)

// translation returns the node's desired masquerade.
func (n *node) translation(t *testing.T) wire.Masquerade {
	t.Helper()
	v, ok := n.committer.Values()[wire.MasqueradeKey()].(wire.Masquerade)
	if !ok {
		t.Fatalf("the masquerade is %v", n.committer.Values()[wire.MasqueradeKey()])
	}
	return v
}

func TestMasqueradeFollowsTheNetwork(t *testing.T) {
	elsewhere := netip.MustParsePrefix("198.51.100.0/24")
	for _, on := range []bool{true, false} {
		config := meshed(networks.TunnelVXLAN4, four)
		config.Mesh.IPMasq = on
		config.Mesh.IPMasqExclude = []netip.Prefix{elsewhere}
		n := nodeOf(t, config).run(t)
		if v := n.translation(t); v.Egress != on || v.Link != "weft0" ||
			!slices.Equal(v.Exclude, config.Mesh.IPMasqExclude) || !slices.Equal(v.Pods, []netip.Prefix{four.Prefix}) {
			t.Errorf("with %t: %+v", on, v)
		}
	}
}

// Traffic to pods of other nodes, and to nodes with routes to this node's pods, is not masqueraded. Nodes at the other
// end of a tunnel have no route that passes their uplink's reverse path filter.
func TestPodsOfOtherNodesAreNotMasqueraded(t *testing.T) {
	for tunnel, excluded := range map[string][]netip.Prefix{
		networks.TunnelVXLAN4: nil,
		networks.TunnelNone:   {netip.MustParsePrefix("192.0.2.2/32"), netip.MustParsePrefix("2001:db8:ff::2/128")},
	} {
		n := nodeOf(t, meshed(tunnel, four)).run(t)
		n.join(t, self(), other(2, "10.2.2.0/26"))
		v := n.translation(t)
		if want := []netip.Prefix{four.Prefix, netip.MustParsePrefix("10.2.2.0/26")}; !slices.Equal(v.Pods, want) {
			t.Errorf("%s: pods are in %v, want %v", tunnel, v.Pods, want)
		}
		if !slices.Equal(v.Exclude, excluded) {
			t.Errorf("%s: excluded are %v, want %v", tunnel, v.Exclude, excluded)
		}
		n.join(t, self())
		if v := n.translation(t); !slices.Equal(v.Pods, []netip.Prefix{four.Prefix}) || len(v.Exclude) != 0 {
			t.Errorf("%s: once the node is gone: %+v", tunnel, v)
		}
	}
}
