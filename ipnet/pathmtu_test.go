package ipnet_test

import (
	"reflect"
	"testing"

	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// A limit for other nodes concerns the interfaces into the tunnels and nothing else: pods keep their MTU, which they
// use on the node.
func TestPathMTULimitsPacketsToOtherNodesOnly(t *testing.T) {
	n := nodeOf(t, meshed(networks.TunnelVXLAN4, four)).run(t)
	n.join(t, self(), other(2, "10.2.2.0/26"))
	n.add(t, sandbox("a"))
	before := n.committer.Values()
	bvi := wire.InterfaceKey(desired.BVIOf(pod.DefaultNetwork))
	limit := func(mtu, want int) {
		t.Helper()
		if _, err := n.loop.Do(t.Context(), &pod.SetPathMTU{MTU: mtu}); err != nil {
			t.Fatal(err)
		}
		after := n.committer.Values()
		if got := after[bvi].(wire.Interface).MTU; got != want {
			t.Errorf("limit %d: MTU %d, want %d", mtu, got, want)
		}
		if again := n.restarted(t); again.committer.Values()[bvi].(wire.Interface).MTU != want ||
			again.Mesh.PathMTU() != mtu {
			t.Errorf("limit %d: a restart has the limit %d", mtu, again.Mesh.PathMTU())
		}
		after[bvi] = before[bvi]
		if !reflect.DeepEqual(after, before) {
			t.Errorf("limit %d: other values changed:\n%s", mtu, list(t, without(after, before)))
		}
	}
	limit(1350, 1350)
	limit(1200, 1200)
	limit(9000, 1450)
	limit(500, 576)
	limit(0, 1450)
}

// A link with a smaller MTU has no IPv6 (RFC 8200 5).
func TestPathMTULeavesIPv6ItsMinimum(t *testing.T) {
	n := nodeOf(t, meshed(networks.TunnelVXLAN6, four, six)).run(t)
	n.join(t, self(), other(2))
	if _, err := n.loop.Do(t.Context(), &pod.SetPathMTU{MTU: 1210}); err != nil {
		t.Fatal(err)
	}
	if got := n.committer.Values()[wire.InterfaceKey(desired.BVIOf(
		pod.DefaultNetwork))].(wire.Interface).MTU; got != 1280 {
		t.Errorf("MTU %d, want 1280", got)
	}
}
