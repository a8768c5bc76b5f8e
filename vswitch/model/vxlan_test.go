package model

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/model/modeltest"
)

// vxlanBetween returns a tunnel between two addresses.
func vxlanBetween(source, destination string) VXLAN {
	return VXLAN{
		Instance:    NoIndex,
		Source:      netip.MustParseAddr(source),
		Destination: netip.MustParseAddr(destination),
		VNI:         10,
		DecapNext:   NoIndex, MulticastInterface: NoIndex,
	}
}

func (b *testModel) vxlan(t *testing.T, v VXLAN) uint32 {
	t.Helper()
	index, err := b.VXLANs.Add(v)
	do(t, err)
	return index
}

func TestVXLANRetvals(t *testing.T) {
	good := vxlanBetween("192.0.2.1", "192.0.2.2")
	for rule, c := range map[string]struct {
		change func(*VXLAN)
		want   Retval
	}{
		"an unknown VRF": {func(v *VXLAN) {
			v.VRF = 7
			v.Destination = v.Source
		}, NoSuchFIB},
		"two families": {
			func(v *VXLAN) { v.Destination = netip.MustParseAddr("2001:db8::2") }, InvalidValue,
		},
		"the same address twice": {func(v *VXLAN) { v.Destination = v.Source }, SameSrcDst},
		"a group without interface": {
			func(v *VXLAN) { v.Destination = netip.MustParseAddr("239.1.1.1") }, InvalidSwIfIndex,
		},
		"a group": {func(v *VXLAN) {
			v.Destination = netip.MustParseAddr("239.1.1.1")
			v.MulticastInterface = 0
		},
			Unsupported},
		"IP packets":       {func(v *VXLAN) { v.L3 = true }, Unsupported},
		"no VNI":           {func(v *VXLAN) { v.VNI = 0 }, InvalidValue},
		"a VNI of 25 bits": {func(v *VXLAN) { v.VNI = 1 << 24 }, InvalidValue},
		"no source":        {func(v *VXLAN) { v.Source = netip.IPv4Unspecified() }, InvalidValue},
		"an existing tunnel": {func(v *VXLAN) {
			v.Instance = 9
			v.DestinationPort = 1
		}, TunnelExist},
		"an instance in use": {func(v *VXLAN) {
			v.Instance = 0
			v.VNI = 11
		}, InstanceInUse},
		"another next node": {func(v *VXLAN) {
			v.DecapNext = 5
			v.VNI = 11
		}, InvalidDecapNext},
	} {
		t.Run(rule, func(t *testing.T) {
			b := newTestModel()
			b.vxlan(t, good)
			v := good
			c.change(&v)
			if index, err := b.VXLANs.Add(v); !errors.Is(err, c.want) || index != NoIndex {
				t.Errorf("%d, %v, wanted %v", index, err, c.want)
			}
			if len(b.VXLANs.List(NoIndex)) != 1 {
				t.Error("the rejected tunnel exists")
			}
		})
	}
}

func TestVXLANIsUpAndNamedByItsInstance(t *testing.T) {
	b := newTestModel()
	v := vxlanBetween("192.0.2.1", "192.0.2.2")
	v.Instance = 1
	b.vxlan(t, v)
	v.VNI = 11
	v.Instance = NoIndex
	first := b.vxlan(t, v)
	v.VNI = 12
	third := b.vxlan(t, v)
	var names []string
	for _, i := range b.Interfaces.List(InterfaceFilter{ByName: true, Name: "vxlan"}) {
		names = append(names, i.Name)
		if !i.AdminUp || !i.LinkUp || i.DevType != "VXLAN" || i.MTU[0] != 9000 || i.MAC.IsZero() {
			t.Errorf("%+v", i)
		}
	}
	if want := []string{"vxlan_tunnel1", "vxlan_tunnel0", "vxlan_tunnel2"}; !slices.Equal(names, want) {
		t.Errorf("%v", names)
	}
	if d := b.VXLANs.List(third); len(d) != 1 || d[0].SourcePort != 4789 || d[0].DestinationPort != 4789 ||
		d[0].DecapNext != 1 {
		t.Errorf("%+v", d)
	}
	v.VNI = 11
	if index, err := b.VXLANs.Delete(v); err != nil || index != first {
		t.Error(index, err)
	}
	if _, err := b.VXLANs.Delete(v); !errors.Is(err, NoSuchEntry) {
		t.Errorf("deleted twice: %v", err)
	}
}

// In VPP the link of a tunnel is up whether or not its source is an address of the dataplane.
func TestVXLANDoesNotDependOnAddressesOfTheDataplane(t *testing.T) {
	b := newTestModel()
	table := forward.TableKey{Family: forward.IP4, ID: 7}
	b.Tables.Add(table, "")
	loop := b.loopback(t)
	do(t, b.Tables.Set(loop, table))
	v := vxlanBetween("192.0.2.1", "192.0.2.2")
	v.VRF = 7
	index := b.vxlan(t, v)
	want := forward.Tunnel{
		Source:      netip.MustParseAddrPort("192.0.2.1:4789"),
		Destination: netip.MustParseAddrPort("192.0.2.2:4789"),
		VNI:         10,
		Table:       7,
	}
	own := netip.MustParsePrefix("192.0.2.1/24")
	b.events = nil
	for what, change := range map[string]func() error{
		"nothing": func() error { return nil },
		"an address is added and deleted": func() error {
			return errors.Join(b.Addresses.Add(loop, own), b.Addresses.Delete(loop, own), b.Addresses.Add(loop, own))
		},
	} {
		do(t, change())
		var is *forward.Tunnel
		b.engine.Look(func(s modeltest.State) { is = s.Interfaces[index].Tunnel })
		if is == nil || *is != want || !b.Interfaces.List(InterfaceFilter{Index: index})[0].LinkUp {
			t.Errorf("after %s: %+v", what, is)
		}
	}
	if slices.ContainsFunc(b.events, func(e InterfaceEvent) bool { return e.Index == index }) {
		t.Errorf("events %+v", b.events)
	}
	b.Tables.Delete(table)
	if !slices.ContainsFunc(b.Tables.List(), func(t Table) bool { return t.ID == 7 }) {
		t.Error("the tunnel does not keep its VRF")
	}
	do(t, b.Loopbacks.Delete(loop))
	if _, err := b.VXLANs.Delete(v); err != nil {
		t.Error(err)
	}
	if slices.ContainsFunc(b.Tables.List(), func(t Table) bool { return t.ID == 7 }) {
		t.Error("the VRF was not deleted")
	}
}
