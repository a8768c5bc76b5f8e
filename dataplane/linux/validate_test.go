package linux

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weftnet/weft/wire"
)

// fault is what a descriptor's Validate says.
func fault[V any](validate func(string, V) error, name string, v V) string {
	if err := validate(name, v); err != nil {
		return err.Error()
	}
	return ""
}

func TestInvalidValuesAreFoundBeforeTheKernelSeesThem(t *testing.T) {
	nameOf := func(key string) string { return refOf(key).Name }
	host, net4, gate6 := netip.MustParsePrefix("10.0.0.1/24"), netip.MustParsePrefix("10.0.0.0/24"), netip.MustParseAddr("fe80::1")
	peer := func(change func(*wire.TapPeer)) string {
		v := wire.TapPeer{Interface: "tap-a", Name: "eth0", Alias: alias}
		change(&v)
		return fault(validateTapPeer, "tap-a", v)
	}
	route := func(v wire.LinuxRoute) string {
		v.On = on
		return fault(validateRoute, nameOf(wire.LinuxRouteKey(on, v.Destination)), v)
	}
	setting := func(name, value string) string {
		return fault(validateSysctl, nameOf(wire.SysctlKey(on, name)), wire.Sysctl{On: on, Name: name, Value: value})
	}
	for _, tt := range []struct{ name, got, want string }{
		{"a good peer", peer(func(*wire.TapPeer) {}), ""},
		{"a peer without alias", peer(func(v *wire.TapPeer) { v.Alias = "" }), "1 to 255 bytes"},
		{"a peer with a long name", peer(func(v *wire.TapPeer) { v.Name = "sixteen-bytes-xx" }), "1 to 15 bytes"},
		{"a peer of another interface", peer(func(v *wire.TapPeer) { v.Interface = "tap-b" }), "the name is that of the interface"},
		{"a relative path", fault(validateNamespace, "a", wire.Namespace{Path: "a", Inode: 1}), "not absolute"},
		{"a path with dots", fault(validateNamespace, "/a/../b", wire.Namespace{Path: "/a/../b", Inode: 1}), "not absolute and clean"},
		{"a namespace without inode", fault(validateNamespace, "/a", wire.Namespace{Path: "/a"}), "inode is not known"},
		{"no address", fault(validateAddress, "x", wire.LinuxAddress{On: on, Link: "eth0"}), "not an address"},
		{"an address of another link", fault(validateAddress, "x", wire.LinuxAddress{On: on, Link: "eth0", Prefix: host}), "the value makes the name"},
		{"an address on nothing", fault(validateAddress, "x", wire.LinuxAddress{On: "eth0", Link: "eth0", Prefix: host}), "object of the link"},
		{"a good route", route(wire.LinuxRoute{Link: "eth0", Destination: net4}), ""},
		{"a route that is not masked", route(wire.LinuxRoute{Link: "eth0", Destination: host}), "not masked"},
		{"a gateway of another family", route(wire.LinuxRoute{Link: "eth0", Destination: net4, Gateway: gate6}), "another family"},
		{"a source of another family", route(wire.LinuxRoute{Link: "eth0", Destination: net4, Source: gate6}), "another family"},
		{"a neighbour without MAC", fault(validateNeighbour, "x", wire.LinuxNeighbour{On: on, Link: "eth0", Address: gate6}), "not that of one interface"},
		{"a good setting", setting("net/ipv4/conf/eth0/rp_filter", "0"), ""},
		{"a setting of the whole machine", setting("kernel/core_pattern", "|/bin/sh"), "not below net"},
		{"a setting by a way round", setting("net/../kernel/core_pattern", "x"), "not below net"},
		{"a setting to nothing", setting("net/ipv4/conf/eth0/rp_filter", ""), "not made of words"},
	} {
		if tt.want == "" && tt.got != "" || !strings.Contains(tt.got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, tt.got, tt.want)
		}
	}
}
