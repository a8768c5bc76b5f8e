package vpp

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/wire"
)

// fault is the error of a descriptor's Validate.
func fault[V any](validate func(string, V) error, name string, v V) string {
	if err := validate(name, v); err != nil {
		return err.Error()
	}
	return ""
}

// verdict is the error of a Validate, and a part of the expected text; "": no error.
type verdict struct{ name, got, want string }

func (v verdict) judge(t *testing.T) {
	t.Helper()
	if v.want == "" && v.got != "" || !strings.Contains(v.got, v.want) {
		t.Errorf("%s: %q, want %q", v.name, v.got, v.want)
	}
}

func TestInvalidValuesAreRefused(t *testing.T) {
	tap := func(change func(*wire.Interface)) string {
		v := wire.Interface{Type: wire.TypeTap, Tap: wire.Tap{Name: "eth0"}}
		change(&v)
		return fault(validateInterface, "pod-a", v)
	}
	p4 := netip.MustParsePrefix("10.0.0.1/24")
	p6 := netip.MustParsePrefix("fe80::1/64")
	route := func(paths ...wire.Path) string {
		to := p4.Masked()
		return fault(validateRoute, wire.RouteName("v", to), wire.Route{VRF: "v", Prefix: to, Paths: paths})
	}
	for _, tt := range []verdict{
		{"a good tap", tap(func(*wire.Interface) {}), ""},
		{
			"a long name", fault(validateInterface, strings.Repeat("n", 49), wire.Interface{Type: wire.TypeLoopback}),
			"1 to 48 bytes",
		},
		{"a name with a hash", fault(validateInterface, "a#b", wire.Interface{Type: wire.TypeLoopback}), "no #"},
		{"another type", tap(func(v *wire.Interface) { v.Type = "veth" }), `type "veth" is not known`},
		{
			"a loopback with a Linux end", tap(func(v *wire.Interface) { v.Type = wire.TypeLoopback }),
			"only an interface of type tap",
		},
		{
			"a good interface on a link",
			fault(validateInterface, "a", afPacket("a", wire.Interface{}).value.(wire.Interface)), "",
		},
		{
			"an interface on no link", fault(validateInterface, "a", wire.Interface{Type: wire.TypeAFPacket}),
			"1 to 15 bytes",
		},
		{"an interface on a link without an object", fault(validateInterface, "a",
			wire.Interface{Type: wire.TypeAFPacket, AFPacket: wire.AFPacket{Link: "eth0"}}), "object of link eth0"},
		{
			"a tap with a link", tap(func(v *wire.Interface) { v.AFPacket.Link = "eth0" }),
			"only an interface of type af_packet",
		},
		{"a multicast MAC", tap(func(v *wire.Interface) { v.MAC[0] = 1 }), "not that of one interface"},
		{"a long link name", tap(func(v *wire.Interface) { v.Tap.Name = "sixteen-bytes-xx" }), "1 to 15 bytes"},
		{"a tap with as many queues as can be", tap(func(v *wire.Interface) { v.Tap.Queues = 16 }), ""},
		{"a tap with more", tap(func(v *wire.Interface) { v.Tap.Queues = 17 }), "17 queues are not within"},
		{"too many queues on a link", fault(validateInterface, "a", wire.Interface{Type: wire.TypeAFPacket,
			AFPacket: wire.AFPacket{Link: "weft0", On: wire.VethKey("a"), TxQueues: -1}}), "-1 queues are not within"},
		{"a small MTU", tap(func(v *wire.Interface) { v.MTU = 60 }), "not within"},
		{
			"the dataplane's own table", fault(validateVRF, "a/ip4", wire.VRF{Family: netaddr.IP4, Label: "a"}),
			"belongs to the dataplane",
		},
		{
			"a long label",
			fault(validateVRF, "x", wire.VRF{ID: 1, Family: netaddr.IP4, Label: strings.Repeat("l", 59)}),
			"1 to 58 bytes",
		},
		{"a VRF of no family", fault(validateVRF, "a/", wire.VRF{ID: 1, Label: "a"}), "neither ip4 nor ip6"},
		{
			"a VRF of another name", fault(validateVRF, "b/ip4", wire.VRF{ID: 1, Family: netaddr.IP4, Label: "a"}),
			"make the name a/ip4",
		},
		{
			"a link-local prefix",
			fault(validateAddress, wire.AddressName("a", p6), wire.Address{Interface: "a", Prefix: p6}), "128 bits",
		},
		{
			"an address of another name", fault(validateAddress, "x", wire.Address{Interface: "a", Prefix: p4}),
			"make the name a/10.0.0.1/24",
		},
		{
			"an interface that borrows from itself",
			fault(validateUnnumbered, "a", wire.Unnumbered{Interface: "a", Donor: "a", IP4: true}),
			"not another interface",
		},
		{"a route that is not masked", fault(validateRoute, "x", wire.Route{VRF: "v", Prefix: p4}), "not masked"},
		{
			"a route to nowhere",
			fault(validateRoute, wire.RouteName("v", p4.Masked()), wire.Route{VRF: "v", Prefix: p4.Masked()}),
			"0 paths",
		},
		{
			"an unreachable path by an interface", route(wire.Path{Type: wire.PathUnreachable, Interface: "a"}),
			"nothing but its type",
		},
		{
			"an unreachable path beside another",
			route(wire.Path{Type: wire.PathUnreachable}, wire.Path{Interface: "a"}), "no other path",
		},
		{"an unreachable path alone", route(wire.Path{Type: wire.PathUnreachable}), ""},
		{"a path of another type", route(wire.Path{Type: "drop"}), "not known"},
		{"a path without interface", route(wire.Path{}), "no interface"},
		{
			"a neighbour without MAC",
			fault(validateNeighbour, "x", wire.Neighbour{Interface: "a", Address: p4.Addr()}),
			"not that of one interface",
		},
		{
			"a member of no family", fault(validateMembership, "a/", wire.InterfaceVRF{Interface: "a"}),
			"neither ip4 nor ip6",
		},
	} {
		tt.judge(t)
	}
}

