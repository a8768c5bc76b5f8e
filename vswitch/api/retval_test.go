package api

import (
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/tapv2"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/model/modeltest"
)

const unknown = interface_types.InterfaceIndex(4711)

// refusal is a call and the error that it should return.
type refusal struct {
	call func() error
	want error
}

func checkRefusals(t *testing.T, calls map[string]refusal) {
	t.Helper()
	for name, c := range calls {
		t.Run(name, func(t *testing.T) {
			if err := c.call(); err != c.want { //nolint:errorlint // the number itself is the answer
				t.Fatalf("want %v, got %v", c.want, err)
			}
		})
	}
}

func TestInterfaceRetvals(t *testing.T) {
	a := newTestClient(t.Context(), start(t, Limits{}).connect(t))
	loop := a.loopback(t)
	checkRefusals(t, map[string]refusal{
		"flags of an unknown interface": {
			calling(t, a, a.ifs.SwInterfaceSetFlags, &interfaces.SwInterfaceSetFlags{SwIfIndex: unknown}),
			api.INVALID_SW_IF_INDEX,
		},
		"an empty tag": {
			calling(t, a, a.ifs.SwInterfaceTagAddDel, &interfaces.SwInterfaceTagAddDel{IsAdd: true, SwIfIndex: loop}),
			api.INVALID_VALUE,
		},
		"a MAC for local0": {
			calling(t, a, a.ifs.SwInterfaceSetMacAddress, &interfaces.SwInterfaceSetMacAddress{}), api.UNIMPLEMENTED,
		},
		"a link MTU for local0": {
			calling(t, a, a.ifs.HwInterfaceSetMtu, &interfaces.HwInterfaceSetMtu{Mtu: 1500}), api.FEATURE_DISABLED,
		},
		"a link MTU for a loopback": {
			calling(t, a, a.ifs.HwInterfaceSetMtu, &interfaces.HwInterfaceSetMtu{SwIfIndex: loop, Mtu: 1500}),
			api.UNSUPPORTED,
		},
		"MTUs that differ between IPv4 and IPv6": {
			calling(t, a, a.ifs.SwInterfaceSetMtu, &interfaces.SwInterfaceSetMtu{
				SwIfIndex: loop,
				Mtu:       []uint32{9000, 1500, 1400, 0},
			}),
			api.UNSUPPORTED,
		},
	})
}

func TestVRFLoopbackAndIPv6Retvals(t *testing.T) {
	a := newTestClient(t.Context(), start(t, Limits{}).connect(t))
	loop := a.loopback(t)
	checkRefusals(t, map[string]refusal{
		"a VRF that does not exist": {
			calling(t, a, a.ifs.SwInterfaceSetTable, &interfaces.SwInterfaceSetTable{SwIfIndex: loop, VrfID: 7}),
			api.NO_SUCH_FIB,
		},
		"a loopback instance in use": {
			calling(t, a, a.ifs.CreateLoopbackInstance, &interfaces.CreateLoopbackInstance{IsSpecified: true}),
			api.INVALID_REGISTRATION,
		},
		"deleting local0 as a loopback": {
			calling(t, a, a.ifs.DeleteLoopback, &interfaces.DeleteLoopback{}), api.INVALID_SW_IF_INDEX,
		},
		"unsubscribing without a subscription": {
			calling(t, a, a.ifs.WantInterfaceEvents, &interfaces.WantInterfaceEvents{}), api.INVALID_REGISTRATION,
		},
		"IPv6 off where it is not on": {
			calling(t, a, a.ips.SwInterfaceIP6EnableDisable, &ip.SwInterfaceIP6EnableDisable{SwIfIndex: loop}),
			api.IP6_NOT_ENABLED,
		},
		"an unknown donor": {
			calling(t, a, a.ifs.SwInterfaceSetUnnumbered, &interfaces.SwInterfaceSetUnnumbered{
				SwIfIndex:           unknown,
				UnnumberedSwIfIndex: loop,
				IsAdd:               true,
			}),
			api.INVALID_SW_IF_INDEX_2,
		},
	})
}

