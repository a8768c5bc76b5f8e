package api

import (
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/af_packet"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/tapv2"
)

const exactly = interface_types.SUB_IF_API_FLAG_EXACT_MATCH

// sub creates a sub-interface.
func (b *bridger) sub(t testingT, req interfaces.CreateSubif) (interface_types.InterfaceIndex, error) {
	t.Helper()
	reply, err := invoke(t, b.testClient, b.ifs.CreateSubif, &req)
	return reply.SwIfIndex, err
}

// rewrite sets the tag rewrite of an interface.
func (b *bridger) rewrite(t testingT, index interface_types.InterfaceIndex, op uint32) error {
	t.Helper()
	_, err := invoke(t, b.testClient, b.l2.L2InterfaceVlanTagRewrite, &l2.L2InterfaceVlanTagRewrite{
		SwIfIndex: index, VtrOp: op,
	})
	return err
}

// details returns the details of an interface; nil if it does not exist.
func (b *bridger) details(t testingT, index interface_types.InterfaceIndex) *interfaces.SwInterfaceDetails {
	t.Helper()
	s, err := b.ifs.SwInterfaceDump(b.context, &interfaces.SwInterfaceDump{SwIfIndex: index})
	if list := collect[*interfaces.SwInterfaceDetails](t, s, err); len(list) == 1 {
		return list[0]
	}
	return nil
}

func TestSubInterfaceIsDumpedAsVPPDoes(t *testing.T) {
	b := newBridger(t)
	tap := b.tap(t)
	create := &interfaces.CreateVlanSubif{SwIfIndex: tap, VlanID: 100}
	single, err := invoke(t, b.testClient, b.ifs.CreateVlanSubif, create)
	if err != nil {
		t.Fatal(err)
	}
	double, err := b.sub(t, interfaces.CreateSubif{SwIfIndex: tap, SubID: 7, OuterVlanID: 500, InnerVlanID: 100,
		SubIfFlags: interface_types.SUB_IF_API_FLAG_TWO_TAGS | interface_types.SUB_IF_API_FLAG_DOT1AD | exactly})
	if err != nil {
		t.Fatal(err)
	}
	for index, want := range map[interface_types.InterfaceIndex]interfaces.SwInterfaceDetails{
		single.SwIfIndex: {InterfaceName: "tap0.100", SubID: 100, SubNumberOfTags: 1, SubOuterVlanID: 100, SubIfFlags: 18},
		double: {InterfaceName: "tap0.7", SubID: 7, SubNumberOfTags: 2, SubOuterVlanID: 500, SubInnerVlanID: 100,
			SubIfFlags: 28},
	} {
		d := b.details(t, index)
		if d == nil || d.InterfaceName != want.InterfaceName || d.SubID != want.SubID ||
			d.SupSwIfIndex != uint32(tap) ||
			d.Type != interface_types.IF_API_TYPE_SUB || d.SubNumberOfTags != want.SubNumberOfTags ||
			d.SubOuterVlanID != want.SubOuterVlanID || d.SubInnerVlanID != want.SubInnerVlanID ||
			d.SubIfFlags != want.SubIfFlags || d.L2Address != [6]byte{} ||
			d.Flags != interface_types.IF_STATUS_API_FLAG_LINK_UP {
			t.Errorf("got %+v, wanted %+v", d, want)
		}
	}
	mustInvoke(t, b.testClient, b.taps.TapDeleteV2, &tapv2.TapDeleteV2{SwIfIndex: tap})
	if d := b.details(t, double); d != nil {
		t.Errorf("after the end of its parent: %+v", d)
	}
}