func TestInvalidMemifsAreRefused(t *testing.T) {
	on := func(change func(*wire.Memif)) string {
		return fault(validateInterface, "m1",
			memifOn("m1", "a", 1).with(func(v *wire.Interface) { change(&v.Memif) }).value.(wire.Interface))
	}
	at := func(change func(*wire.MemifSocket)) string {
		v := wire.MemifSocket{ID: 1, Path: "/run/a/memif.sock", Directory: wire.FileKey("/run/a")}
		change(&v)
		return fault(validateMemifSocket, "a", v)
	}
	for _, tt := range []verdict{
		{"a good memif", on(func(*wire.Memif) {}), ""},
		{"a secret of 23 bytes", on(func(m *wire.Memif) { m.Secret = marker }), ""},
		{"a secret of 24 bytes", on(func(m *wire.Memif) { m.Secret = marker + "x" }), "at most 23 bytes"},
		{"a secret that ends early", on(func(m *wire.Memif) { m.Secret = "a\x00b" }), "none of them 0"},
		{"no socket", on(func(m *wire.Memif) { m.Socket = "" }), "no socket"},
		{"another mode", on(func(m *wire.Memif) { m.Mode = "punt" }), "neither ethernet nor ip"},
		{"an odd ring", on(func(m *wire.Memif) { m.RingSize = 1000 }), "power of two"},
		{"a large ring", on(func(m *wire.Memif) { m.RingSize = 32768 }), "power of two"},
		{"no buffers", on(func(m *wire.Memif) { m.BufferSize = 0 }), "not within 1 and 65535"},
		{"no queue", on(func(m *wire.Memif) { m.RxQueues = 0 }), "not within 1 and 255"},
		{"many queues", on(func(m *wire.Memif) { m.TxQueues = 256 }), "not within 1 and 255"},
		{
			"a loopback with a socket",
			fault(validateInterface, "l", wire.Interface{Type: wire.TypeLoopback, Memif: wire.Memif{Socket: "a"}}),
			"only an interface of type memif",
		},
		{"a good socket", at(func(*wire.MemifSocket) {}), ""},
		{"the dataplane's own socket", at(func(s *wire.MemifSocket) { s.ID = 0 }), "belongs to the dataplane"},
		{"any socket", at(func(s *wire.MemifSocket) { s.ID = 1<<32 - 1 }), "belongs to the dataplane"},
		{"a relative path", at(func(s *wire.MemifSocket) { s.Path = "memif.sock" }), "not absolute and clean"},
		{"a path of 107 bytes", at(func(s *wire.MemifSocket) { s.Path = "/" + strings.Repeat("s", 106) }), ""},
		{
			"a path of 108 bytes", at(func(s *wire.MemifSocket) { s.Path = "/" + strings.Repeat("s", 107) }),
			"at most 107 bytes",
		},
		{
			"a socket in no directory", at(func(s *wire.MemifSocket) { s.Directory = "" }),
			"directory of /run/a/memif.sock",
		},
	} {
		tt.judge(t)
		if strings.Contains(tt.got, marker) {
			t.Errorf("%s: the secret is shown: %s", tt.name, tt.got)
		}
	}
}

