package vpp

import (
	"context"
	"fmt"

	"go.fd.io/govpp/binapi/gso"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
)

// settings are changes of interfaces.
type settings struct{ steps }

func (s *settings) tag(n int, it *interfaceItem) {
	s.add(n, ask("sw_interface_tag_add_del "+it.Name, &interfaces.SwInterfaceTagAddDel{
		IsAdd: true, SwIfIndex: it.NewMeta.api(), Tag: interfaceTag(it.Name, it.Want),
	}, &interfaces.SwInterfaceTagAddDelReply{}))
}

func (s *settings) mac(n int, it *interfaceItem) {
	s.add(n, ask(fmt.Sprintf("sw_interface_set_mac_address %s %s", it.Name, it.Want.MAC), &interfaces.SwInterfaceSetMacAddress{
		SwIfIndex: it.NewMeta.api(), MacAddress: [6]byte(it.Want.MAC),
	}, &interfaces.SwInterfaceSetMacAddressReply{}))
}

func (s *settings) mtu(n int, it *interfaceItem) {
	s.add(n, ask(fmt.Sprintf("sw_interface_set_mtu %s %d", it.Name, it.Want.MTU), &interfaces.SwInterfaceSetMtu{
		SwIfIndex: it.NewMeta.api(), Mtu: []uint32{uint32(it.Want.MTU), 0, 0, 0},
	}, &interfaces.SwInterfaceSetMtuReply{}))
}

// gso has packets that are longer than the MTU segmented before they leave by a link that would not do it: VPP hands long
// packets inside VXLAN to the kernel as they are, and these are lost.
func (s *settings) gso(n int, it *interfaceItem) {
	s.add(n, ask("feature_gso_enable_disable "+it.Name, &gso.FeatureGsoEnableDisable{
		SwIfIndex: it.NewMeta.api(), EnableDisable: true,
	}, &gso.FeatureGsoEnableDisableReply{}))
}

func (s *settings) flags(n int, it *interfaceItem) {
	var flags interface_types.IfStatusFlags
	what := "down"
	if it.Want.Up {
		flags, what = interface_types.IF_STATUS_API_FLAG_ADMIN_UP, "up"
	}
	s.add(n, ask(fmt.Sprintf("sw_interface_set_flags %s %s", it.Name, what), &interfaces.SwInterfaceSetFlags{
		SwIfIndex: it.NewMeta.api(), Flags: flags,
	}, &interfaces.SwInterfaceSetFlagsReply{}))
}

func (s *settings) send(ctx context.Context, c *Client, batch []interfaceItem) {
	take(ctx, c, &s.steps, batch)
}
