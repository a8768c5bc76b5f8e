package model

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
)

// maxBridgeID is VPP's L2_BD_ID_MAX.
const maxBridgeID = 1<<24 - 1

// Bridge holds the fields of bridge_domain_add_del_v2.
type Bridge struct {
	ID    uint32 // NoIndex in AddBridge: lowest free id
	Flags BridgeFlags
	Age   uint8 // minutes until learned MACs expire; 0: never
	Tag   string
}

// BridgeFlags are the features of a bridge domain, with the bits of bridge_flags.
type BridgeFlags uint32

// The features. Those of ARP are unsupported.
const (
	BridgeLearn   BridgeFlags = 1
	BridgeForward BridgeFlags = 2
	BridgeFlood   BridgeFlags = 4
	BridgeUUFlood BridgeFlags = 8
	bridgeARP     BridgeFlags = 16 | 32

	bridgeDefaults = BridgeLearn | BridgeForward | BridgeFlood | BridgeUUFlood
)

// BridgeDetails holds the fields of bridge_domain_details.
type BridgeDetails struct {
	Bridge
	Index   int    // position in dumps
	BVI     uint32 // or NoIndex
	Members []BridgeMember
	Learned int // number of learned MACs
}

// BridgeMember is an interface in a bridge domain. The BVI is the first member.
type BridgeMember struct {
	Interface    uint32
	SplitHorizon uint8
}

// bridge is the state of a bridge domain.
type bridge struct {
	Bridge
	index   int
	bvi     uint32
	members []BridgeMember
	fixed   map[frame.MAC]L2Entry // entries of the API and of the BVI
}

// bridges holds all bridge domains. The lock of the Model guards it.
type bridges struct {
	engine Bridges
	log    *slog.Logger
	byID   map[uint32]*bridge
}

// AddBridge adds a bridge domain and returns its id.
func (m *Model) AddBridge(b Bridge) (uint32, error) {
	defer m.change()()
	if b.ID == NoIndex {
		b.ID = m.bridges.freeID()
	}
	switch {
	case b.ID == 0 || m.bridges.byID[b.ID] != nil:
		return b.ID, BDAlreadyExists
	case b.ID > maxBridgeID:
		return b.ID, BDIDExceedMax
	case b.Flags&bridgeARP != 0:
		return b.ID, Unsupported
	}
	_, err := m.bridges.add(b)
	return b.ID, err
}

// DeleteBridge deletes a bridge domain without members. Unlike VPP it also deletes the static MACs.
func (m *Model) DeleteBridge(id uint32) error {
	defer m.change()()
	b := m.bridges.byID[id]
	switch {
	case id == 0:
		return BDNotModifiable
	case b == nil:
		return NoSuchEntry
	case len(b.members) > 0:
		return BDInUse
	}
	delete(m.bridges.byID, id)
	m.engine.DelBridge(id)
	return nil
}

// Bridges lists the bridge domain of the given id, or all for NoIndex, by index.
func (m *Model) Bridges(id uint32) []BridgeDetails {
	m.mu.Lock()
	defer m.mu.Unlock()
	learned := map[uint32]int{}
	for _, l := range m.engine.LearnedMACs(0) {
		learned[l.Bridge]++
	}
	var list []BridgeDetails
	for _, b := range m.bridges.byID {
		if id == NoIndex || id == b.ID {
			list = append(list, BridgeDetails{
				Bridge:  b.Bridge,
				Index:   b.index,
				BVI:     b.bvi,
				Members: slices.Clone(b.members),
				Learned: learned[b.ID],
			})
		}
	}
	slices.SortFunc(list, func(a, b BridgeDetails) int { return cmp.Compare(a.Index, b.Index) })
	return list
}

