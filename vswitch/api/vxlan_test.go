package api

import (
	"net/netip"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/vxlan"
)

func (a *testClient) tunnel(t testingT, m vxlan.VxlanAddDelTunnelV3) (interface_types.InterfaceIndex, error) {
	t.Helper()
	reply, err := invoke(t, a, vxlan.NewServiceClient(a.conn).VxlanAddDelTunnelV3, &m)
	return reply.SwIfIndex, err
}

func (a *testClient) tunnels(t testingT, index interface_types.InterfaceIndex) []*vxlan.VxlanTunnelV2Details {
	t.Helper()
	s, err := vxlan.NewServiceClient(a.conn).VxlanTunnelV2Dump(a.context, &vxlan.VxlanTunnelV2Dump{SwIfIndex: index})
	return collect[*vxlan.VxlanTunnelV2Details](t, s, err)
}

func between(source, destination string) vxlan.VxlanAddDelTunnelV3 {
	return vxlan.VxlanAddDelTunnelV3{
		IsAdd:          true,
		Instance:       ^uint32(0),
		SrcAddress:     toAddress(netip.MustParseAddr(source)),
		DstAddress:     toAddress(netip.MustParseAddr(destination)),
		McastSwIfIndex: noInterface,
		DecapNextIndex: ^uint32(0),
		Vni:            77,
	}
}

func TestVXLANCreateDumpDelete(t *testing.T) {
	a := newTestClient(t.Context(), start(t, Limits{}).connect(t))
	four := between("192.0.2.1", "192.0.2.2")
	six := between("2001:db8::1", "2001:db8::2")
	six.Instance = 9000
	six.SrcPort = 8472
	six.DstPort = 8473
	first, err := a.tunnel(t, four)
	if err != nil {
		t.Fatal(err)
	}
	second, err := a.tunnel(t, six)
	if err != nil {
		t.Fatal(err)
	}
	want := []vxlan.VxlanTunnelV2Details{
		{SwIfIndex: first, SrcAddress: four.SrcAddress, DstAddress: four.DstAddress, SrcPort: 4789, DstPort: 4789,
			McastSwIfIndex: noInterface, DecapNextIndex: 1, Vni: 77},
		{
			SwIfIndex:      second,
			Instance:       9000,
			SrcAddress:     six.SrcAddress,
			DstAddress:     six.DstAddress,
			SrcPort:        8472,
			DstPort:        8473,
			McastSwIfIndex: noInterface, DecapNextIndex: 1, Vni: 77,
		},
	}
	all := a.tunnels(t, noInterface)
	if len(all) != 2 || *all[0] != want[0] || *all[1] != want[1] {
		t.Fatalf("%+v", all)
	}
	if one := a.tunnels(t, second); len(one) != 1 || *one[0] != want[1] {
		t.Fatalf("%+v", one)
	}
	six.IsAdd = false
	if index, err := a.tunnel(t, six); err != nil || index != second {
		t.Fatal(index, err)
	}
	if all := a.tunnels(t, noInterface); len(all) != 1 {
		t.Fatalf("%+v", all)
	}
}

func TestVXLANRetvals(t *testing.T) {
	a := newTestClient(t.Context(), start(t, Limits{}).connect(t))
	if _, err := a.tunnel(t, between("192.0.2.1", "192.0.2.2")); err != nil {
		t.Fatal(err)
	}
	call := func(change func(*vxlan.VxlanAddDelTunnelV3)) func() error {
		return func() error {
			m := between("192.0.2.1", "192.0.2.2")
			change(&m)
			index, err := a.tunnel(t, m)
			if index != noInterface {
				t.Errorf("index %d with an error", index)
			}
			return err
		}
	}
	checkRefusals(t, map[string]refusal{
		"an existing tunnel": {call(func(*vxlan.VxlanAddDelTunnelV3) {}), api.TUNNEL_EXIST},
		"an unknown tunnel": {call(func(m *vxlan.VxlanAddDelTunnelV3) {
			m.IsAdd = false
			m.Vni = 1
		}), api.NO_SUCH_ENTRY},
		"the same address twice": {
			call(func(m *vxlan.VxlanAddDelTunnelV3) { m.DstAddress = m.SrcAddress }), api.SAME_SRC_DST,
		},
		"an unknown VRF": {call(func(m *vxlan.VxlanAddDelTunnelV3) { m.EncapVrfID = 5 }), api.NO_SUCH_FIB},
		"two families": {
			call(func(m *vxlan.VxlanAddDelTunnelV3) { m.SrcAddress = toAddress(netip.MustParseAddr("::1")) }),
			api.INVALID_VALUE,
		},
		"an invalid family": {
			call(func(m *vxlan.VxlanAddDelTunnelV3) { m.SrcAddress.Af = 9 }), api.INVALID_ADDRESS_FAMILY,
		},
		"an instance in use": {call(func(m *vxlan.VxlanAddDelTunnelV3) {
			m.Instance = 0
			m.Vni = 5
		}), api.INSTANCE_IN_USE},
	})
}
