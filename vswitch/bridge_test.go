package vswitch

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/tapv2"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"

	"github.com/weftnet/weft/internal/netnstest"
)

// bridgeNet is the network number of bridged pods: all have addresses in 10.0.44.0/24 and fd00:44::/64.
const bridgeNet = 44

// bridged configures the bridging of a pod's tap.
type bridged struct {
	bridge uint32
	host   int // number of its address in bridgeNet
	group  uint8
	flags  tapv2.TapFlags
}

func addBridge(t testing.TB, conn api.Connection, id uint32) {
	t.Helper()
	if _, err := l2.NewServiceClient(conn).BridgeDomainAddDelV2(t.Context(), &l2.BridgeDomainAddDelV2{
		IsAdd: true,
		BdID:  id,
		Learn: true, Forward: true, Flood: true, UuFlood: true, MacAge: 5,
	}); err != nil {
		t.Fatal("add bridge domain:", err)
	}
}

func join(t testing.TB, conn api.Connection, req l2.SwInterfaceSetL2Bridge) {
	t.Helper()
	req.Enable = true
	if _, err := l2.NewServiceClient(conn).SwInterfaceSetL2Bridge(t.Context(), &req); err != nil {
		t.Fatal("set layer 2 bridge:", err)
	}
}

func setUp(t testing.TB, conn api.Connection, index interface_types.InterfaceIndex) {
	t.Helper()
	if _, err := interfaces.NewServiceClient(conn).SwInterfaceSetFlags(t.Context(), &interfaces.SwInterfaceSetFlags{
		SwIfIndex: index,
		Flags:     interface_types.IF_STATUS_API_FLAG_ADMIN_UP,
	}); err != nil {
		t.Fatal("set up:", err)
	}
}

// addBVI adds a loopback with the network's first addresses as the BVI of a bridge domain.
func addBVI(t testing.TB, conn api.Connection, bridge uint32) interface_types.InterfaceIndex {
	t.Helper()
	c := interfaces.NewServiceClient(conn)
	loop, err := c.CreateLoopback(t.Context(), &interfaces.CreateLoopback{})
	if err != nil {
		t.Fatal("create loopback:", err)
	}
	setUp(t, conn, loop.SwIfIndex)
	network := pod{n: bridgeNet}
	for _, p := range []string{network.prefix4(1), network.prefix6(1)} {
		if _, err := c.SwInterfaceAddDelAddress(t.Context(), &interfaces.SwInterfaceAddDelAddress{
			SwIfIndex: loop.SwIfIndex,
			IsAdd:     true, Prefix: addressWithPrefix(t, p),
		}); err != nil {
			t.Fatal("add address:", err)
		}
	}
	join(t, conn, l2.SwInterfaceSetL2Bridge{
		RxSwIfIndex: loop.SwIfIndex,
		BdID:        bridge,
		PortType:    l2.L2_API_PORT_TYPE_BVI,
	})
	return loop.SwIfIndex
}

// addBridgedPod adds a pod with a tap in a bridge domain.
func addBridgedPod(t testing.TB, conn api.Connection, b bridged) pod {
	t.Helper()
	p := pod{netns: netnstest.New(t), n: bridgeNet}
	tap, err := tapv2.NewServiceClient(conn).TapCreateV3(t.Context(), &tapv2.TapCreateV3{
		ID:               ^uint32(0),
		UseRandomMac:     true,
		HostNamespaceSet: true, HostNamespace: p.netns, HostIfNameSet: true, HostIfName: "eth0", TapFlags: b.flags,
	})
	if err != nil {
		t.Fatal("create tap:", err)
	}
	p.index = tap.SwIfIndex
	setUp(t, conn, p.index)
	join(t, conn, l2.SwInterfaceSetL2Bridge{RxSwIfIndex: p.index, BdID: b.bridge, Shg: b.group})
	netnstest.Do(t, p.netns, func() { p.onLink(t, b.host) })
	return p
}

// onLink adds the addresses of the kernel's side, and routes through the network's first addresses.
func (p pod) onLink(t testing.TB, host int) {
	t.Helper()
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	for _, own := range []string{p.prefix4(host), p.prefix6(host)} {
		a, err := netlink.ParseAddr(own)
		if err != nil {
			t.Fatal(err)
		}
		a.Flags = 0x02 // IFA_F_NODAD: usable at once
		if err := netlink.AddrAdd(link, a); err != nil {
			t.Fatal("add", own, err)
		}
	}
	for _, gateway := range []string{p.prefix4(1), p.prefix6(1)} {
		via := netip.MustParsePrefix(gateway).Addr()
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: via.AsSlice()}); err != nil {
			t.Fatal("route via", gateway, err)
		}
	}
}