func TestAddressRetvals(t *testing.T) {
	a := newTestClient(t.Context(), start(t, Limits{}).connect(t))
	one := a.loopback(t)
	two := a.loopback(t)
	for _, p := range []string{"10.0.0.1/24", "fd00::1/64", "fe80::5/128"} {
		if err := a.address(t, one, p, true); err != nil {
			t.Fatal(p, err)
		}
	}
	for name, c := range map[string]struct {
		index  interface_types.InterfaceIndex
		prefix string
		add    bool
		want   error
	}{
		"the same address again":                {one, "10.0.0.1/24", true, api.ADDRESS_IN_USE},
		"another address of the prefix":         {one, "10.0.0.2/24", true, nil},
		"an overlapping prefix":                 {one, "10.0.0.9/32", true, api.ADDRESS_IN_USE},
		"the prefix on another interface":       {two, "10.0.0.3/24", true, api.ADDRESS_IN_USE},
		"the same address again, IPv6":          {one, "fd00::1/64", true, api.DUPLICATE_IF_ADDRESS},
		"the prefix on another interface, IPv6": {two, "fd00::2/64", true, api.DUPLICATE_IF_ADDRESS},
		"no length":                             {two, "10.9.0.1/0", true, api.ADDRESS_LENGTH_MISMATCH},
		"local0":                                {0, "10.9.0.1/24", true, api.UNSUPPORTED},
		"unknown interface":                     {unknown, "10.9.0.1/24", true, api.INVALID_SW_IF_INDEX},
		"link-local that is not a /128":         {one, "fe80::1/64", true, api.ADDRESS_LENGTH_MISMATCH},
		"deleting an unknown address":           {two, "10.0.0.1/24", false, api.ADDRESS_NOT_FOUND_FOR_INTERFACE},
		"deleting with another length":          {one, "10.0.0.1/25", false, api.ADDRESS_NOT_FOUND_FOR_INTERFACE},
		"deleting the link-local address":       {one, "fe80::5/128", false, api.ADDRESS_NOT_DELETABLE},
		"deleting another link-local address":   {one, "fe80::6/128", false, api.ADDRESS_NOT_FOUND_FOR_INTERFACE},
	} {
		t.Run(name, func(t *testing.T) {
			if err := a.address(t, c.index, c.prefix, c.add); err != c.want { //nolint:errorlint // the number itself is the answer
				t.Fatalf("want %v, got %v", c.want, err)
			}
		})
	}
}

