package model

import (
	"slices"

	"github.com/weftnet/weft/vswitch/forward"
)

// Join says what sw_interface_set_l2_bridge asks.
type Join struct {
	Interface    uint32
	Bridge       uint32
	SplitHorizon uint8
	BVI          bool
	UUForward    bool // refused
}

// JoinBridge puts an interface into a bridge domain, which is made if it does not exist, with all features on. The interface leaves
// the one it was in, be it the same. Only a loopback can be a BVI; VPP takes any interface, and can do nothing with it.
func (m *Model) JoinBridge(j Join) error {
	defer m.change()()
	i, err := m.interfaceLocked(j.Interface)
	if err != nil {
		return err
	}
	b := m.bridges[j.Bridge]
	switch {
	case j.Bridge > maxBridgeID:
		return BDIDExceedMax
	case j.Bridge == 0:
		return BDNotModifiable
	case !i.ethernet:
		return NonEthernet
	case j.UUForward || j.BVI && i.loopback == nil:
		return Unsupported
	case j.BVI && b != nil && b.bvi != NoIndex && b.bvi != i.Index:
		return BDAlreadyHasBVI
	}
	if b == nil {
		if b, err = m.makeBridgeLocked(Bridge{ID: j.Bridge, Flags: bridgeDefaults}); err != nil {
			return err
		}
	}
	m.leaveBridgeLocked(i)
	return m.joinLocked(i, b, j)
}

// LeaveBridge takes an interface out of its bridge domain, back to layer 3; one that is in none is no error.
func (m *Model) LeaveBridge(index uint32) error {
	defer m.change()()
	i, err := m.interfaceLocked(index)
	if err != nil {
		return err
	}
	m.leaveBridgeLocked(i)
	return nil
}

// joinLocked adds a member. The BVI is the first, its MAC static.
func (m *Model) joinLocked(i *iface, b *bridge, j Join) error {
	member := BridgeMember{Interface: i.Index, SplitHorizon: j.SplitHorizon}
	if j.BVI {
		b.bvi = i.Index
		b.members = slices.Insert(b.members, 0, member)
		m.fixLocked(b, L2Entry{Bridge: b.ID, MAC: i.MAC, Interface: i.Index, Static: true, BVI: true})
	} else {
		b.members = append(b.members, member)
	}
	i.bridge = b
	return m.setBridgeLocked(b)
}

// leaveBridgeLocked takes the interface out of its bridge domain, if it is in one. What was learned on it is forgotten;
// what is static stays, as in VPP, and leads nowhere.
func (m *Model) leaveBridgeLocked(i *iface) {
	b := i.bridge
	if b == nil {
		return
	}
	i.bridge = nil
	b.members = slices.DeleteFunc(b.members, func(member BridgeMember) bool { return member.Interface == i.Index })
	if b.bvi == i.Index {
		b.bvi = NoIndex
		b.unfix(i)
	}
	if err := m.setBridgeLocked(b); err != nil {
		m.log.Error("packet path refused a bridge domain", "bridge", b.ID, "err", err)
	}
	m.engine.FlushMACs(forward.MACFilter{Bridge: b.ID, Interface: i.Index})
}

// unfix removes the entry of a BVI's own MAC.
func (b *bridge) unfix(i *iface) {
	if b.fixed[i.MAC].Interface == i.Index {
		delete(b.fixed, i.MAC)
	}
}

// bridgedDownLocked forgets what was learned on an interface that was set down.
func (m *Model) bridgedDownLocked(i *iface) {
	if i.bridge != nil {
		m.engine.FlushMACs(forward.MACFilter{Bridge: i.bridge.ID, Interface: i.Index})
	}
}
