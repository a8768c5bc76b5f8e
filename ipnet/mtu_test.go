package ipnet_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

func TestMTUOfPodsFitsIntoTunnels(t *testing.T) {
	tests := []struct {
		name        string
		tunnel      string
		uplink, mtu int
		want        int
		refused     string
	}{
		{"no tunnels", "", 0, 0, 1500, ""},
		{"no tunnels, and the uplink's MTU is unknown", "", 0, 9000, 9000, ""},
		{"no tunnels, and an uplink", networks.TunnelNone, 9000, 0, 9000, ""},
		{"above the uplink", networks.TunnelNone, 1500, 9000, 0, "MTU 9000 of the node's interfaces is above 1500"},
		{"over IPv4", networks.TunnelVXLAN4, 0, 0, 1450, ""},
		{"over IPv6", networks.TunnelVXLAN6, 0, 0, 1430, ""},
		{"over IPv4 on jumbo frames", networks.TunnelVXLAN4, 9000, 0, 8950, ""},
		{"over IPv4 on frames above the largest MTU", networks.TunnelVXLAN4, 9700, 0, 9600, ""},
		{"over IPv4 on a loopback's MTU", networks.TunnelVXLAN4, 65536, 0, 9600, ""},
		{"less than the maximum", networks.TunnelVXLAN4, 1500, 1400, 1400, ""},
		{"the maximum", networks.TunnelVXLAN6, 1500, 1430, 1430, ""},
		{
			"more than VXLAN over IPv4 leaves", networks.TunnelVXLAN4, 1500, 1451, 0,
			"MTU 1451 of the node's interfaces is above 1450, which is what vxlan4 leaves of the uplink's 1500",
		},
		{
			"more than VXLAN over IPv6 leaves", networks.TunnelVXLAN6, 1500, 1431, 0,
			"above 1430, which is what vxlan6 leaves",
		},
		{"too little for IPv6", networks.TunnelVXLAN4, 1300, 0, 0, "MTU 1250 is not within 1280"},
		{"too much for any path", "", 0, 9601, 0, "MTU 9601 is not within 1280 to 9600"},
		{"another tunnel", "geneve", 1500, 0, 0, `tunnel "geneve" must be vxlan4, vxlan6 or none`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			config := ipnet.Config{
				Networks: networks.Config{
					Pools:   []netaddr.Pool{four, six},
					Tunnels: networks.Tunnels{Tunnel: tt.tunnel, UplinkMTU: tt.uplink},
					MTU:     tt.mtu,
				},
			}
			if tt.refused != "" {
				if _, err := ipnet.New(config); err == nil || !strings.Contains(err.Error(), tt.refused) {
					t.Errorf("error %v, want %q", err, tt.refused)
				}
				return
			}
			if got := nodeOf(t, config).run(t).add(t, sandbox("a")).Interfaces[0].MTU; got != tt.want {
				t.Errorf("MTU %d, want %d", got, tt.want)
			}
		})
	}
}

func TestMTUOfAClusterNetworkFitsIntoTunnels(t *testing.T) {
	n := nodeOf(t, ipnet.Config{
		Networks: networks.Config{
			Pools:   []netaddr.Pool{four},
			Tunnels: networks.Tunnels{Tunnel: networks.TunnelVXLAN4},
		},
	}).run(t)
	mtu := func(n pod.Network, mtu int) pod.Network { n.MTU = mtu; return n }
	ours := custom("ours", pod.L2)
	carried := vni(custom("carried", pod.L2), 500)
	refused := n.set(t, mtu(ours, 9000), mtu(carried, 1450), mtu(vni(custom("large", pod.L2), 600), 1500),
		vni(custom("taken", pod.L2), 10))
	if len(refused) != 2 || !strings.Contains(refused["large"], "MTU 1500 of network large is above 1450") ||
		!strings.Contains(refused["taken"], "VNI 10 is already used by network default") {
		t.Errorf("refused %v", refused)
	}
	if _, err := n.loop.Do(t.Context(), asking("a", "x1/tap/carried", `{"x1":{"mtu":1451}}`)); err == nil ||
		!strings.Contains(err.Error(), "MTU 1451 is not within 576 to 1450") {
		t.Errorf("error %v", err)
	}
	if got := n.add(t, asking("a", "x1/tap/ours,x2/tap/carried", "")).Interfaces; got[1].MTU != 9000 ||
		got[2].MTU != 1450 {
		t.Errorf("interfaces %+v", got)
	}
}

// The dataplane gives a new tunnel an MTU of 9000, and drops longer packets.
func TestTunnelsCarryTheMTUOfTheirNetwork(t *testing.T) {
	n := nodeOf(t, ipnet.Config{
		Networks: networks.Config{
			Pools:   []netaddr.Pool{four},
			Tunnels: networks.Tunnels{Tunnel: networks.TunnelVXLAN4, UplinkMTU: 9700},
		},
	}).run(t)
	small := vni(custom("small", pod.L2), 500)
	small.MTU = 1500
	if refused := n.set(t, small, vni(custom("large", pod.L2), 600)); len(refused) > 0 {
		t.Fatal(refused)
	}
	if refused := n.join(t, self(), other(2, "10.2.2.0/26")); len(refused) > 0 {
		t.Fatal(refused)
	}
	got := map[uint32]int{}
	for _, value := range n.committer.Values() {
		if v, is := value.(wire.Interface); is && v.Type == wire.TypeVXLAN {
			got[v.VXLAN.VNI] = v.MTU
		}
	}
	want := map[uint32]int{networks.DefaultVNI: pod.MaxMTU, 500: 0, 600: pod.MaxMTU}
	if !maps.Equal(got, want) {
		t.Errorf("MTUs of tunnels by VNI %v, want %v", got, want)
	}
}
