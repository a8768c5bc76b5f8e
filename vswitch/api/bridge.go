package api

import (
	"go.fd.io/govpp/binapi/ethernet_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/l2"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/model"
)

func (s *Server) addBridges() {
	handle(s, s.changeBridge)
	handle(s, s.setBridgeFlags)
	handle(s, func(_ *client, r *l2.BridgeDomainSetMacAge) (*l2.BridgeDomainSetMacAgeReply, error) {
		return nil, s.model.SetBridgeAge(r.BdID, r.MacAge)
	})
	handle(s, s.bridgeInterface)
	handleDump(s, s.dumpBridges)
	handle(s, s.changeL2FIB)
	handle(s, func(_ *client, r *l2.L2fibFlushBd) (*l2.L2fibFlushBdReply, error) {
		return nil, s.model.FlushBridge(r.BdID)
	})
	handle(s, func(_ *client, r *l2.L2fibFlushInt) (*l2.L2fibFlushIntReply, error) {
		return nil, s.model.FlushInterface(uint32(r.SwIfIndex))
	})
	handle(s, func(_ *client, _ *l2.L2fibFlushAll) (*l2.L2fibFlushAllReply, error) {
		s.model.FlushBridges()
		return nil, nil
	})
	handleDump(s, s.dumpL2FIB)
}

func (s *Server) changeBridge(_ *client, r *l2.BridgeDomainAddDelV2) (*l2.BridgeDomainAddDelV2Reply, error) {
	if !r.IsAdd {
		return &l2.BridgeDomainAddDelV2Reply{BdID: r.BdID}, s.model.DeleteBridge(r.BdID)
	}
	var flags model.BridgeFlags
	for flag, on := range map[l2.BdFlags]bool{l2.BRIDGE_API_FLAG_LEARN: r.Learn, l2.BRIDGE_API_FLAG_FWD: r.Forward,
		l2.BRIDGE_API_FLAG_FLOOD: r.Flood, l2.BRIDGE_API_FLAG_UU_FLOOD: r.UuFlood,
		l2.BRIDGE_API_FLAG_ARP_TERM: r.ArpTerm, l2.BRIDGE_API_FLAG_ARP_UFWD: r.ArpUfwd} {
		if on {
			flags |= model.BridgeFlags(flag)
		}
	}
	id, err := s.model.AddBridge(model.Bridge{ID: r.BdID, Flags: flags, Age: r.MacAge, Tag: r.BdTag})
	return &l2.BridgeDomainAddDelV2Reply{BdID: id}, err
}

func (s *Server) setBridgeFlags(_ *client, r *l2.BridgeFlags) (*l2.BridgeFlagsReply, error) {
	bitmap, err := s.model.SetBridgeFlags(r.BdID, model.BridgeFlags(r.Flags), r.IsSet)
	return &l2.BridgeFlagsReply{ResultingFeatureBitmap: bitmap}, err
}

func (s *Server) bridgeInterface(_ *client, r *l2.SwInterfaceSetL2Bridge) (*l2.SwInterfaceSetL2BridgeReply, error) {
	if r.PortType > l2.L2_API_PORT_TYPE_UU_FWD {
		return nil, model.InvalidValue
	}
	if !r.Enable {
		return nil, s.model.LeaveBridge(uint32(r.RxSwIfIndex))
	}
	return nil, s.model.JoinBridge(model.Join{Interface: uint32(r.RxSwIfIndex), Bridge: r.BdID, SplitHorizon: r.Shg,
		BVI: r.PortType == l2.L2_API_PORT_TYPE_BVI, UUForward: r.PortType == l2.L2_API_PORT_TYPE_UU_FWD})
}

// dumpBridges returns no details for a request by interface or for bridge domain 0, as VPP does.
func (s *Server) dumpBridges(r *l2.BridgeDomainDump) ([]l2.BridgeDomainDetails, error) {
	if r.SwIfIndex != noInterface || r.BdID == 0 {
		return nil, nil
	}
	var list []l2.BridgeDomainDetails
	for _, b := range s.model.Bridges(r.BdID) {
		d := l2.BridgeDomainDetails{BdID: b.ID, Flood: b.Flags&model.BridgeFlood != 0, UuFlood: b.Flags&model.BridgeUUFlood != 0,
			Forward: b.Flags&model.BridgeForward != 0, Learn: b.Flags&model.BridgeLearn != 0, MacAge: b.Age, BdTag: b.Tag,
			BviSwIfIndex: interface_types.InterfaceIndex(b.BVI), UuFwdSwIfIndex: noInterface}
		for _, m := range b.Members {
			d.SwIfDetails = append(d.SwIfDetails, l2.BridgeDomainSwIf{SwIfIndex: interface_types.InterfaceIndex(m.Interface), Shg: m.SplitHorizon})
		}
		d.NSwIfs = uint32(len(d.SwIfDetails))
		list = append(list, d)
	}
	return list, nil
}

func (s *Server) changeL2FIB(_ *client, r *l2.L2fibAddDel) (*l2.L2fibAddDelReply, error) {
	e := model.L2Entry{Bridge: r.BdID, MAC: frame.MAC(r.Mac), Interface: uint32(r.SwIfIndex), Static: r.StaticMac,
		Filter: r.FilterMac, BVI: r.BviMac}
	if r.IsAdd {
		return nil, s.model.AddL2Entry(e)
	}
	return nil, s.model.DeleteL2Entry(e)
}

func (s *Server) dumpL2FIB(r *l2.L2FibTableDump) ([]l2.L2FibTableDetails, error) {
	var list []l2.L2FibTableDetails
	for _, e := range s.model.L2Entries(r.BdID) {
		list = append(list, l2.L2FibTableDetails{BdID: e.Bridge, Mac: ethernet_types.MacAddress(e.MAC),
			SwIfIndex: interface_types.InterfaceIndex(e.Interface), StaticMac: e.Static, FilterMac: e.Filter, BviMac: e.BVI})
	}
	return list, nil
}
