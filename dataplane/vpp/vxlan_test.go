package vpp

import (
	"net/netip"
	"strings"
	"testing"

	"go.fd.io/govpp/binapi/vxlan"

	"github.com/weftnet/weft/wire"
)

// tunnelTo is a tunnel from an address that no machine has to another.
func tunnelTo(name string, change func(*wire.Interface)) object {
	v := wire.Interface{Type: wire.TypeVXLAN, MTU: 1450, Up: true, VXLAN: wire.VXLAN{
		Source: netip.MustParseAddr("198.51.100.1"), Destination: netip.MustParseAddr("198.51.100.2"), VNI: 10,
	}}
	if change != nil {
		change(&v)
	}
	return object{wire.InterfaceKey(name), v}
}

func TestTunnelsAreMadeReadBackChangedAndRemoved(t *testing.T) {
	six := func(v *wire.Interface) {
		v.VXLAN.Source = netip.MustParseAddr("2001:db8::1")
		v.VXLAN.Destination = netip.MustParseAddr("2001:db8::2")
	}
	for name, second := range map[string]object{
		"another VNI":      tunnelTo("vx", func(v *wire.Interface) { v.VXLAN.VNI = 1<<24 - 1 }),
		"another port":     tunnelTo("vx", func(v *wire.Interface) { v.VXLAN.Port = 8472 }),
		"the other family": tunnelTo("vx", six),
		"a MAC, an MTU, down": tunnelTo("vx", func(v *wire.Interface) {
			v.MAC = mac3
			v.MTU = 1400
			v.Up = false
		}),
		"the port that it has": tunnelTo("vx", func(v *wire.Interface) { v.VXLAN.Port = wire.VXLANPort }),
		"the other end's place": tunnelTo("vx", func(v *wire.Interface) {
			v.VXLAN.Destination = v.VXLAN.Destination.Next()
		}),
	} {
		t.Run(name, func(t *testing.T) {
			newLab(t).try(ground(), trial{backendOf(interfaceDescriptor), tunnelTo("vx", nil), second})
		})
	}
	t.Run("made with a MAC, and down", func(t *testing.T) {
		first := tunnelTo("vx", func(v *wire.Interface) {
			v.MAC = mac3
			v.Up = false
		})
		newLab(t).try(ground(), trial{backendOf(interfaceDescriptor), first, tunnelTo("vx", nil)})
	})
}

func TestATunnelIsAMemberOfABridgeDomain(t *testing.T) {
	l := newLab(t)
	in := wire.BridgeMember{BridgeDomain: "weft:blue", Interface: "vx", SplitHorizonGroup: 1}
	l.mustCommit(bridge("weft:blue", learning(7)), tunnelTo("vx", nil), object{wire.BridgeMemberKey("vx"), in})
	l.quiet()
	// A changed tunnel is recreated, and so is its bridge membership.
	l.mustCommit(tunnelTo("vx", func(v *wire.Interface) { v.VXLAN.VNI = 11 }))
	l.quiet()
}

func TestTunnelWithoutATagIsAdopted(t *testing.T) {
	l := newLab(t)
	m := tunnelMessage(tunnelTo("vx", nil).value.(wire.Interface).VXLAN)
	m.IsAdd = true
	m.Instance = firstInstance + 5
	l.send(m, &vxlan.VxlanAddDelTunnelV3Reply{})
	l.mustCommit(tunnelTo("vx", nil), tunnelTo("vy", func(v *wire.Interface) { v.VXLAN.VNI = 12 }))
	l.quiet()
	l.mustCommit(object{wire.InterfaceKey("vx"), nil}, object{wire.InterfaceKey("vy"), nil})
	if left := l.ours(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestForeignTunnelIsKept(t *testing.T) {
	l := newLab(t)
	m := tunnelMessage(tunnelTo("vx", nil).value.(wire.Interface).VXLAN)
	m.IsAdd = true
	m.Instance = 3
	l.send(m, &vxlan.VxlanAddDelTunnelV3Reply{})
	err := l.commit(tunnelTo("vx", nil))
	if err == nil || !strings.Contains(err.Error(), "198.51.100.1 to 198.51.100.2, VNI 10") {
		t.Errorf("two owners of a tunnel: %v", err)
	}
	if left := l.ours(); len(left) > 0 {
		t.Errorf("taken over: %v", left)
	}
	m.IsAdd = false
	l.send(m, &vxlan.VxlanAddDelTunnelV3Reply{})
}

func TestInvalidTunnelsAreRefused(t *testing.T) {
	of := func(change func(*wire.VXLAN)) string {
		return fault(validateInterface, "vx",
			tunnelTo("vx", func(v *wire.Interface) { change(&v.VXLAN) }).value.(wire.Interface))
	}
	for _, tt := range []verdict{
		{"a good one", of(func(*wire.VXLAN) {}), ""},
		{"no source", of(func(v *wire.VXLAN) { v.Source = netip.Addr{} }), "not the address of one node"},
		{
			"a group", of(func(v *wire.VXLAN) { v.Destination = netip.MustParseAddr("239.1.1.1") }),
			"end 239.1.1.1 of the tunnel",
		},
		{
			"a zone", of(func(v *wire.VXLAN) { v.Source = netip.MustParseAddr("fe80::1%eth0") }),
			"not the address of one node",
		},
		{"two families", of(func(v *wire.VXLAN) { v.Source = netip.MustParseAddr("2001:db8::1") }), "two families"},
		{"an end in itself", of(func(v *wire.VXLAN) { v.Source = v.Destination }), "both ends"},
		{"no VNI", of(func(v *wire.VXLAN) { v.VNI = 0 }), "VNI 0 is not within 1 and 16777215"},
		{"a long VNI", of(func(v *wire.VXLAN) { v.VNI = 1 << 24 }), "not within"},
		{
			"a loopback with a tunnel",
			fault(validateInterface, "l", wire.Interface{Type: wire.TypeLoopback, VXLAN: wire.VXLAN{VNI: 1}}),
			"only an interface of type vxlan",
		},
	} {
		tt.judge(t)
	}
}
