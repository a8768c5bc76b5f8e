package vswitch

import (
	"fmt"
	"net/netip"
	"testing"

	"go.fd.io/govpp/binapi/ethernet_types"
	"go.fd.io/govpp/binapi/fib_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/tapv2"

	"github.com/weftnet/weft/internal/netnstest"
)

// transit is a bridge domain between nodes without learning and flooding, and a BVI with a known address and MAC on
// each node.
type transit struct {
	*node
	bvi interface_types.InterfaceIndex
}

func (n *node) transitMAC() ethernet_types.MacAddress {
	return ethernet_types.MacAddress{0x12, 0x2b, 0, 0, 0, byte(n.n)}
}

func (n *node) transitAddress() string { return fmt.Sprintf("169.254.128.%d", n.n) }

func (n *node) transit(t *testing.T, mtu uint32) transit {
	t.Helper()
	_, err := l2.NewServiceClient(n.conn).BridgeDomainAddDelV2(t.Context(), &l2.BridgeDomainAddDelV2{
		IsAdd:   true,
		BdID:    1,
		Forward: true,
	})
	must(t, err)
	c := interfaces.NewServiceClient(n.conn)
	loop, err := c.CreateLoopback(t.Context(), &interfaces.CreateLoopback{MacAddress: n.transitMAC()})
	must(t, err)
	_, err = c.SwInterfaceSetMtu(t.Context(), &interfaces.SwInterfaceSetMtu{
		SwIfIndex: loop.SwIfIndex,
		Mtu:       []uint32{mtu, 0, 0, 0},
	})
	must(t, err)
	setUp(t, n.conn, loop.SwIfIndex)
	_, err = c.SwInterfaceAddDelAddress(t.Context(), &interfaces.SwInterfaceAddDelAddress{
		SwIfIndex: loop.SwIfIndex,
		IsAdd:     true,
		Prefix:    addressWithPrefix(t, n.transitAddress()+"/17"),
	})
	must(t, err)
	join(t, n.conn, l2.SwInterfaceSetL2Bridge{RxSwIfIndex: loop.SwIfIndex, BdID: 1, PortType: l2.L2_API_PORT_TYPE_BVI})
	return transit{n, loop.SwIfIndex}
}

// routeTo routes a pod's network to another node: tunnel, its MAC, its neighbour, the route.
func (n transit) routeTo(t *testing.T, other *node, network string) {
	t.Helper()
	tunnel := n.tunnel(t, other, false)
	_, err := l2.NewServiceClient(n.conn).L2fibAddDel(t.Context(), &l2.L2fibAddDel{
		IsAdd:     true,
		StaticMac: true,
		BdID:      1,
		Mac:       other.transitMAC(), SwIfIndex: tunnel,
	})
	must(t, err)
	next, err := ip_types.ParseAddress(other.transitAddress())
	must(t, err)
	_, err = ip_neighbor.NewServiceClient(n.conn).IPNeighborAddDel(t.Context(), &ip_neighbor.IPNeighborAddDel{
		IsAdd: true,
		Neighbor: ip_neighbor.IPNeighbor{
			SwIfIndex:  n.bvi,
			Flags:      ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC,
			MacAddress: other.transitMAC(),
			IPAddress:  next,
		},
	})
	must(t, err)
	to, err := ip_types.ParsePrefix(netip.MustParsePrefix(network).Masked().String())
	must(t, err)
	path := fib_types.FibPath{SwIfIndex: uint32(n.bvi), Weight: 1, Proto: fib_types.FIB_API_PATH_NH_PROTO_IP4}
	path.Nh.Address = next.Un
	_, err = ip.NewServiceClient(n.conn).IPRouteAddDel(t.Context(), &ip.IPRouteAddDel{IsAdd: true,
		Route: ip.IPRoute{Prefix: to, NPaths: 1, Paths: []fib_types.FibPath{path}}})
	must(t, err)
}

func TestRoutesBetweenNodesUseTunnels(t *testing.T) {
	netnstest.RequireTap(t)
	u := newUnderlay(t, 1500)
	nodes := []*node{u.node(t, 1), u.node(t, 2), u.node(t, 3)}
	var pods []pod
	for _, n := range nodes {
		pods = append(pods, addPod(t, n.conn, n.n, tapv2.TAP_API_FLAG_GSO))
		n.attachUplink(t, false)
		via := n.transit(t, 1430)
		for _, other := range nodes {
			if other != n {
				via.routeTo(t, other, pod{n: other.n}.prefix4(2))
			}
		}
	}
	for i, p := range pods {
		for j, q := range pods {
			if i != j {
				ping(t, p, q.prefix4(2))
			}
		}
	}
	transfer(t, pods[0], pods[1]) // their MTU of 1,500 exceeds that of the path, so they get ICMP errors
	if pods[0].pingOf(t, pods[2].prefix4(2), 1500) {
		t.Error("a ping longer than the tunnel's MTU is answered")
	}
	if !pods[0].pingOf(t, pods[2].prefix4(2), 1430) {
		t.Error("a ping as long as the tunnel's MTU is not answered")
	}
}