// SetBridgeFlags enables or disables features and returns VPP's bitmap of the enabled ones.
func (m *Model) SetBridgeFlags(id uint32, flags BridgeFlags, on bool) (uint32, error) {
	defer m.change()()
	b, err := m.bridges.find(id)
	if err != nil {
		return 0, err
	}
	if on && flags&bridgeARP != 0 {
		return 0, Unsupported
	}
	if on {
		b.Flags |= flags
	} else {
		b.Flags &^= flags
	}
	return b.Flags.bitmap(), m.bridges.sync(b)
}

// SetBridgeAge sets the minutes until learned MACs expire.
func (m *Model) SetBridgeAge(id uint32, minutes uint8) error {
	defer m.change()()
	b, err := m.bridges.find(id)
	if err != nil {
		return err
	}
	b.Age = minutes
	return m.bridges.sync(b)
}

// bitmap returns VPP's feature bitmap, in which the bits of disabled features are 0 and all others 1.
func (f BridgeFlags) bitmap() uint32 {
	const (
		arpUnicast     = 1 << 3
		arpTermination = 1 << 4
		unicastForward = 1 << 6
	)
	off := uint32(arpUnicast | arpTermination | unicastForward)
	for flag, bit := range map[BridgeFlags]uint32{
		BridgeFlood:   1 << 2,
		BridgeUUFlood: 1 << 5,
		BridgeForward: 1 << 7,
		BridgeLearn:   1 << 9,
	} {
		if f&flag == 0 {
			off |= bit
		}
	}
	return ^off
}

// find returns a bridge domain other than 0.
func (bs *bridges) find(id uint32) (*bridge, error) {
	if id == 0 {
		return nil, BDNotModifiable
	}
	b := bs.byID[id]
	if b == nil {
		return nil, NoSuchEntry
	}
	return b, nil
}

func (bs *bridges) freeID() uint32 {
	id := uint32(1)
	for bs.byID[id] != nil {
		id++
	}
	return id
}

func (bs *bridges) add(b Bridge) (*bridge, error) {
	added := &bridge{Bridge: b, index: 1, bvi: NoIndex, fixed: map[frame.MAC]L2Entry{}}
	added.Tag = cutTag(b.Tag)
	taken := map[int]bool{}
	for _, other := range bs.byID {
		taken[other.index] = true
	}
	for taken[added.index] {
		added.index++
	}
	if err := bs.sync(added); err != nil {
		return nil, err
	}
	bs.byID[b.ID] = added
	return added, nil
}

// sync writes a bridge domain to the engine.
func (bs *bridges) sync(b *bridge) error {
	f := forward.Bridge{ID: b.ID, BVI: b.bvi, Age: time.Duration(b.Age) * time.Minute,
		Learn: b.Flags&BridgeLearn != 0, Forward: b.Flags&BridgeForward != 0,
		Flood: b.Flags&BridgeFlood != 0, UUFlood: b.Flags&BridgeUUFlood != 0}
	for _, member := range b.members {
		if member.Interface != b.bvi {
			f.Members = append(f.Members, forward.BridgeMember(member))
		}
	}
	for _, mac := range slices.SortedFunc(maps.Keys(b.fixed), compareMACs) {
		e := b.fixed[mac]
		f.Configured = append(f.Configured, forward.ConfiguredMAC{
			MAC:       mac,
			Interface: e.Interface,
			Static:    e.Static,
			Filter:    e.Filter,
		})
	}
	err := bs.engine.SetBridge(f)
	if errors.Is(err, forward.ErrTooManyBridges) {
		return LimitExceeded
	}
	return err
}

func compareMACs(a, b frame.MAC) int { return slices.Compare(a[:], b[:]) }

// Join holds the fields of sw_interface_set_l2_bridge.
type Join struct {
	Interface    uint32
	Bridge       uint32
	SplitHorizon uint8
	BVI          bool
	UUForward    bool // unsupported
}

