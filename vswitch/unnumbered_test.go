package vswitch

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/tapv2"

	"github.com/weftnet/weft/internal/netnstest"
)

const (
	sharedGateway = "10.9.0.1/32"
	podVRF        = 7
)

// gateway adds the VRF and the loopback with the address that all pods use as gateway.
func gateway(t *testing.T, conn api.Connection) interface_types.InterfaceIndex {
	t.Helper()
	if _, err := ip.NewServiceClient(conn).IPTableAddDelV2(t.Context(), &ip.IPTableAddDelV2{
		IsAdd: true,
		Table: ip.IPTable{TableID: podVRF},
	}); err != nil {
		t.Fatal("add VRF:", err)
	}
	c := interfaces.NewServiceClient(conn)
	loop, err := c.CreateLoopback(t.Context(), &interfaces.CreateLoopback{})
	if err != nil {
		t.Fatal("create loopback:", err)
	}
	moveAndSetUp(t, conn, loop.SwIfIndex)
	if _, err := c.SwInterfaceAddDelAddress(t.Context(), &interfaces.SwInterfaceAddDelAddress{SwIfIndex: loop.SwIfIndex,
		IsAdd: true, Prefix: addressWithPrefix(t, sharedGateway)}); err != nil {
		t.Fatal("add address:", err)
	}
	return loop.SwIfIndex
}

func moveAndSetUp(t *testing.T, conn api.Connection, index interface_types.InterfaceIndex) {
	t.Helper()
	c := interfaces.NewServiceClient(conn)
	if _, err := c.SwInterfaceSetTable(t.Context(), &interfaces.SwInterfaceSetTable{
		SwIfIndex: index,
		VrfID:     podVRF,
	}); err != nil {
		t.Fatal("set table:", err)
	}
	if _, err := c.SwInterfaceSetFlags(t.Context(), &interfaces.SwInterfaceSetFlags{SwIfIndex: index,
		Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP}); err != nil {
		t.Fatal("set up:", err)
	}
}

// addHostPod adds a pod with one address and a host route over an unnumbered tap.
func addHostPod(t *testing.T, conn api.Connection, loop interface_types.InterfaceIndex, n int) pod {
	t.Helper()
	p := pod{netns: netnstest.New(t), n: n}
	tap, err := tapv2.NewServiceClient(conn).TapCreateV3(t.Context(), &tapv2.TapCreateV3{
		ID:               ^uint32(0),
		UseRandomMac:     true,
		HostNamespaceSet: true, HostNamespace: p.netns, HostIfNameSet: true, HostIfName: "eth0",
	})
	if err != nil {
		t.Fatal("create tap:", err)
	}
	p.index = tap.SwIfIndex
	moveAndSetUp(t, conn, p.index)
	if _, err := interfaces.NewServiceClient(conn).SwInterfaceSetUnnumbered(t.Context(),
		&interfaces.SwInterfaceSetUnnumbered{
			SwIfIndex: loop, UnnumberedSwIfIndex: p.index, IsAdd: true}); err != nil {
		t.Fatal("set unnumbered:", err)
	}
	own := netip.MustParsePrefix(p.address())
	route := ip.IPRouteV2{
		TableID: podVRF,
		Prefix:  ip_types.NewPrefix(net.IPNet{IP: own.Addr().AsSlice(), Mask: net.CIDRMask(32, 32)}),
		Paths: []fib_types.FibPath{
			{SwIfIndex: uint32(p.index), Nh: fib_types.FibPathNh{Address: ip_types.AddressUnionIP4(own.Addr().As4())}},
		},
	}
	if _, err := ip.NewServiceClient(conn).IPRouteAddDelV2(t.Context(), &ip.IPRouteAddDelV2{
		IsAdd: true,
		Route: route,
	}); err != nil {
		t.Fatal("add route:", err)
	}
	netnstest.Do(t, p.netns, func() { p.configureHost(t) })
	return p
}

func (p pod) address() string { return fmt.Sprintf("10.9.1.%d/32", p.n) }

// configureHost adds the address of the kernel's side, and an on-link gateway.
func (p pod) configureHost(t *testing.T) {
	t.Helper()
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	a, err := netlink.ParseAddr(p.address())
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrAdd(link, a); err != nil {
		t.Fatal("add address:", err)
	}
	via := net.IP(netip.MustParsePrefix(sharedGateway).Addr().AsSlice())
	for _, r := range []netlink.Route{
		{
			LinkIndex: link.Attrs().Index,
			Scope:     netlink.SCOPE_LINK,
			Dst:       &net.IPNet{IP: via, Mask: net.CIDRMask(32, 32)},
		},
		{LinkIndex: link.Attrs().Index, Gw: via},
	} {
		if err := netlink.RouteAdd(&r); err != nil {
			t.Fatal("add route:", err)
		}
	}
}

func TestPodsOnUnnumberedTapsPingEachOther(t *testing.T) {
	netnstest.Require(t)
	conn := start(t).connect(t)
	loop := gateway(t, conn)
	a := addHostPod(t, conn, loop, 2)
	b := addHostPod(t, conn, loop, 3)
	ping(t, a, sharedGateway)
	ping(t, a, b.address())
	ping(t, b, a.address())
}
