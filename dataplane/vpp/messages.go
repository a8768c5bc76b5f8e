package vpp

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/arp"
	"go.fd.io/govpp/binapi/feature"
	"go.fd.io/govpp/binapi/gso"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/memif"
	"go.fd.io/govpp/binapi/policer"
	"go.fd.io/govpp/binapi/punt"
	"go.fd.io/govpp/binapi/tapv2"
	"go.fd.io/govpp/binapi/vpe"
	"go.fd.io/govpp/binapi/vxlan"
)

// Needed are all messages of this package except neededOfVPP. The client refuses to connect to a dataplane that lacks
// one.
var Needed = []api.Message{
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
	&interfaces.CreateSubif{}, &interfaces.CreateSubifReply{},
	&interfaces.DeleteSubif{}, &interfaces.DeleteSubifReply{},
	&interfaces.SwInterfaceDump{}, &interfaces.SwInterfaceDetails{},
	&interfaces.WantInterfaceEvents{}, &interfaces.WantInterfaceEventsReply{}, &interfaces.SwInterfaceEvent{},
	&interfaces.SwInterfaceTagAddDel{}, &interfaces.SwInterfaceTagAddDelReply{},
	&interfaces.SwInterfaceSetFlags{}, &interfaces.SwInterfaceSetFlagsReply{},
	&interfaces.SwInterfaceSetMtu{}, &interfaces.SwInterfaceSetMtuReply{},
	&interfaces.SwInterfaceSetMacAddress{}, &interfaces.SwInterfaceSetMacAddressReply{},
	&interfaces.SwInterfaceSetTable{}, &interfaces.SwInterfaceSetTableReply{},
	&interfaces.SwInterfaceGetTable{}, &interfaces.SwInterfaceGetTableReply{},
	&interfaces.SwInterfaceAddDelAddress{}, &interfaces.SwInterfaceAddDelAddressReply{},
	&interfaces.SwInterfaceSetUnnumbered{}, &interfaces.SwInterfaceSetUnnumberedReply{},

	&gso.FeatureGsoEnableDisable{}, &gso.FeatureGsoEnableDisableReply{},

	&ip.IPTableAddDelV2{}, &ip.IPTableAddDelV2Reply{},
	&ip.IPTableDump{}, &ip.IPTableDetails{},
	&ip.IPAddressDump{}, &ip.IPAddressDetails{},
	&ip.IPUnnumberedDump{}, &ip.IPUnnumberedDetails{},
	&ip.IPRouteAddDel{}, &ip.IPRouteAddDelReply{},
	&ip.IPRouteV2Dump{}, &ip.IPRouteV2Details{},
	&ip.AddDelIPPuntRedirectV2{}, &ip.AddDelIPPuntRedirectV2Reply{},
	&ip.IPPuntRedirectV2Dump{}, &ip.IPPuntRedirectV2Details{},
	&ip.SwInterfaceIP6SetLinkLocalAddress{}, &ip.SwInterfaceIP6SetLinkLocalAddressReply{},
	&ip.SwInterfaceIP6GetLinkLocalAddress{}, &ip.SwInterfaceIP6GetLinkLocalAddressReply{},

	&punt.SetPunt{}, &punt.SetPuntReply{},

	&ip_neighbor.IPNeighborAddDel{}, &ip_neighbor.IPNeighborAddDelReply{},
	&ip_neighbor.IPNeighborDump{}, &ip_neighbor.IPNeighborDetails{},

	&l2.BridgeDomainAddDelV2{}, &l2.BridgeDomainAddDelV2Reply{},
	&l2.BridgeFlags{}, &l2.BridgeFlagsReply{},
	&l2.BridgeDomainSetMacAge{}, &l2.BridgeDomainSetMacAgeReply{},
	&l2.BridgeDomainDump{}, &l2.BridgeDomainDetails{},
	&l2.SwInterfaceSetL2Bridge{}, &l2.SwInterfaceSetL2BridgeReply{},
	&l2.L2InterfaceVlanTagRewrite{}, &l2.L2InterfaceVlanTagRewriteReply{},
	&l2.L2fibAddDel{}, &l2.L2fibAddDelReply{},
	&l2.L2FibTableDump{}, &l2.L2FibTableDetails{},

	&acl.ACLAddReplace{}, &acl.ACLAddReplaceReply{},
	&acl.ACLDel{}, &acl.ACLDelReply{},
	&acl.ACLDump{}, &acl.ACLDetails{},
	&acl.ACLInterfaceSetACLList{}, &acl.ACLInterfaceSetACLListReply{},
	&acl.ACLInterfaceListDump{}, &acl.ACLInterfaceListDetails{},
	&acl.MacipACLAddReplace{}, &acl.MacipACLAddReplaceReply{},
	&acl.MacipACLDel{}, &acl.MacipACLDelReply{},
	&acl.MacipACLDump{}, &acl.MacipACLDetails{},
	&acl.MacipACLInterfaceAddDel{}, &acl.MacipACLInterfaceAddDelReply{},
	&acl.MacipACLInterfaceListDump{}, &acl.MacipACLInterfaceListDetails{},

	&policer.PolicerAddDel{}, &policer.PolicerAddDelReply{},
	&policer.PolicerInput{}, &policer.PolicerInputReply{},
	&policer.PolicerOutput{}, &policer.PolicerOutputReply{},
	&policer.PolicerDump{}, &policer.PolicerDumpV2{}, &policer.PolicerDetails{},
	&feature.FeatureIsEnabled{}, &feature.FeatureIsEnabledReply{},

	&arp.ProxyArpAddDel{}, &arp.ProxyArpAddDelReply{},
	&arp.ProxyArpDump{}, &arp.ProxyArpDetails{},
	&arp.ProxyArpIntfcEnableDisable{}, &arp.ProxyArpIntfcEnableDisableReply{},
	&arp.ProxyArpIntfcDump{}, &arp.ProxyArpIntfcDetails{},
}

// messageIDs are the dataplane's message numbers by name_crc.
type messageIDs map[string]uint16

func (ids messageIDs) of(m api.Message) (uint16, error) {
	id, ok := ids[messageKey(m)]
	if !ok {
		return 0, newMissingMessage(m)
	}
	return id, nil
}

// check returns a *MissingMessages with every message that the dataplane lacks or has with another CRC.
func (ids messageIDs) check(version string, messages []api.Message) error {
	missing := &MissingMessages{Version: version}
	for _, m := range messages {
		if _, err := ids.of(m); err != nil {
			missing.Messages = append(missing.Messages, newMissingMessage(m))
		}
	}
	if len(missing.Messages) == 0 {
		return nil
	}
	return missing
}

// MissingMessages lists the needed messages that a dataplane lacks.
type MissingMessages struct {
	Version  string // of the dataplane
	Messages []*MissingMessage
}

// Error names each plugin and message once.
func (e *MissingMessages) Error() string {
	byPlugin := map[string][]string{}
	for _, m := range e.Messages {
		byPlugin[m.Plugin] = append(byPlugin[m.Plugin], m.Name+" (CRC "+m.CRC+")")
	}
	var parts []string
	for _, plugin := range slices.Sorted(maps.Keys(byPlugin)) {
		names := strings.Join(byPlugin[plugin], ", ")
		if plugin == "" {
			parts = append(parts, "it lacks "+names+", so it is older or newer than the API of VPP 25.10 to 26.06")
			continue
		}
		parts = append(parts, "its plugin "+plugin+" is not loaded, or of another release: it lacks "+names)
	}
	return fmt.Sprintf("the dataplane %s cannot be used: %s", e.Version, strings.Join(parts, "; "))
}