// JoinBridge adds an interface to a bridge domain. It creates a missing bridge domain with all features. The interface
// leaves its former bridge domain. Only a loopback can be a BVI; VPP accepts other interfaces but they do not work.
func (m *Model) JoinBridge(j Join) error {
	defer m.change()()
	i, err := m.Interfaces.findLocked(j.Interface)
	if err != nil {
		return err
	}
	b := m.bridges.byID[j.Bridge]
	switch {
	case j.Bridge > maxBridgeID:
		return BDIDExceedMax
	case j.Bridge == 0:
		return BDNotModifiable
	case !i.ethernet:
		return NonEthernet
	case j.UUForward || j.BVI && kindOf[loopback](i) == nil:
		return Unsupported
	case j.BVI && b != nil && b.bvi != NoIndex && b.bvi != i.Index:
		return BDAlreadyHasBVI
	}
	if b == nil {
		if b, err = m.bridges.add(Bridge{ID: j.Bridge, Flags: bridgeDefaults}); err != nil {
			return err
		}
	}
	// The flush publishes. Before the join the workers would see the interface on layer 3.
	old := m.bridges.detach(i)
	defer m.bridges.flush(old, i)
	return m.bridges.join(i, b, j)
}

// LeaveBridge removes an interface from its bridge domain, if it is in one. As in VPP its tag rewrite ends.
func (m *Model) LeaveBridge(index uint32) error {
	return m.Interfaces.with(index, func(i *iface) error {
		m.bridges.leave(i)
		if i.TagRewrite != TagRewriteOff {
			i.TagRewrite = TagRewriteOff
			m.Interfaces.syncLocked(i)
		}
		return nil
	})
}

// join adds a member. A BVI gets a static entry.
func (bs *bridges) join(i *iface, b *bridge, j Join) error {
	member := BridgeMember{Interface: i.Index, SplitHorizon: j.SplitHorizon}
	i.bridge = b
	if !j.BVI {
		b.members = append(b.members, member)
		return bs.sync(b)
	}
	b.bvi = i.Index
	b.members = slices.Insert(b.members, 0, member)
	return bs.fix(b, ownEntry(b, i))
}

// ownEntry returns the entry for the MAC of a BVI.
func ownEntry(b *bridge, i *iface) L2Entry {
	return L2Entry{Bridge: b.ID, MAC: i.MAC, Interface: i.Index, Static: true, BVI: true}
}

// leave removes an interface from its bridge domain, if it is in one, and deletes the MACs learned on it. As in
// VPP static entries stay and drop their frames.
func (bs *bridges) leave(i *iface) { bs.flush(bs.detach(i), i) }

// detach removes an interface from its bridge domain and returns that, or nil.
func (bs *bridges) detach(i *iface) *bridge {
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
	if err := bs.sync(b); err != nil {
		bs.log.Error("packet path rejected a bridge domain", "bridge", b.ID, "err", err)
	}
	return b
}

// flush deletes the MACs that a bridge domain has learned on an interface. b can be nil.
func (bs *bridges) flush(b *bridge, i *iface) {
	if b != nil {
		bs.engine.FlushMACs(forward.MACFilter{Bridge: b.ID, Interface: i.Index})
	}
}

// unfix deletes the entry for the MAC of a BVI.
func (b *bridge) unfix(i *iface, mac frame.MAC) {
	if b.fixed[mac].Interface == i.Index {
		delete(b.fixed, mac)
	}
}

// updateBVI replaces the entry of a BVI after a change of its MAC.
func (bs *bridges) updateBVI(i *iface, old frame.MAC) {
	b := i.bridge
	if b == nil || b.bvi != i.Index {
		return
	}
	b.unfix(i, old)
	if err := bs.fix(b, ownEntry(b, i)); err != nil {
		bs.log.Error("packet path rejected a bridge domain", "bridge", b.ID, "err", err)
	}
}

