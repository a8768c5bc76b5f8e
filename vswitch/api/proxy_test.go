package api

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/arp"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip6_nd"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/model"
	"github.com/weftnet/weft/vswitch/model/modeltest"
)

func (a *testClient) arps() arp.RPCService   { return arp.NewServiceClient(a.conn) }
func (a *testClient) nds() ip6_nd.RPCService { return ip6_nd.NewServiceClient(a.conn) }

func (a *testClient) ranges(t testingT) []arp.ProxyArp {
	t.Helper()
	s, err := a.arps().ProxyArpDump(a.context, &arp.ProxyArpDump{})
	var list []arp.ProxyArp
	for _, d := range collect[*arp.ProxyArpDetails](t, s, err) {
		list = append(list, d.Proxy)
	}
	return list
}

// rangeOf adds or deletes a range and returns VPP's error.
func (a *testClient) rangeOf(t testingT, p arp.ProxyArp, add bool) error {
	t.Helper()
	_, err := invoke(t, a, a.arps().ProxyArpAddDel, &arp.ProxyArpAddDel{IsAdd: add, Proxy: p})
	return err
}

// host adds or deletes a proxied host and returns VPP's error.
func (a *testClient) host(t testingT, index interface_types.InterfaceIndex, addr string, add bool) error {
	t.Helper()
	raw := netip.MustParseAddr(addr).As16()
	_, err := invoke(t, a, a.nds().IP6ndProxyAddDel, &ip6_nd.IP6ndProxyAddDel{SwIfIndex: index, IsAdd: add, IP: raw})
	return err
}

func (a *testClient) hosts(t testingT) []ip6_nd.IP6ndProxyDetails {
	t.Helper()
	s, err := a.nds().IP6ndProxyDump(a.context, &ip6_nd.IP6ndProxyDump{})
	var list []ip6_nd.IP6ndProxyDetails
	for _, d := range collect[*ip6_nd.IP6ndProxyDetails](t, s, err) {
		list = append(list, *d)
	}
	return list
}

func TestProxyARPRanges(t *testing.T) {
	r := start(t, Limits{})
	a := newTestClient(t.Context(), r.connect(t))
	table := ip.IPTable{TableID: 7}
	mustInvoke(t, a, a.ips.IPTableAddDelV2, &ip.IPTableAddDelV2{IsAdd: true, Table: table})
	one := arp.ProxyArp{Low: ip_types.IP4Address{10, 1, 1, 2}, Hi: ip_types.IP4Address{10, 1, 1, 9}}
	two := arp.ProxyArp{TableID: 7, Low: ip_types.IP4Address{10, 1, 1, 2}, Hi: ip_types.IP4Address{10, 1, 1, 9}}
	for _, p := range []arp.ProxyArp{one, two, one} {
		if err := a.rangeOf(t, p, true); err != nil {
			t.Fatal(err)
		}
	}
	if got := a.ranges(t); !slices.Equal(got, []arp.ProxyArp{one, two}) {
		t.Errorf("dump %+v", got)
	}
	if err := a.rangeOf(t, one, false); err != nil {
		t.Fatal(err)
	}
	if err := a.rangeOf(t, one, false); !errors.Is(err, api.NO_SUCH_ENTRY) {
		t.Errorf("removed twice: %v", err)
	}
	for _, add := range []bool{true, false} {
		if err := a.rangeOf(t, arp.ProxyArp{TableID: 8}, add); !errors.Is(err, api.NO_SUCH_FIB) {
			t.Errorf("unknown table: %v", err)
		}
	}
	want := forward.ProxyRange{Table: 7, Low: netip.MustParseAddr("10.1.1.2"), High: netip.MustParseAddr("10.1.1.9")}
	r.engine.Look(func(s modeltest.State) {
		if !slices.Equal(s.Proxies.ARP, []forward.ProxyRange{want}) {
			t.Errorf("packet path: %+v", s.Proxies)
		}
	})
	mustInvoke(t, a, a.ips.IPTableAddDelV2, &ip.IPTableAddDelV2{Table: table})
	if got := a.ranges(t); len(got) != 0 {
		t.Errorf("after the delete of their tables: %+v", got)
	}
}

