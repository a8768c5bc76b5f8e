package vpp

import (
	"errors"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/arp"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/memif"
	"go.fd.io/govpp/binapi/tapv2"
	"go.fd.io/govpp/binapi/vpe"
	"go.fd.io/govpp/binapi/vxlan"
)

// needed is every message that this package sends or reads. A dataplane that lacks one is refused at connect, with the
// message named, and not in the middle of a pod.
var needed = []api.Message{
	&memclnt.ControlPing{}, &memclnt.ControlPingReply{},
	&vpe.ShowVersion{}, &vpe.ShowVersionReply{},

	&tapv2.TapCreateV3{}, &tapv2.TapCreateV3Reply{},
	&tapv2.TapDeleteV2{}, &tapv2.TapDeleteV2Reply{},
	&tapv2.SwInterfaceTapV2Dump{}, &tapv2.SwInterfaceTapV2Details{},

	&af_packet.AfPacketCreateV3{}, &af_packet.AfPacketCreateV3Reply{},
	&af_packet.AfPacketDelete{}, &af_packet.AfPacketDeleteReply{},
	&af_packet.AfPacketDump{}, &af_packet.AfPacketDetails{},

	&memif.MemifSocketFilenameAddDelV2{}, &memif.MemifSocketFilenameAddDelV2Reply{},
	&memif.MemifSocketFilenameDump{}, &memif.MemifSocketFilenameDetails{},
	&memif.MemifCreateV2{}, &memif.MemifCreateV2Reply{},
	&memif.MemifDelete{}, &memif.MemifDeleteReply{},
	&memif.MemifDump{}, &memif.MemifDetails{},

	&vxlan.VxlanAddDelTunnelV3{}, &vxlan.VxlanAddDelTunnelV3Reply{},
	&vxlan.VxlanTunnelV2Dump{}, &vxlan.VxlanTunnelV2Details{},

	&interfaces.CreateLoopbackInstance{}, &interfaces.CreateLoopbackInstanceReply{},
	&interfaces.DeleteLoopback{}, &interfaces.DeleteLoopbackReply{},
	&interfaces.SwInterfaceDump{}, &interfaces.SwInterfaceDetails{},
	&interfaces.SwInterfaceTagAddDel{}, &interfaces.SwInterfaceTagAddDelReply{},
	&interfaces.SwInterfaceSetFlags{}, &interfaces.SwInterfaceSetFlagsReply{},
	&interfaces.SwInterfaceSetMtu{}, &interfaces.SwInterfaceSetMtuReply{},
	&interfaces.SwInterfaceSetMacAddress{}, &interfaces.SwInterfaceSetMacAddressReply{},
	&interfaces.SwInterfaceSetTable{}, &interfaces.SwInterfaceSetTableReply{},
	&interfaces.SwInterfaceGetTable{}, &interfaces.SwInterfaceGetTableReply{},
	&interfaces.SwInterfaceAddDelAddress{}, &interfaces.SwInterfaceAddDelAddressReply{},
	&interfaces.SwInterfaceSetUnnumbered{}, &interfaces.SwInterfaceSetUnnumberedReply{},

	&ip.IPTableAddDelV2{}, &ip.IPTableAddDelV2Reply{},
	&ip.IPTableDump{}, &ip.IPTableDetails{},
	&ip.IPAddressDump{}, &ip.IPAddressDetails{},
	&ip.IPUnnumberedDump{}, &ip.IPUnnumberedDetails{},
	&ip.IPRouteAddDel{}, &ip.IPRouteAddDelReply{},
	&ip.IPRouteV2Dump{}, &ip.IPRouteV2Details{},
	&ip.SwInterfaceIP6SetLinkLocalAddress{}, &ip.SwInterfaceIP6SetLinkLocalAddressReply{},
	&ip.SwInterfaceIP6GetLinkLocalAddress{}, &ip.SwInterfaceIP6GetLinkLocalAddressReply{},

	&ip_neighbor.IPNeighborAddDel{}, &ip_neighbor.IPNeighborAddDelReply{},
	&ip_neighbor.IPNeighborDump{}, &ip_neighbor.IPNeighborDetails{},

	&l2.BridgeDomainAddDelV2{}, &l2.BridgeDomainAddDelV2Reply{},
	&l2.BridgeFlags{}, &l2.BridgeFlagsReply{},
	&l2.BridgeDomainSetMacAge{}, &l2.BridgeDomainSetMacAgeReply{},
	&l2.BridgeDomainDump{}, &l2.BridgeDomainDetails{},
	&l2.SwInterfaceSetL2Bridge{}, &l2.SwInterfaceSetL2BridgeReply{},
	&l2.L2fibAddDel{}, &l2.L2fibAddDelReply{},
	&l2.L2FibTableDump{}, &l2.L2FibTableDetails{},

	&acl.MacipACLAddReplace{}, &acl.MacipACLAddReplaceReply{},
	&acl.MacipACLDel{}, &acl.MacipACLDelReply{},
	&acl.MacipACLDump{}, &acl.MacipACLDetails{},
	&acl.MacipACLInterfaceAddDel{}, &acl.MacipACLInterfaceAddDelReply{},
	&acl.MacipACLInterfaceListDump{}, &acl.MacipACLInterfaceListDetails{},

	&arp.ProxyArpAddDel{}, &arp.ProxyArpAddDelReply{},
	&arp.ProxyArpDump{}, &arp.ProxyArpDetails{},
	&arp.ProxyArpIntfcEnableDisable{}, &arp.ProxyArpIntfcEnableDisableReply{},
	&arp.ProxyArpIntfcDump{}, &arp.ProxyArpIntfcDetails{},
}

// check names every message that the peer does not have in this very form.
func (s *session) check(messages []api.Message) error {
	var missing []error
	for _, m := range messages {
		if _, err := s.id(m); err != nil {
			missing = append(missing, err)
		}
	}
	return errors.Join(missing...)
}
