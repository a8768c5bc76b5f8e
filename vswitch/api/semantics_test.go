package api

import (
	"net/netip"
	"strings"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/tapv2"
	"go.fd.io/govpp/binapi/vlib"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func TestEventsHaveChangedFlagsAndPIDOfSubscriber(t *testing.T) {
	r := start(t, Limits{})
	conn := r.connect(t)
	a := newTestClient(t.Context(), conn)
	watcher, err := conn.WatchEvent(t.Context(), &interfaces.SwInterfaceEvent{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	mustInvoke(t, a, a.ifs.WantInterfaceEvents, &interfaces.WantInterfaceEvents{EnableDisable: 1, PID: 42})
	tap := mustInvoke(t, a, a.taps.TapCreateV3, &tapv2.TapCreateV3{ID: 1})
	a.setUp(t, tap.SwIfIndex, true)
	a.setUp(t, tap.SwIfIndex, true) // changes nothing
	a.setUp(t, tap.SwIfIndex, false)
	a.setUp(t, tap.SwIfIndex, true)
	mustInvoke(t, a, a.taps.TapDeleteV2, &tapv2.TapDeleteV2{SwIfIndex: tap.SwIfIndex})
	up := interface_types.IF_STATUS_API_FLAG_ADMIN_UP
	link := interface_types.IF_STATUS_API_FLAG_LINK_UP
	for n, want := range []interfaces.SwInterfaceEvent{
		{Flags: link}, {Flags: up}, {}, {Flags: up | link}, {Deleted: true},
	} {
		want.PID = 42
		want.SwIfIndex = tap.SwIfIndex
		if got := <-watcher.Events(); *got.(*interfaces.SwInterfaceEvent) != want {
			t.Fatalf("event %d: %+v, wanted %+v", n, got, want)
		}
	}
}

func TestSecondSubscriptionIsRejected(t *testing.T) {
	a := newTestClient(t.Context(), start(t, Limits{}).connect(t))
	on := &interfaces.WantInterfaceEvents{EnableDisable: 1}
	mustInvoke(t, a, a.ifs.WantInterfaceEvents, on)
	if _, err := invoke(t, a, a.ifs.WantInterfaceEvents, on); err != api.INVALID_REGISTRATION { //nolint:errorlint // the number itself
		t.Fatal(err)
	}
}

func TestInterfaceDumpFiltersAsVPPDoes(t *testing.T) {
	a := newTestClient(t.Context(), start(t, Limits{}).connect(t))
	a.loopback(t)
	second := a.loopback(t)
	for name, c := range map[string]struct {
		req  interfaces.SwInterfaceDump
		want string
	}{
		"all":              {interfaces.SwInterfaceDump{SwIfIndex: allInterfaces}, "local0 loop0 loop1"},
		"index 0 is all":   {interfaces.SwInterfaceDump{}, "local0 loop0 loop1"},
		"one index":        {interfaces.SwInterfaceDump{SwIfIndex: second}, "loop1"},
		"an unknown index": {interfaces.SwInterfaceDump{SwIfIndex: unknown}, ""},
		"part of a name": {
			interfaces.SwInterfaceDump{SwIfIndex: allInterfaces, NameFilterValid: true, NameFilter: "OOP"},
			"loop0 loop1",
		},
		"a name wins over an index": {
			interfaces.SwInterfaceDump{SwIfIndex: second, NameFilterValid: true, NameFilter: "loc"}, "local0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := a.ifs.SwInterfaceDump(t.Context(), &c.req)
			var names []string
			for _, d := range collect[*interfaces.SwInterfaceDetails](t, s, err) {
				names = append(names, d.InterfaceName)
			}
			if got := strings.Join(names, " "); got != c.want {
				t.Fatalf("got %q, wanted %q", got, c.want)
			}
		})
	}
}

func TestInterfaceIndexIsNotReusedAtOnce(t *testing.T) {
	a := newTestClient(t.Context(), start(t, Limits{}).connect(t))
	seen := map[interface_types.InterfaceIndex]bool{}
	for range 20 {
		index := a.loopback(t)
		if seen[index] {
			t.Fatalf("index %d is reused", index)
		}
		seen[index] = true
		mustInvoke(t, a, a.ifs.DeleteLoopback, &interfaces.DeleteLoopback{SwIfIndex: index})
	}
}

func TestLinkLocalSlash128BecomesTheLinkLocalAddress(t *testing.T) {
	a := newTestClient(t.Context(), start(t, Limits{}).connect(t))
	loop := a.loopback(t)
	if err := a.address(t, loop, "fe80::77/128", true); err != nil {
		t.Fatal(err)
	}
	reply, err := invoke(t, a, a.ips.SwInterfaceIP6GetLinkLocalAddress, &ip.SwInterfaceIP6GetLinkLocalAddress{
		SwIfIndex: loop,
	})
	if err != nil || reply.IP.String() != "fe80::77" {
		t.Fatalf("%v, %v", reply, err)
	}
	if list := a.addresses(t, loop, true); len(list) != 0 {
		t.Fatal("it is in the address dump:", list)
	}
}

func TestSetTableFailsWhileInterfaceHasAddressesOfTheFamily(t *testing.T) {
	a := newTestClient(t.Context(), start(t, Limits{}).connect(t))
	loop := a.loopback(t)
	for _, isIP6 := range []bool{false, true} {
		mustInvoke(t, a, a.ips.IPTableAddDelV2, &ip.IPTableAddDelV2{
			IsAdd: true,
			Table: ip.IPTable{TableID: 3, IsIP6: isIP6},
		})
	}
	if err := a.address(t, loop, "10.0.0.1/24", true); err != nil {
		t.Fatal(err)
	}
	set := func(isIP6 bool) error {
		_, err := invoke(t, a, a.ifs.SwInterfaceSetTable, &interfaces.SwInterfaceSetTable{
			SwIfIndex: loop,
			IsIPv6:    isIP6,
			VrfID:     3,
		})
		return err
	}
	if err := set(false); err != api.ADDRESS_FOUND_FOR_INTERFACE { //nolint:errorlint // the number itself
		t.Fatal("IPv4:", err)
	}
	if err := set(true); err != nil {
		t.Fatal("IPv6:", err)
	}
	got, err := invoke(t, a, a.ifs.SwInterfaceGetTable, &interfaces.SwInterfaceGetTable{SwIfIndex: loop, IsIPv6: true})
	if err != nil || got.VrfID != 3 {
		t.Fatalf("%v, %v", got, err)
	}
}

func TestRouteDumpReturnsWhatWasAdded(t *testing.T) {
	a := newTestClient(t.Context(), start(t, Limits{}).connect(t))
	loop := uint32(a.loopback(t))
	route := ip.IPRouteV2{Prefix: toPrefix(prefix("fd01::/48")), Paths: []fib_types.FibPath{
		{
			SwIfIndex: loop,
			Weight:    3,
			Proto:     fib_types.FIB_API_PATH_NH_PROTO_IP6,
			Nh:        fib_types.FibPathNh{Address: toUnion(netip.MustParseAddr("fd00::2"))},
		},
		{
			SwIfIndex:  ^uint32(0),
			Weight:     1,
			Preference: 1,
			Proto:      fib_types.FIB_API_PATH_NH_PROTO_IP6,
			Nh:         fib_types.FibPathNh{Address: toUnion(netip.MustParseAddr("fd00::3"))},
		}}}
	mustInvoke(t, a, a.ips.IPRouteAddDelV2, &ip.IPRouteAddDelV2{IsAdd: true, Route: route})
	list := a.routes(t, ip.IPTable{IsIP6: true}, 8)
	if len(list) != 1 || list[0].Prefix != route.Prefix || len(list[0].Paths) != 2 {
		t.Fatalf("%+v", list)
	}
	for n := range route.Paths {
		if list[0].Paths[n] != route.Paths[n] {
			t.Errorf("path %d: %+v, wanted %+v", n, list[0].Paths[n], route.Paths[n])
		}
	}
}

func TestUnnumberedInterfaceUsesAddressesOfItsDonor(t *testing.T) {
	a := newTestClient(t.Context(), start(t, Limits{}).connect(t))
	donor := a.loopback(t)
	borrower := a.loopback(t)
	if err := a.address(t, donor, "10.0.0.1/32", true); err != nil {
		t.Fatal(err)
	}
	req := &interfaces.SwInterfaceSetUnnumbered{SwIfIndex: donor, UnnumberedSwIfIndex: borrower, IsAdd: true}
	mustInvoke(t, a, a.ifs.SwInterfaceSetUnnumbered, req)
	s, err := a.ips.IPUnnumberedDump(t.Context(), &ip.IPUnnumberedDump{SwIfIndex: allInterfaces})
	list := collect[*ip.IPUnnumberedDetails](t, s, err)
	if len(list) != 1 || list[0].SwIfIndex != borrower || list[0].IPSwIfIndex != donor {
		t.Fatalf("%+v", list)
	}
	if err := a.address(t, borrower, "10.0.5.1/24", true); err != api.UNEXPECTED_INTF_STATE { //nolint:errorlint // the number itself
		t.Fatal("adding an own address:", err)
	}
}

func TestTapDumpReturnsWhatWasCreated(t *testing.T) {
	a := newTestClient(t.Context(), start(t, Limits{}).connect(t))
	reply, err := invoke(t, a, a.taps.TapCreateV3, &tapv2.TapCreateV3{
		ID:               ^uint32(0),
		HostIfNameSet:    true,
		HostIfName:       "eth0",
		RxRingSz:         512,
		HostMtuSet:       true,
		HostMtuSize:      1400,
		HostMacAddrSet:   true,
		HostMacAddr:      [6]byte{2, 1},
		TapFlags:         tapv2.TAP_API_FLAG_GSO,
		HostNamespaceSet: true, HostNamespace: "/run/netns/x", Tag: strings.Repeat("t", 70),
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := a.taps.SwInterfaceTapV2Dump(t.Context(), &tapv2.SwInterfaceTapV2Dump{SwIfIndex: allInterfaces})
	list := collect[*tapv2.SwInterfaceTapV2Details](t, s, err)
	want := tapv2.SwInterfaceTapV2Details{
		SwIfIndex:   uint32(reply.SwIfIndex),
		DevName:     "tap0",
		HostIfName:  "eth0",
		RxRingSz:    512,
		TxRingSz:    256,
		HostMtuSize: 1400, HostMacAddr: [6]byte{2, 1}, TapFlags: tapv2.TAP_API_FLAG_GSO, HostNamespace: "/run/netns/x",
	}
	if len(list) != 1 || *list[0] != want {
		t.Fatalf("%+v, wanted %+v", list, want)
	}
	if d := a.interfaces(t)[1]; d.Tag != strings.Repeat("t", 63) || d.InterfaceName != "tap0" ||
		d.InterfaceDevType != "virtio" {
		t.Fatalf("%+v", d)
	}
}

func TestCommandsAndUnknownCommand(t *testing.T) {
	r := start(t, Limits{})
	a := newTestClient(t.Context(), r.connect(t))
	mustInvoke(t, a, a.taps.TapCreateV3, &tapv2.TapCreateV3{ID: 0})
	cli := vlib.NewServiceClient(a.conn)
	for _, c := range []struct{ command, want string }{
		{"show version", program},
		{"show   interface", "tap0"},
		{"show errors", "ethernet-input  unknown ethernet type"},
		{"show trace", "No packets in trace buffer"},
		{"trace add virtio-input 5", ""},
		{"show trace", "a frame on 1, of 5 at most"},
		{"clear trace", ""},
		{"show trace", "No packets in trace buffer"},
		{"show ip fib", "ipv4-VRF:0"},
		{"show ip6 fib table 0", "fe80::/10 src:special"},
		{"show ip neighbors", "Interface"},
		{"trace add virtio-input x", "unknown input `x'"},
		{"destroy everything", "unknown input `destroy everything'"},
		{"", "unknown input"},
	} {
		reply, err := invoke(t, a, cli.CliInband, &vlib.CliInband{Cmd: c.command})
		if err != nil || !strings.Contains(reply.Reply, c.want) {
			t.Errorf("%q: %v\n%s", c.command, err, reply.Reply)
		}
	}
}