func TestTapRetvals(t *testing.T) {
	r := start(t, Limits{})
	a := newTestClient(t.Context(), r.connect(t))
	mustInvoke(t, a, a.taps.TapCreateV3, &tapv2.TapCreateV3{ID: 5})
	for name, c := range map[string]struct {
		tap  tapv2.TapCreateV3
		want error
	}{
		"an id in use":          {tapv2.TapCreateV3{ID: 5}, api.INVALID_INTERFACE},
		"an id out of range":    {tapv2.TapCreateV3{ID: 8193}, api.UNSPECIFIED},
		"a ring size not 2^n":   {tapv2.TapCreateV3{ID: 6, RxRingSz: 300}, api.INIT_FAILED},
		"seventeen queues":      {tapv2.TapCreateV3{ID: 6, NumRxQueues: 17}, api.SYSCALL_ERROR_2},
		"a tun":                 {tapv2.TapCreateV3{ID: 6, TapFlags: tapv2.TAP_API_FLAG_TUN}, api.UNSUPPORTED},
		"attaching":             {tapv2.TapCreateV3{ID: 6, TapFlags: tapv2.TAP_API_FLAG_ATTACH}, api.UNSUPPORTED},
		"persistence":           {tapv2.TapCreateV3{ID: 6, TapFlags: tapv2.TAP_API_FLAG_PERSIST}, api.UNSUPPORTED},
		"a flag unknown to VPP": {tapv2.TapCreateV3{ID: 6, TapFlags: 1 << 30}, api.UNSUPPORTED},
		"a bridge":              {tapv2.TapCreateV3{ID: 6, HostBridgeSet: true, HostBridge: "br0"}, api.UNSUPPORTED},
		"a gateway":             {tapv2.TapCreateV3{ID: 6, HostIP4GwSet: true}, api.UNSUPPORTED},
		"a name too long": {
			tapv2.TapCreateV3{ID: 6, HostIfNameSet: true, HostIfName: "sixteen-letters-"}, api.SYSCALL_ERROR_3,
		},
		"a multicast host MAC": {
			tapv2.TapCreateV3{ID: 6, HostMacAddrSet: true, HostMacAddr: [6]byte{1}}, api.NETLINK_ERROR,
		},
		"an MTU too long": {
			tapv2.TapCreateV3{ID: 6, HostMtuSet: true, HostMtuSize: 1 << 20}, api.NETLINK_ERROR,
		},
		"a prefix too long": {
			tapv2.TapCreateV3{ID: 6, HostIP4PrefixSet: true, HostIP4Prefix: ip_types.IP4AddressWithPrefix{Len: 33}},
			api.NETLINK_ERROR,
		},
		"a namespace path with ..": {
			tapv2.TapCreateV3{ID: 6, HostNamespaceSet: true, HostNamespace: "../x"}, api.SYSCALL_ERROR_2,
		},
		"an invalid pid": {
			tapv2.TapCreateV3{ID: 6, HostNamespaceSet: true, HostNamespace: "pid:x"}, api.SYSCALL_ERROR_2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			reply, err := invoke(t, a, a.taps.TapCreateV3, &c.tap)
			if err != c.want || reply.SwIfIndex != allInterfaces { //nolint:errorlint // the number itself is the answer
				t.Fatalf("want %v, got %v and index %d", c.want, err, reply.SwIfIndex)
			}
		})
	}
	r.engine.Look(func(s modeltest.State) {
		if len(s.Taps) != 1 || len(s.Interfaces) != 2 {
			t.Fatalf("rejected taps exist: %+v", s.Taps)
		}
	})
}

func TestTapRejectedByThePacketPathLeavesNoState(t *testing.T) {
	r := start(t, Limits{})
	a := newTestClient(t.Context(), r.connect(t))
	r.engine.FailPorts(forward.ErrNoPort)
	if _, err := invoke(t, a, a.taps.TapCreateV3, &tapv2.TapCreateV3{ID: 1}); err != api.SYSCALL_ERROR_3 { //nolint:errorlint // the number itself
		t.Fatal(err)
	}
	if list := a.interfaces(t); len(list) != 1 {
		t.Fatalf("interfaces: %v", list)
	}
	r.engine.FailPorts(nil)
	if _, err := invoke(t, a, a.taps.TapCreateV3, &tapv2.TapCreateV3{ID: 1}); err != nil {
		t.Fatal("its id is still in use:", err)
	}
}

