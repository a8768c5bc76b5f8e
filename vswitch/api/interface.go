package api

import (
	"go.fd.io/govpp/binapi/ethernet_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/weftnet/weft/vswitch/model"
)

// addInterfaces adds the messages that all interfaces have in common.
func (s *Server) addInterfaces() {
	handleDump(s, s.dumpInterfaces)
	handle(s, func(c *client, r *interfaces.WantInterfaceEvents) (*interfaces.WantInterfaceEventsReply, error) {
		return nil, s.events.set(c, r.PID, r.EnableDisable != 0)
	})
	s.table.add(&interfaces.SwInterfaceEvent{})
}

func (s *Server) dumpInterfaces(r *interfaces.SwInterfaceDump) ([]interfaces.SwInterfaceDetails, error) {
	var list []interfaces.SwInterfaceDetails
	for _, i := range s.model.Interfaces(model.InterfaceFilter{Index: uint32(r.SwIfIndex), ByName: r.NameFilterValid, Name: r.NameFilter}) {
		list = append(list, interfaces.SwInterfaceDetails{
			SwIfIndex: interface_types.InterfaceIndex(i.Index), SupSwIfIndex: i.Index,
			InterfaceName: i.Name, InterfaceDevType: i.DevType, Tag: i.Tag,
			L2Address: ethernet_types.MacAddress(i.MAC), Flags: statusFlags(i.AdminUp, i.LinkUp),
			LinkMtu: uint16(i.LinkMTU), Mtu: i.MTU[:],
		})
	}
	return list, nil
}
