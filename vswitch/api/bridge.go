package api

import (
	"go.fd.io/govpp/binapi/ethernet_types"
	"go.fd.io/govpp/binapi/l2"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/model"
)

// bridgeHandlers serve bridge domains and their MAC tables.
var bridgeHandlers = []handler{
	call(changeBridge),
	call(func(m *model.Model, r *l2.BridgeFlags) (*l2.BridgeFlagsReply, error) {
		bitmap, err := m.Bridges.SetFlags(r.BdID, model.BridgeFlags(r.Flags), r.IsSet)
		return &l2.BridgeFlagsReply{ResultingFeatureBitmap: bitmap}, err
	}),
	set[l2.BridgeDomainSetMacAgeReply](func(m *model.Model, r *l2.BridgeDomainSetMacAge) error {
		return m.Bridges.SetAge(r.BdID, r.MacAge)
	}),
	set[l2.SwInterfaceSetL2BridgeReply](bridgeInterface),
	// As VPP does, the dump returns no details for a request by interface or for bridge domain 0.
	dump(func(m *model.Model, r *l2.BridgeDomainDump) ([]model.BridgeDetails, error) {
		if r.SwIfIndex != noInterface || r.BdID == 0 {
			return nil, nil
		}
		return m.Bridges.List(r.BdID), nil
	}, bridgeDetails),
	set[l2.L2fibAddDelReply](func(m *model.Model, r *l2.L2fibAddDel) error {
		return choose(r.IsAdd, m.L2FIB.Add, m.L2FIB.Delete)(model.L2Entry{
			Bridge:    r.BdID,
			MAC:       frame.MAC(r.Mac),
			Interface: uint32(r.SwIfIndex),
			Static:    r.StaticMac, Filter: r.FilterMac, BVI: r.BviMac,
		})
	}),
	set[l2.L2fibFlushBdReply](func(m *model.Model, r *l2.L2fibFlushBd) error { return m.L2FIB.FlushBridge(r.BdID) }),
	set[l2.L2fibFlushIntReply](func(m *model.Model, r *l2.L2fibFlushInt) error {
		return m.L2FIB.FlushInterface(uint32(r.SwIfIndex))
	}),
	set[l2.L2fibFlushAllReply](func(m *model.Model, _ *l2.L2fibFlushAll) error { m.L2FIB.FlushAll(); return nil }),
	dump(func(m *model.Model, r *l2.L2FibTableDump) ([]model.L2Entry, error) { return m.L2FIB.List(r.BdID), nil },
		func(_ *l2.L2FibTableDump, e model.L2Entry) l2.L2FibTableDetails {
			return l2.L2FibTableDetails{
				BdID:      e.Bridge,
				Mac:       ethernet_types.MacAddress(e.MAC),
				SwIfIndex: swIfIndex(e.Interface),
				StaticMac: e.Static, FilterMac: e.Filter, BviMac: e.BVI,
			}
		}),
}

func changeBridge(m *model.Model, r *l2.BridgeDomainAddDelV2) (*l2.BridgeDomainAddDelV2Reply, error) {
	if !r.IsAdd {
		return &l2.BridgeDomainAddDelV2Reply{BdID: r.BdID}, m.Bridges.Delete(r.BdID)
	}
	var flags model.BridgeFlags
	for flag, on := range map[l2.BdFlags]bool{l2.BRIDGE_API_FLAG_LEARN: r.Learn, l2.BRIDGE_API_FLAG_FWD: r.Forward,
		l2.BRIDGE_API_FLAG_FLOOD: r.Flood, l2.BRIDGE_API_FLAG_UU_FLOOD: r.UuFlood,
		l2.BRIDGE_API_FLAG_ARP_TERM: r.ArpTerm, l2.BRIDGE_API_FLAG_ARP_UFWD: r.ArpUfwd} {
		if on {
			flags |= model.BridgeFlags(flag)
		}
	}
	id, err := m.Bridges.Add(model.Bridge{ID: r.BdID, Flags: flags, Age: r.MacAge, Tag: r.BdTag})
	return &l2.BridgeDomainAddDelV2Reply{BdID: id}, err
}

func bridgeInterface(m *model.Model, r *l2.SwInterfaceSetL2Bridge) error {
	if r.PortType > l2.L2_API_PORT_TYPE_UU_FWD {
		return model.InvalidValue
	}
	if !r.Enable {
		return m.Bridges.Leave(uint32(r.RxSwIfIndex))
	}
	return m.Bridges.Join(model.Join{Interface: uint32(r.RxSwIfIndex), Bridge: r.BdID, SplitHorizon: r.Shg,
		BVI: r.PortType == l2.L2_API_PORT_TYPE_BVI, UUForward: r.PortType == l2.L2_API_PORT_TYPE_UU_FWD})
}

func bridgeDetails(_ *l2.BridgeDomainDump, b model.BridgeDetails) l2.BridgeDomainDetails {
	return l2.BridgeDomainDetails{
		BdID:    b.ID,
		Flood:   b.Flags&model.BridgeFlood != 0,
		UuFlood: b.Flags&model.BridgeUUFlood != 0,
		Forward: b.Flags&model.BridgeForward != 0, Learn: b.Flags&model.BridgeLearn != 0, MacAge: b.Age, BdTag: b.Tag,
		BviSwIfIndex: swIfIndex(b.BVI), UuFwdSwIfIndex: noInterface, NSwIfs: uint32(len(b.Members)),
		SwIfDetails: convert(b.Members, func(member model.BridgeMember) l2.BridgeDomainSwIf {
			return l2.BridgeDomainSwIf{SwIfIndex: swIfIndex(member.Interface), Shg: member.SplitHorizon}
		}),
	}
}