func TestSubInterfaceRetvals(t *testing.T) {
	b := newBridger(t)
	tap := b.tap(t)
	loop := b.loopback(t)
	vlan := func(id uint32) error {
		create := &interfaces.CreateVlanSubif{SwIfIndex: tap, VlanID: id}
		_, err := invoke(t, b.testClient, b.ifs.CreateVlanSubif, create)
		return err
	}
	sub := func(req interfaces.CreateSubif) error {
		_, err := b.sub(t, req)
		return err
	}
	remove := func(index interface_types.InterfaceIndex) error {
		_, err := invoke(t, b.testClient, b.ifs.DeleteSubif, &interfaces.DeleteSubif{SwIfIndex: index})
		return err
	}
	const one = interface_types.SUB_IF_API_FLAG_ONE_TAG | exactly
	for _, c := range []struct {
		rule string
		err  error
		want error
	}{
		{"a VLAN", vlan(100), nil},
		{"it again", vlan(100), api.VLAN_ALREADY_EXISTS},
		{"VLAN 0", vlan(0), api.INVALID_VLAN},
		{"VLAN 4096", vlan(4096), api.INVALID_VLAN},
		{"its id", sub(interfaces.CreateSubif{SwIfIndex: tap, SubID: 100, SubIfFlags: one, OuterVlanID: 9}),
			api.VLAN_ALREADY_EXISTS},
		{"its tag", sub(interfaces.CreateSubif{SwIfIndex: tap, SubID: 9, SubIfFlags: one, OuterVlanID: 100}),
			api.UNSPECIFIED},
		{"the rest", sub(interfaces.CreateSubif{SwIfIndex: tap, SubID: 8,
			SubIfFlags: interface_types.SUB_IF_API_FLAG_DEFAULT}), nil},
		{"a match that is not exact", sub(interfaces.CreateSubif{SwIfIndex: tap, SubID: 7, OuterVlanID: 7,
			SubIfFlags: interface_types.SUB_IF_API_FLAG_ONE_TAG}), api.UNSUPPORTED},
		{"a loopback", sub(interfaces.CreateSubif{SwIfIndex: loop, SubID: 7, SubIfFlags: one, OuterVlanID: 7}),
			api.UNSUPPORTED},
		{"an unknown interface", sub(interfaces.CreateSubif{SwIfIndex: unknown, SubID: 7, SubIfFlags: one, OuterVlanID: 7}),
			api.INVALID_SW_IF_INDEX},
		{"deletion of a tap", remove(tap), api.INVALID_SUB_SW_IF_INDEX},
		{"deletion of an unknown one", remove(unknown), api.INVALID_SW_IF_INDEX},
	} {
		if c.err != c.want { //nolint:errorlint // the number itself
			t.Errorf("%s: %v, wanted %v", c.rule, c.err, c.want)
		}
	}
}

func TestSubInterfaceIsUpOnlyWithItsParent(t *testing.T) {
	b := newBridger(t)
	tap := b.tap(t)
	b.setUp(t, tap, false)
	sub := mustInvoke(t, b.testClient, b.ifs.CreateVlanSubif, &interfaces.CreateVlanSubif{SwIfIndex: tap, VlanID: 5})
	up := &interfaces.SwInterfaceSetFlags{
		SwIfIndex: sub.SwIfIndex,
		Flags:     interface_types.IF_STATUS_API_FLAG_ADMIN_UP,
	}
	if _, err := invoke(t, b.testClient, b.ifs.SwInterfaceSetFlags, up); err != api.UNSPECIFIED { //nolint:errorlint // the number
		t.Errorf("the parent is down: %v", err)
	}
	b.setUp(t, tap, true)
	mustInvoke(t, b.testClient, b.ifs.SwInterfaceSetFlags, up)
}

func TestTagRewriteEndsWhenTheInterfaceLeavesItsBridgeDomain(t *testing.T) {
	b := newBridger(t)
	link := mustInvoke(t, b.testClient, b.links().AfPacketCreateV3, &af_packet.AfPacketCreateV3{
		HostIfName: "veth0", UseRandomHwAddr: true, Mode: af_packet.AF_PACKET_API_MODE_ETHERNET,
	}).SwIfIndex
	create := &interfaces.CreateVlanSubif{SwIfIndex: link, VlanID: 5}
	sub := mustInvoke(t, b.testClient, b.ifs.CreateVlanSubif, create).SwIfIndex
	const push1, pop1, pop2, beyond = 1, 3, 4, 9
	for _, c := range []struct {
		rule  string
		index interface_types.InterfaceIndex
		op    uint32
		want  error
	}{
		{"one tag", sub, pop1, nil},
		{"two tags of a frame with one", sub, pop2, api.INVALID_VLAN_TAG_COUNT},
		{"a tag of an interface without tags", link, pop1, api.INVALID_VLAN_TAG_COUNT},
		{"a further tag", sub, push1, api.UNSUPPORTED},
		{"an unknown operation", sub, beyond, api.INVALID_VALUE},
		{"an unknown interface", unknown, pop1, api.INVALID_SW_IF_INDEX},
		{"an interface that is not Ethernet", 0, pop1, api.INVALID_INTERFACE},
	} {
		if err := b.rewrite(t, c.index, c.op); err != c.want { //nolint:errorlint // the number itself
			t.Errorf("%s: %v, wanted %v", c.rule, err, c.want)
		}
	}
	for _, id := range []uint32{7, 8} { // moves keep it
		if err := b.join(t, l2.SwInterfaceSetL2Bridge{RxSwIfIndex: sub, BdID: id}); err != nil {
			t.Fatal(err)
		}
	}
	if d := b.details(t, sub); d.VtrOp != pop1 {
		t.Errorf("as member: rewrite %d", d.VtrOp)
	}
	if err := b.leave(t, sub); err != nil {
		t.Fatal(err)
	}
	if d := b.details(t, sub); d.VtrOp != 0 {
		t.Errorf("after it left: rewrite %d", d.VtrOp)
	}
}
