package ipnet_test

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/wire"
)

// card returns a network card with an address of each family, in the subnet of the other nodes, and gateways.
func card() *wire.Card {
	gateway4 := netip.MustParseAddr("192.0.2.254")
	gateway6 := netip.MustParseAddr("fe80::1")
	return &wire.Card{
		Link: "eth9", MAC: netaddr.MAC{2, 0, 0, 0, 0, 9}, MTU: 1500,
		Addresses: []wire.CardAddress{
			{Prefix: netip.MustParsePrefix("192.0.2.1/24")}, {Prefix: netip.MustParsePrefix("2001:db8:ff::1/64")},
		},
		Routes: []wire.CardRoute{
			{Destination: netip.MustParsePrefix("192.0.2.0/24"), Source: netip.MustParseAddr("192.0.2.1")},
			{Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("192.0.2.253"), Metric: 200},
			{Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: gateway4, Metric: 100},
			{Destination: netip.MustParsePrefix("10.99.0.0/16")},
			{Destination: netip.MustParsePrefix("2001:db8:ff::/64"), Metric: 256},
			{Destination: netip.MustParsePrefix("::/0"), Gateway: gateway6, Metric: 1024},
		},
	}
}

func owning(tunnel string, pools ...netaddr.Pool) ipnet.Config {
	c := meshed(tunnel, pools...)
	c.Mesh.Card = card()
	return c
}

func TestTunnelsUseTheNodesAddressIfTheDataplaneOwnsTheCard(t *testing.T) {
	for tunnel, source := range map[string]string{
		networks.TunnelVXLAN4: "192.0.2.1",
		networks.TunnelVXLAN6: "2001:db8:ff::1",
	} {
		t.Run(tunnel, func(t *testing.T) {
			n := nodeOf(t, owning(tunnel, four)).run(t)
			n.join(t, self(), other(2, "10.2.2.0/26"))
			values := n.committer.Values()
			v, is := values[wire.InterfaceKey("weft-vx-default-2")].(wire.Interface)
			if !is || v.VXLAN.Source != netip.MustParseAddr(source) || v.VXLAN.Table != 2 {
				t.Errorf("the tunnel is %+v", v)
			}
			for key := range values {
				if strings.Contains(key, "weft-vtep") || key == wire.TunnelNATKey() ||
					strings.Contains(key, "/192.0.2.2/") {
					t.Errorf("%s exists, although the kernel does not own the card", key)
				}
			}
		})
	}
}

func TestDataplaneHasTheRoutesOfItsCard(t *testing.T) {
	n := nodeOf(t, owning(networks.TunnelVXLAN4, four)).run(t)
	values := n.committer.Values()
	want := map[string]wire.Path{ // the best route to each destination; on-link subnets need none
		"ip4/0.0.0.0/0":    {Interface: "weft-uplink", NextHop: netip.MustParseAddr("192.0.2.254")},
		"ip4/10.99.0.0/16": {Interface: "weft-uplink"},
		"ip6/::/0":         {Interface: "weft-uplink", NextHop: netip.MustParseAddr("fe80::1")},
	}
	got := make(map[string]wire.Path)
	for key, v := range values {
		if name, is := strings.CutPrefix(key, wire.Key(wire.KindRoute, "weft:vxlan:.ends/")); is {
			got[name] = v.(wire.Route).Paths[0]
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("routes are %v, want %v", got, want)
	}
}

func TestUplinkDependsOnAllObjectsThatServeIt(t *testing.T) {
	n := nodeOf(t, owning(networks.TunnelVXLAN4, four)).run(t)
	values := n.committer.Values()
	u, is := values[wire.UplinkKey("eth9")].(wire.Uplink)
	if !is || !u.Card.Equal(*card()) || u.To != desired.UplinkLink {
		t.Fatalf("the uplink is %+v", u)
	}
	for _, key := range u.Needs {
		if _, there := values[key]; !there {
			t.Errorf("the uplink depends on %s, which is not desired", key)
		}
	}
	for key := range values {
		ofCard := strings.HasPrefix(key, wire.Key(wire.KindAddress, "weft-uplink/")) ||
			strings.HasPrefix(key, wire.Key(wire.KindPuntRedirect, "")) ||
			strings.HasPrefix(key, wire.Key(wire.KindRoute, "weft:vxlan:.ends/"))
		if ofCard && !slices.Contains(u.Needs, key) {
			t.Errorf("the uplink does not depend on %s", key)
		}
	}
	if !desired.IsShared(wire.UplinkKey("eth9")) {
		t.Error("pods do not depend on the uplink")
	}
	if v := values[wire.InterfaceKey("weft-uplink")].(wire.Interface); v.MAC != card().MAC || v.MTU != card().MTU ||
		v.AFPacket.Link != "eth9" {
		t.Errorf("the interface is %+v", v)
	}
}

// Replies to pods come from the dataplane's card by this link; the setting of all links does not cover it for good.
func TestTheKernelForwardsFromTheLinkToTheCardOfTheDataplane(t *testing.T) {
	values := nodeOf(t, owning(networks.TunnelNone, four)).run(t).committer.Values()
	for _, f := range []netaddr.Family{netaddr.IP4, netaddr.IP6} {
		key := wire.SysctlKey(wire.VethKey("weft-punt"), desired.ForwardingFrom(desired.UplinkLink, f))
		v, is := values[key].(wire.Sysctl)
		if wants := f == netaddr.IP4; is != wants || wants && v.Value != "1" {
			t.Errorf("%s is %+v with pools of IPv4", key, v)
		}
	}
}

func TestOtherNodesAreReachedByTheCardOfTheDataplaneWithoutTunnels(t *testing.T) {
	n := nodeOf(t, owning(networks.TunnelNone, four)).run(t)
	n.join(t, self(), other(2, "10.2.2.0/26"))
	values := n.committer.Values()
	block := netip.MustParsePrefix("10.2.2.0/26")
	kernel, is := values[wire.LinuxRouteKey(wire.VethKey("weft-punt"), block)].(wire.LinuxRoute)
	if !is || kernel.Link != desired.UplinkLink || !kernel.Gateway.IsValid() {
		t.Errorf("the kernel's route is %+v", kernel)
	}
	dataplane, is := values[wire.RouteKey("weft:vxlan:.ends/ip4", block)].(wire.Route)
	if !is || dataplane.Paths[0] != (wire.Path{Interface: "weft-uplink", NextHop: netip.MustParseAddr("192.0.2.2")}) {
		t.Errorf("the dataplane's route is %+v", dataplane)
	}
}