// L2Entry is an entry of the MAC table of a bridge domain.
type L2Entry struct {
	Bridge    uint32
	MAC       frame.MAC
	Interface uint32 // NoIndex for a filter
	Static    bool   // learning does not change it
	Filter    bool   // drop frames from and to the MAC; always static
	BVI       bool
	Learned   bool
	Age       time.Duration // time since a learned MAC was last seen
}

// AddL2Entry adds or replaces an entry. As in VPP the interface must be in a bridge domain; if that is another one,
// frames to the MAC are dropped.
func (m *Model) AddL2Entry(e L2Entry) error {
	defer m.change()()
	b := m.bridges.byID[e.Bridge]
	if b == nil {
		return NoSuchEntry
	}
	if e.Filter {
		e.Interface = NoIndex
		e.Static = true
		e.BVI = false
	} else if i := m.Interfaces.byIndex[e.Interface]; i == nil || i.bridge == nil {
		return InvalidSwIfIndex
	}
	return m.bridges.fix(b, e)
}

// DeleteL2Entry deletes a configured or learned entry. An interface other than 0 must match.
func (m *Model) DeleteL2Entry(e L2Entry) error {
	defer m.change()()
	b := m.bridges.byID[e.Bridge]
	if b == nil {
		return NoSuchEntry
	}
	old, fixed := b.fixed[e.MAC]
	forgotten := false
	if !(fixed && old.Static) && e.Interface != NoIndex {
		on := e.Interface
		if on == 0 {
			on = NoIndex
		}
		forgotten = m.engine.ForgetMAC(b.ID, e.MAC, on)
	}
	if !forgotten && (!fixed || e.Interface != 0 && e.Interface != old.Interface) {
		return NoSuchEntry
	}
	delete(b.fixed, e.MAC)
	return m.bridges.sync(b)
}

// L2Entries lists the MAC table of a bridge domain, or all tables for NoIndex, by bridge domain and MAC.
func (m *Model) L2Entries(id uint32) []L2Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	type key struct {
		bridge uint32
		mac    frame.MAC
	}
	all := map[key]L2Entry{}
	for _, b := range m.bridges.byID {
		for mac, e := range b.fixed {
			all[key{b.ID, mac}] = e
		}
	}
	for _, l := range m.engine.LearnedMACs(0) {
		if k := (key{l.Bridge, l.MAC}); !all[k].Static {
			all[k] = L2Entry{Bridge: l.Bridge, MAC: l.MAC, Interface: l.Interface, Learned: true, Age: l.Age}
		}
	}
	maps.DeleteFunc(all, func(k key, _ L2Entry) bool { return id != NoIndex && id != k.bridge })
	return slices.SortedFunc(maps.Values(all), func(a, b L2Entry) int {
		return cmp.Or(cmp.Compare(a.Bridge, b.Bridge), compareMACs(a.MAC, b.MAC))
	})
}

// FlushBridge deletes the learned MACs of a bridge domain.
func (m *Model) FlushBridge(id uint32) error {
	defer m.change()()
	if m.bridges.byID[id] == nil && id != 0 {
		return NoSuchEntry
	}
	if id != 0 {
		m.engine.FlushMACs(forward.MACFilter{Bridge: id, Interface: NoIndex})
	}
	return nil
}

// FlushInterface deletes the MACs learned on an interface.
func (m *Model) FlushInterface(index uint32) error {
	return m.Interfaces.with(index, func(*iface) error {
		m.engine.FlushMACs(forward.MACFilter{Interface: index})
		return nil
	})
}

// FlushBridges deletes all learned MACs.
func (m *Model) FlushBridges() {
	defer m.change()()
	m.engine.FlushMACs(forward.MACFilter{Interface: NoIndex})
}

// fix adds an entry and deletes the learned one of its MAC.
func (bs *bridges) fix(b *bridge, e L2Entry) error {
	b.fixed[e.MAC] = e
	err := bs.sync(b)
	bs.engine.ForgetMAC(b.ID, e.MAC, NoIndex)
	return err
}
