package model

import (
	"slices"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
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
	// The flush comes last, as it shows the workers what has changed: they never see the interface in between, on layer 3.
	old := m.detachLocked(i)
	defer m.flushLocked(old, i)
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
	i.bridge = b
	if !j.BVI {
		b.members = append(b.members, member)
		return m.setBridgeLocked(b)
	}
	b.bvi = i.Index
	b.members = slices.Insert(b.members, 0, member)
	return m.fixLocked(b, ownEntry(b, i))
}

// ownEntry is the entry of a BVI's MAC.
func ownEntry(b *bridge, i *iface) L2Entry {
	return L2Entry{Bridge: b.ID, MAC: i.MAC, Interface: i.Index, Static: true, BVI: true}
}

// leaveBridgeLocked takes the interface out of its bridge domain, if it is in one. What was learned on it is forgotten;
// what is static stays, as in VPP, and leads nowhere.
func (m *Model) leaveBridgeLocked(i *iface) { m.flushLocked(m.detachLocked(i), i) }

// detachLocked takes the interface out of its bridge domain, if it is in one, and returns that.
func (m *Model) detachLocked(i *iface) *bridge {
	b := i.bridge
	if b == nil {
		return nil
	}
	i.bridge = nil
	b.members = slices.DeleteFunc(b.members, func(member BridgeMember) bool { return member.Interface == i.Index })
	if b.bvi == i.Index {
		b.bvi = NoIndex
		b.unfix(i, i.MAC)
	}
	if err := m.setBridgeLocked(b); err != nil {
		m.log.Error("packet path refused a bridge domain", "bridge", b.ID, "err", err)
	}
	return b
}

// flushLocked forgets what a bridge domain, if it is one, has learned on an interface.
func (m *Model) flushLocked(b *bridge, i *iface) {
	if b != nil {
		m.engine.FlushMACs(forward.MACFilter{Bridge: b.ID, Interface: i.Index})
	}
}

// unfix removes the entry of a BVI's MAC.
func (b *bridge) unfix(i *iface, mac frame.MAC) {
	if b.fixed[mac].Interface == i.Index {
		delete(b.fixed, mac)
	}
}

// macChangedLocked gives a BVI's entry its new MAC.
func (m *Model) macChangedLocked(i *iface, old frame.MAC) {
	b := i.bridge
	if b == nil || b.bvi != i.Index {
		return
	}
	b.unfix(i, old)
	if err := m.fixLocked(b, ownEntry(b, i)); err != nil {
		m.log.Error("packet path refused a bridge domain", "bridge", b.ID, "err", err)
	}
}