func TestProxyARPInterfaces(t *testing.T) {
	r := start(t, Limits{})
	a := newTestClient(t.Context(), r.connect(t))
	one := a.loopback(t)
	two := a.loopback(t)
	set := func(index interface_types.InterfaceIndex, on bool) error {
		_, err := invoke(t, a, a.arps().ProxyArpIntfcEnableDisable, &arp.ProxyArpIntfcEnableDisable{
			SwIfIndex: index,
			Enable:    on,
		})
		return err
	}
	listed := func() (list []uint32) {
		s, err := a.arps().ProxyArpIntfcDump(a.context, &arp.ProxyArpIntfcDump{})
		for _, d := range collect[*arp.ProxyArpIntfcDetails](t, s, err) {
			list = append(list, d.SwIfIndex)
		}
		return list
	}
	for _, index := range []interface_types.InterfaceIndex{one, two, two} {
		if err := set(index, true); err != nil {
			t.Fatal(err)
		}
	}
	if got := listed(); !slices.Equal(got, []uint32{uint32(one), uint32(two)}) {
		t.Errorf("dump %v", got)
	}
	if err := set(one, false); err != nil || len(listed()) != 1 {
		t.Errorf("off: %v, %v", err, listed())
	}
	if err := set(4711, true); !errors.Is(err, api.INVALID_SW_IF_INDEX) {
		t.Errorf("unknown interface: %v", err)
	}
	r.engine.Look(func(s modeltest.State) {
		if s.Interfaces[uint32(one)].ProxyARP || !s.Interfaces[uint32(two)].ProxyARP {
			t.Error("the packet path has another state")
		}
	})
}

func TestProxyNDAddsRouteAndEndsWithItsInterface(t *testing.T) {
	r := start(t, Limits{})
	a := newTestClient(t.Context(), r.connect(t))
	one := a.loopback(t)
	two := a.loopback(t)
	const addr = "fd00::7"
	for _, index := range []interface_types.InterfaceIndex{one, two, one} {
		if err := a.host(t, index, addr, true); err != nil {
			t.Fatal(err)
		}
	}
	raw := netip.MustParseAddr(addr).As16()
	want := []ip6_nd.IP6ndProxyDetails{{SwIfIndex: one, IP: raw}, {SwIfIndex: two, IP: raw}}
	if got := a.hosts(t); !slices.Equal(got, want) {
		t.Errorf("dump %+v", got)
	}
	routes := a.routes(t, ip.IPTable{IsIP6: true}, uint8(model.SourceProxyND))
	if len(routes) != 1 || routes[0].Prefix.String() != addr+"/128" || len(routes[0].Paths) != 2 {
		t.Errorf("routes %+v", routes)
	}
	if err := a.neighbour(t, one, addr, true); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := a.host(t, one, addr, false); err != nil {
			t.Fatal(err)
		}
	}
	if n := a.neighbours(t, ip_types.ADDRESS_IP6); len(n) != 0 || !slices.Equal(a.hosts(t), want[1:]) {
		t.Errorf("neighbours %+v, hosts %+v", n, a.hosts(t))
	}
	mustInvoke(t, a, a.ifs.DeleteLoopback, &interfaces.DeleteLoopback{SwIfIndex: two})
	if got := a.routes(t, ip.IPTable{IsIP6: true}, uint8(model.SourceProxyND)); len(got) != 0 || len(a.hosts(t)) != 0 {
		t.Errorf("left: %+v %+v", got, a.hosts(t))
	}
	if err := a.host(t, 4711, addr, true); !errors.Is(err, api.INVALID_SW_IF_INDEX) {
		t.Errorf("unknown interface: %v", err)
	}
}

func TestProxyNDForAllAddresses(t *testing.T) {
	r := start(t, Limits{})
	a := newTestClient(t.Context(), r.connect(t))
	loop := a.loopback(t)
	for _, on := range []bool{true, false} {
		mustInvoke(t, a, a.nds().IP6ndProxyEnableDisable, &ip6_nd.IP6ndProxyEnableDisable{
			SwIfIndex: loop,
			IsEnable:  on,
		})
		r.engine.Look(func(s modeltest.State) {
			if s.Interfaces[uint32(loop)].ProxyND != on {
				t.Errorf("the packet path does not have %v", on)
			}
		})
	}
}