// wantSilence fails the test if an echo request is answered.
func wantSilence(t testing.TB, from pod, to string) {
	t.Helper()
	dst := netip.MustParsePrefix(to).Addr()
	conn := listen(t, from, func() (*icmp.PacketConn, error) { return icmp.ListenPacket("ip4:icmp", "0.0.0.0") })
	defer conn.Close()
	echo := &icmp.Echo{ID: 8, Data: []byte("unanswered")}
	b, err := (&icmp.Message{Type: ipv4.ICMPTypeEcho, Body: echo}).Marshal(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.WriteTo(b, &net.IPAddr{IP: dst.AsSlice()}); err != nil {
		t.Fatal("send echo request:", err)
	}
	if answered(t, conn, expected{dst, ipv4.ICMPTypeEchoReply, 1, echo}) {
		t.Errorf("%s answered", to)
	}
}

// resolved is the MAC of an address in the neighbour table of the pod's kernel.
func (p pod) resolved(t testing.TB, to string) (mac string) {
	t.Helper()
	netnstest.Do(t, p.netns, func() {
		list, err := netlink.NeighList(0, netlink.FAMILY_ALL)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range list {
			if n.IP.String() == netip.MustParsePrefix(to).Addr().String() {
				mac = n.HardwareAddr.String()
			}
		}
	})
	return mac
}

func (p pod) mac(t testing.TB) (mac string) {
	t.Helper()
	netnstest.Do(t, p.netns, func() {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		mac = link.Attrs().HardwareAddr.String()
	})
	return mac
}

func TestBridgedPodsPingEachOtherAndTheirGateway(t *testing.T) {
	netnstest.Require(t)
	conn := start(t).connect(t)
	addBridge(t, conn, 1)
	bvi := addBVI(t, conn, 1)
	a := addBridgedPod(t, conn, bridged{bridge: 1, host: 2, flags: tapv2.TAP_API_FLAG_GSO})
	b := addBridgedPod(t, conn, bridged{bridge: 1, host: 3})
	c := addBridgedPod(t, conn, bridged{bridge: 1, host: 4})
	routed := addPod(t, conn, 1, 0)
	for _, to := range []string{
		a.prefix4(3), a.prefix6(3), a.prefix4(4), a.prefix6(4), a.prefix4(1), a.prefix6(1), routed.prefix4(2),
	} {
		ping(t, a, to)
	}
	ping(t, b, c.prefix6(4))
	ping(t, c, c.prefix4(1))
	ping(t, routed, a.prefix4(4)) // the BVI must solicit its MAC in the bridge domain
	ping(t, routed, a.prefix6(2))
	if got, want := a.resolved(t, a.prefix4(3)), b.mac(t); got != want {
		t.Errorf("%s is at %s for its neighbour, and is %s", a.prefix4(3), got, want)
	}
	want := map[string]interface_types.InterfaceIndex{a.mac(t): a.index, b.mac(t): b.index, c.mac(t): c.index}
	for _, e := range macs(t, conn, 1) {
		if index, ok := want[e.Mac.String()]; (ok && index == e.SwIfIndex && !e.StaticMac) ||
			(e.BviMac && e.SwIfIndex == bvi) {
			delete(want, e.Mac.String())
			continue
		}
		t.Errorf("entry %+v", e)
	}
	if len(want) != 0 {
		t.Errorf("not learned: %v", want)
	}
}

func macs(t testing.TB, conn api.Connection, bridge uint32) (list []*l2.L2FibTableDetails) {
	t.Helper()
	s, err := l2.NewServiceClient(conn).L2FibTableDump(t.Context(), &l2.L2FibTableDump{BdID: bridge})
	if err != nil {
		t.Fatal(err)
	}
	for d, err := s.Recv(); err == nil; d, err = s.Recv() {
		list = append(list, d)
	}
	return list
}

func TestBridgesWithTheSameAddressesAreSeparate(t *testing.T) {
	netnstest.Require(t)
	conn := start(t).connect(t)
	var pods [2][2]pod
	for n := range pods {
		id := uint32(n + 1)
		addBridge(t, conn, id)
		pods[n] = [2]pod{
			addBridgedPod(t, conn, bridged{bridge: id, host: 2}), addBridgedPod(t, conn, bridged{bridge: id, host: 3}),
		}
	}
	addBridgedPod(t, conn, bridged{bridge: 2, host: 4})
	for n := range pods {
		ping(t, pods[n][0], pods[n][1].prefix4(3))
		ping(t, pods[n][0], pods[n][1].prefix6(3))
		if got, want := pods[n][0].resolved(t, pods[n][1].prefix4(3)), pods[n][1].mac(t); got != want {
			t.Errorf("bridge domain %d: resolved %s, want %s", n+1, got, want)
		}
	}
	wantSilence(t, pods[0][0], pods[0][0].prefix4(4))
}

func TestSplitHorizonGroup(t *testing.T) {
	netnstest.Require(t)
	conn := start(t).connect(t)
	addBridge(t, conn, 1)
	addBVI(t, conn, 1)
	a := addBridgedPod(t, conn, bridged{bridge: 1, host: 2, group: 1})
	addBridgedPod(t, conn, bridged{bridge: 1, host: 3, group: 1})
	addBridgedPod(t, conn, bridged{bridge: 1, host: 4})
	ping(t, a, a.prefix4(4))
	ping(t, a, a.prefix6(4))
	ping(t, a, a.prefix4(1))
	wantSilence(t, a, a.prefix4(3))
}

func TestBridgedPodsTransferOverTCP(t *testing.T) {
	netnstest.Require(t)
	conn := start(t).connect(t)
	for n, flags := range []tapv2.TapFlags{tapv2.TAP_API_FLAG_GSO, 0} {
		t.Run(fmt.Sprintf("flags %d", flags), func(t *testing.T) {
			id := uint32(n + 1)
			addBridge(t, conn, id)
			to := addBridgedPod(t, conn, bridged{bridge: id, host: 2, flags: flags})
			transfer(t, addBridgedPod(t, conn, bridged{bridge: id, host: 3, flags: tapv2.TAP_API_FLAG_GSO}), to)
		})
	}
}

func TestTapThatLeavesItsBridgeRoutes(t *testing.T) {
	netnstest.Require(t)
	conn := start(t).connect(t)
	p := addPod(t, conn, 1, 0)
	join(t, conn, l2.SwInterfaceSetL2Bridge{RxSwIfIndex: p.index, BdID: 7})
	wantSilence(t, p, p.prefix4(1))
	if _, err := l2.NewServiceClient(conn).SwInterfaceSetL2Bridge(t.Context(), &l2.SwInterfaceSetL2Bridge{
		RxSwIfIndex: p.index,
	}); err != nil {
		t.Fatal(err)
	}
	ping(t, p, p.prefix4(1))
}
