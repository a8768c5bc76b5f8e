package api

import (
	"go.fd.io/govpp/binapi/ethernet_types"
	"go.fd.io/govpp/binapi/gso"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/model"
)

// addInterfaces adds the messages that all interfaces have in common.
func (s *Server) addInterfaces() {
	s.table.add(&interfaces.SwInterfaceEvent{})
	handleDump(s, s.dumpInterfaces)
	handle(s, func(c *client, r *interfaces.WantInterfaceEvents) (*interfaces.WantInterfaceEventsReply, error) {
		return nil, s.events.set(c, r.PID, r.EnableDisable != 0)
	})
	handle(s, func(_ *client, r *interfaces.SwInterfaceSetFlags) (*interfaces.SwInterfaceSetFlagsReply, error) {
		return nil, s.model.SetAdminUp(uint32(r.SwIfIndex), r.Flags&interface_types.IF_STATUS_API_FLAG_ADMIN_UP != 0)
	})
	handle(s, s.setTag)
	s.addInterfaceMTU()
	s.addInterfaceMAC()
	s.addInterfaceTable()
	handle(s, func(_ *client, r *gso.FeatureGsoEnableDisable) (*gso.FeatureGsoEnableDisableReply, error) {
		return nil, s.model.SetGSO(uint32(r.SwIfIndex))
	})
}

func (s *Server) addInterfaceMTU() {
	handle(s, func(_ *client, r *interfaces.SwInterfaceSetMtu) (*interfaces.SwInterfaceSetMtuReply, error) {
		return nil, s.model.SetMTU(uint32(r.SwIfIndex), [4]uint32(r.Mtu))
	})
	handle(s, func(_ *client, r *interfaces.HwInterfaceSetMtu) (*interfaces.HwInterfaceSetMtuReply, error) {
		return nil, s.model.SetLinkMTU(uint32(r.SwIfIndex), int(r.Mtu))
	})
}

func (s *Server) addInterfaceMAC() {
	handle(s, func(_ *client, r *interfaces.SwInterfaceSetMacAddress) (*interfaces.SwInterfaceSetMacAddressReply, error) {
		return nil, s.model.SetMAC(uint32(r.SwIfIndex), frame.MAC(r.MacAddress))
	})
	handle(s, func(_ *client, r *interfaces.SwInterfaceGetMacAddress) (*interfaces.SwInterfaceGetMacAddressReply, error) {
		mac, err := s.model.MAC(uint32(r.SwIfIndex))
		return &interfaces.SwInterfaceGetMacAddressReply{MacAddress: ethernet_types.MacAddress(mac)}, err
	})
}

func (s *Server) addInterfaceTable() {
	handle(s, func(_ *client, r *interfaces.SwInterfaceSetTable) (*interfaces.SwInterfaceSetTableReply, error) {
		return nil, s.model.SetTable(uint32(r.SwIfIndex), forward.TableKey{Family: familyOf(r.IsIPv6), ID: r.VrfID})
	})
	handle(s, func(_ *client, r *interfaces.SwInterfaceGetTable) (*interfaces.SwInterfaceGetTableReply, error) {
		id, err := s.model.TableOf(uint32(r.SwIfIndex), familyOf(r.IsIPv6))
		return &interfaces.SwInterfaceGetTableReply{VrfID: id}, err
	})
}

func (s *Server) setTag(_ *client, r *interfaces.SwInterfaceTagAddDel) (*interfaces.SwInterfaceTagAddDelReply, error) {
	if r.IsAdd {
		return nil, s.model.SetTag(uint32(r.SwIfIndex), r.Tag)
	}
	return nil, s.model.ClearTag(uint32(r.SwIfIndex))
}

func (s *Server) dumpInterfaces(r *interfaces.SwInterfaceDump) ([]interfaces.SwInterfaceDetails, error) {
	var list []interfaces.SwInterfaceDetails
	filter := model.InterfaceFilter{Index: uint32(r.SwIfIndex), ByName: r.NameFilterValid, Name: r.NameFilter}
	for _, i := range s.model.Interfaces(filter) {
		list = append(list, interfaces.SwInterfaceDetails{
			SwIfIndex: interface_types.InterfaceIndex(i.Index), SupSwIfIndex: i.Index,
			InterfaceName: i.Name, InterfaceDevType: i.DevType, Tag: i.Tag,
			L2Address: ethernet_types.MacAddress(i.MAC), Flags: statusFlags(i.AdminUp, i.LinkUp),
			LinkMtu: uint16(i.LinkMTU), Mtu: i.MTU[:],
		})
	}
	return list, nil
}