func TestRouteAndNeighbourRetvals(t *testing.T) {
	a := newTestClient(t.Context(), start(t, Limits{}).connect(t))
	loop := uint32(a.loopback(t))
	via := func(p fib_types.FibPath) ip.IPRouteV2 {
		return ip.IPRouteV2{Prefix: toPrefix(prefix("10.1.0.0/16")), Paths: []fib_types.FibPath{p}}
	}
	for name, c := range map[string]struct {
		route ip.IPRouteV2
		want  error
	}{
		"no paths": {ip.IPRouteV2{Prefix: toPrefix(prefix("10.1.0.0/16"))}, api.VPPApiError(-52)},
		"unknown table": {
			ip.IPRouteV2{TableID: 9, Paths: []fib_types.FibPath{{SwIfIndex: loop}}}, api.NO_SUCH_FIB,
		},
		"unknown address family": {
			ip.IPRouteV2{
				Prefix: ip_types.Prefix{Address: ip_types.Address{Af: 9}, Len: 16},
				Paths:  []fib_types.FibPath{{SwIfIndex: loop}},
			},
			api.INVALID_ADDRESS_FAMILY,
		},
		"unknown interface":  {via(fib_types.FibPath{SwIfIndex: 4711}), api.NO_MATCHING_INTERFACE},
		"unknown next table": {via(fib_types.FibPath{SwIfIndex: ^uint32(0), TableID: 9}), api.NO_SUCH_FIB},
		"labels":             {via(fib_types.FibPath{SwIfIndex: loop, NLabels: 1}), api.UNSUPPORTED},
		"a flag": {
			via(fib_types.FibPath{SwIfIndex: loop, Flags: fib_types.FIB_API_PATH_FLAG_RESOLVE_VIA_HOST}),
			api.UNSUPPORTED,
		},
		"an unsupported path type": {
			via(fib_types.FibPath{SwIfIndex: loop, Type: fib_types.FIB_API_PATH_TYPE_DVR}), api.UNSUPPORTED,
		},
		"MPLS": {
			via(fib_types.FibPath{SwIfIndex: loop, Proto: fib_types.FIB_API_PATH_NH_PROTO_MPLS}),
			api.FIB_PATH_UNSUPPORTED_NH_PROTO,
		},
		"another source": {
			ip.IPRouteV2{Src: 12, Paths: []fib_types.FibPath{{SwIfIndex: loop}}}, api.UNSUPPORTED,
		},
		"an invalid family": {
			ip.IPRouteV2{
				Prefix: ip_types.Prefix{Address: ip_types.Address{Af: 9}},
				Paths:  []fib_types.FibPath{{SwIfIndex: loop}},
			},
			api.INVALID_ADDRESS_FAMILY,
		},
		"an invalid prefix length": {
			ip.IPRouteV2{Prefix: ip_types.Prefix{Len: 33}, Paths: []fib_types.FibPath{{SwIfIndex: loop}}},
			api.INVALID_PREFIX_LENGTH,
		},
		"a drop path beside another": {
			ip.IPRouteV2{Paths: []fib_types.FibPath{{SwIfIndex: loop}, {Type: fib_types.FIB_API_PATH_TYPE_DROP}}},
			api.UNSUPPORTED,
		},
		"a valid route":             {via(fib_types.FibPath{SwIfIndex: loop}), nil},
		"an unreachable route":      {via(fib_types.FibPath{Type: fib_types.FIB_API_PATH_TYPE_ICMP_UNREACH}), nil},
		"a lookup in another table": {via(fib_types.FibPath{SwIfIndex: ^uint32(0)}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := invoke(t, a, a.ips.IPRouteAddDelV2, &ip.IPRouteAddDelV2{IsAdd: true, Route: c.route})
			if err != c.want { //nolint:errorlint // the number itself is the answer
				t.Fatalf("want %v, got %v", c.want, err)
			}
		})
	}
	if err := a.neighbour(t, unknown, "10.0.0.9", true); err != api.INVALID_SW_IF_INDEX { //nolint:errorlint // the number itself
		t.Error("neighbour on an unknown interface:", err)
	}
	if err := a.neighbour(t, 1, "10.0.0.9", false); err != api.NO_SUCH_ENTRY { //nolint:errorlint // the number itself
		t.Error("unknown neighbour:", err)
	}
	if _, err := invoke(t, a, a.nbrs.IPNeighborFlush, &ip_neighbor.IPNeighborFlush{Af: 9}); err != api.INVALID_ADDRESS_FAMILY { //nolint:errorlint // the number itself
		t.Error("flush with an invalid family:", err)
	}
}
