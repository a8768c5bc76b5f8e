package ipnet_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// clientRanges are those of most tests.
var clientRanges = prefixes("100.64.0.0/10", "fc00::/8")

func translating(n pod.Node, ranges []netip.Prefix) pod.Node {
	n.ClientRanges = ranges
	return n
}

// A node uses client addresses at the pods of nodes that route the replies, and routes the replies of its own pods.
func TestClientAddressesOfServices(t *testing.T) {
	n := nodeOf(t, meshed(networks.TunnelVXLAN4, families["dual"]...)).run(t)
	me := translating(with(self(), "default", "10.1.1.0/26", "2001:db8:1::/122"), clientRanges)
	if refused := n.join(t, me,
		translating(other(2, "10.1.2.0/26", "2001:db8:2::/122"), clientRanges),
		// other ranges of IPv4
		translating(other(3, "10.1.3.0/26", "2001:db8:3::/122"), prefixes("100.64.0.0/12", "fc00::/8")),
		// of an earlier version; it has borrowed an address
		other(4, "10.1.4.0/26", "10.1.1.7/32"),
	); len(refused) > 0 {
		t.Fatal(refused)
	}
	want := wire.ServiceClients{
		Ranges:    clientRanges,
		Pods:      prefixes("10.1.1.0/26", "2001:db8:1::/122"),
		Addresses: prefixes("100.65.1.0/26", "fc01:db8:1::/122"),
		Endpoints: prefixes("10.1.1.0/26", "10.1.2.0/26", "2001:db8:1::/122", "2001:db8:2::/122", "2001:db8:3::/122"),
	}
	if got := n.translation(t).Clients; !got.Equal(want) {
		t.Errorf("clients\n%+v, want\n%+v", got, want)
	}
	for prefix, object := range map[string]string{
		"100.65.1.0/26": "host", "fc01:db8:1::/122": "host", "100.65.2.0/26": "tunnel", "fc01:db8:2::/122": "tunnel",
		"fc01:db8:3::/122": "tunnel",
		"100.65.3.0/26":    "", "100.65.4.0/26": "", "100.65.1.7/32": "",
	} {
		p := netip.MustParsePrefix(prefix)
		route, there := n.committer.Values()[wire.RouteKey(wire.VRFName("weft:pods", netaddr.FamilyOf(p.Addr())),
			p)].(wire.Route)
		behind := ""
		if there {
			if behind = "tunnel"; route.Paths[0].Interface == desired.HostObject {
				behind = "host"
			}
		}
		if behind != object {
			t.Errorf("%s: route %+v, want one to %q", prefix, route, object)
		}
	}
	before := list(t, n.committer.Values())
	if n = n.restarted(t); list(t, n.committer.Values()) != before {
		t.Errorf("restarted:\n%s\nwant\n%s", list(t, n.committer.Values()), before)
	}
	me.ClientRanges = nil
	n.join(t, me, translating(other(2, "10.1.2.0/26"), clientRanges))
	if got := n.translation(t).Clients; !got.Equal(wire.ServiceClients{}) {
		t.Errorf("without ranges: %+v", got)
	}
	for key := range n.committer.Values() {
		if strings.Contains(key, "100.65.") || strings.Contains(key, "fc01:") {
			t.Errorf("without ranges there is %s", key)
		}
	}
}

// Without tunnels the connections to pods of other nodes leave the node with the address of the pod.
func TestClientAddressesWithoutTunnels(t *testing.T) {
	n := nodeOf(t, meshed(networks.TunnelNone, families["ip4"]...)).run(t)
	n.join(t, translating(with(self(), "default", "10.1.1.0/26"), clientRanges),
		translating(other(2, "10.1.2.0/26"), clientRanges))
	want := wire.ServiceClients{
		Ranges:    clientRanges,
		Pods:      prefixes("10.1.1.0/26"),
		Addresses: prefixes("100.65.1.0/26"),
		Endpoints: prefixes("10.1.1.0/26"),
	}
	if got := n.translation(t).Clients; !got.Equal(want) {
		t.Errorf("clients\n%+v, want\n%+v", got, want)
	}
}