func TestInvalidValuesOfLayer2AndItsFiltersAreRefused(t *testing.T) {
	for _, tt := range []verdict{
		{"a good bridge domain", fault(validateBridge, "a", wire.BridgeDomain{ID: 1, Label: "a"}), ""},
		{
			"the dataplane's own bridge domain", fault(validateBridge, "a", wire.BridgeDomain{Label: "a"}),
			"not within 1 and",
		},
		{
			"a bridge domain of another name", fault(validateBridge, "a", wire.BridgeDomain{ID: 1, Label: "b"}),
			"the name is the label",
		},
		{
			"a long label", fault(validateBridge, "a", wire.BridgeDomain{ID: 1, Label: strings.Repeat("n", 59)}),
			"1 to 58 bytes",
		},
		{
			"a member of another name", fault(validateBridgeMember, "a", wire.BridgeMember{Interface: "b"}),
			"the name is that of the interface",
		},
		{
			"a BVI in a group",
			fault(validateBridgeMember, "a", wire.BridgeMember{Interface: "a", BVI: true, SplitHorizonGroup: 1}),
			"no split-horizon group",
		},
		{
			"an entry of a multicast MAC", fault(validateL2FIB, "a", wire.L2FIB{MAC: netaddr.MAC{1}}),
			"not that of one interface",
		},
		{
			"an entry of another name", fault(validateL2FIB, "a", wire.L2FIB{BridgeDomain: "b", MAC: mac1}),
			"make the name b/02:00:00:00:00:01",
		},
		{
			"rules of another name", fault(validateMACIP, "b", macipOn("a", "10.0.0.1/32").value.(wire.MACIP)),
			"the name is that of the interface",
		},
		{"no rules", fault(validateMACIP, "a", wire.MACIP{Interface: "a"}), "no rules"},
		{
			"a rule that is not masked", fault(validateMACIP, "a", macipOn("a", "10.0.0.1/24").value.(wire.MACIP)),
			"not masked",
		},
		{
			"a rule for any MAC",
			fault(validateMACIP, "a", wire.MACIP{Interface: "a", Rules: make([]wire.MACIPRule, 1)}),
			"not that of one interface",
		},
		{
			"a range that ends before it begins",
			fault(validateProxyARP, "a", proxyOn("a", "10.0.0.2", "10.0.0.1").value.(wire.ProxyARP)),
			"no range of IPv4",
		},
		{
			"a range of IPv6", fault(validateProxyARP, "a", proxyOn("a", "fd00::1", "fd00::2").value.(wire.ProxyARP)),
			"no range of IPv4",
		},
		{
			"a range of another name",
			fault(validateProxyARP, "a", proxyOn("b", "10.0.0.1", "10.0.0.1").value.(wire.ProxyARP)),
			"make the name b/10.0.0.1",
		},
	} {
		tt.judge(t)
	}
}
