package model

import (
	"cmp"
	"errors"
	"fmt"
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
	ID    uint32 // NoIndex in Bridges.Add: lowest free id
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

// bridgeDomains holds all bridge domains. The lock of the Model guards it.
type bridgeDomains struct {
	engine Bridging
	log    *slog.Logger
	byID   map[uint32]*bridge
}

// Bridges are the bridge domains and their members.
type Bridges struct {
	*barrier
	interfaces *Interfaces
	domains    *bridgeDomains
}

// Add adds a bridge domain and returns its id.
func (bs *Bridges) Add(b Bridge) (uint32, error) {
	defer bs.change()()
	if b.ID == NoIndex {
		b.ID = bs.domains.freeID()
	}
	switch {
	case b.ID == 0 || bs.domains.byID[b.ID] != nil:
		return b.ID, BDAlreadyExists
	case b.ID > maxBridgeID:
		return b.ID, BDIDExceedMax
	case b.Flags&bridgeARP != 0:
		return b.ID, Unsupported
	}
	_, err := bs.domains.add(b)
	return b.ID, err
}

// Delete deletes a bridge domain without members. Unlike VPP it also deletes the static MACs.
func (bs *Bridges) Delete(id uint32) error {
	defer bs.change()()
	b := bs.domains.byID[id]
	switch {
	case id == 0:
		return BDNotModifiable
	case b == nil:
		return NoSuchEntry
	case len(b.members) > 0:
		return BDInUse
	}
	delete(bs.domains.byID, id)
	bs.engine.DelBridge(id)
	return nil
}

// List lists the bridge domain of the given id, or all for NoIndex, by index.
func (bs *Bridges) List(id uint32) []BridgeDetails {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	learned := map[uint32]int{}
	for _, l := range bs.engine.LearnedMACs(0) {
		learned[l.Bridge]++
	}
	var list []BridgeDetails
	for _, b := range bs.domains.byID {
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

// SetFlags enables or disables features and returns VPP's bitmap of the enabled ones.
func (bs *Bridges) SetFlags(id uint32, flags BridgeFlags, on bool) (uint32, error) {
	defer bs.change()()
	b, err := bs.domains.find(id)
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
	return b.Flags.bitmap(), bs.domains.sync(b)
}

// SetAge sets the minutes until learned MACs expire.
func (bs *Bridges) SetAge(id uint32, minutes uint8) error {
	defer bs.change()()
	b, err := bs.domains.find(id)
	if err != nil {
		return err
	}
	b.Age = minutes
	return bs.domains.sync(b)
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
func (ds *bridgeDomains) find(id uint32) (*bridge, error) {
	if id == 0 {
		return nil, BDNotModifiable
	}
	b := ds.byID[id]
	if b == nil {
		return nil, NoSuchEntry
	}
	return b, nil
}

func (ds *bridgeDomains) freeID() uint32 {
	id := uint32(1)
	for ds.byID[id] != nil {
		id++
	}
	return id
}

func (ds *bridgeDomains) add(b Bridge) (*bridge, error) {
	added := &bridge{Bridge: b, index: 1, bvi: NoIndex, fixed: map[frame.MAC]L2Entry{}}
	added.Tag = cutTag(b.Tag)
	taken := map[int]bool{}
	for _, other := range ds.byID {
		taken[other.index] = true
	}
	for taken[added.index] {
		added.index++
	}
	if err := ds.sync(added); err != nil {
		return nil, err
	}
	ds.byID[b.ID] = added
	return added, nil
}

// sync writes a bridge domain to the engine.
func (ds *bridgeDomains) sync(b *bridge) error {
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
	err := ds.engine.SetBridge(f)
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

// Join adds an interface to a bridge domain. It creates a missing bridge domain with all features. The interface
// leaves its former bridge domain. Only a loopback can be a BVI; VPP accepts other interfaces but they do not work.
func (bs *Bridges) Join(j Join) error {
	defer bs.change()()
	i, err := bs.interfaces.findLocked(j.Interface)
	if err != nil {
		return err
	}
	b := bs.domains.byID[j.Bridge]
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
		if b, err = bs.domains.add(Bridge{ID: j.Bridge, Flags: bridgeDefaults}); err != nil {
			return err
		}
	}
	// The flush publishes. Before the join the workers would see the interface on layer 3.
	old := bs.domains.detach(i)
	defer bs.domains.flush(old, i)
	return bs.domains.join(i, b, j)
}

// Leave removes an interface from its bridge domain, if it is in one. As in VPP its tag rewrite ends.
func (bs *Bridges) Leave(index uint32) error {
	return bs.interfaces.with(index, func(i *iface) error {
		bs.domains.leave(i)
		if i.TagRewrite != TagRewriteOff {
			i.TagRewrite = TagRewriteOff
			bs.interfaces.syncLocked(i)
		}
		return nil
	})
}

// join adds a member. A BVI gets a static entry.
func (ds *bridgeDomains) join(i *iface, b *bridge, j Join) error {
	member := BridgeMember{Interface: i.Index, SplitHorizon: j.SplitHorizon}
	i.bridge = b
	if !j.BVI {
		b.members = append(b.members, member)
		return ds.sync(b)
	}
	b.bvi = i.Index
	b.members = slices.Insert(b.members, 0, member)
	return ds.fix(b, ownEntry(b, i))
}

// ownEntry returns the entry for the MAC of a BVI.
func ownEntry(b *bridge, i *iface) L2Entry {
	return L2Entry{Bridge: b.ID, MAC: i.MAC, Interface: i.Index, Static: true, BVI: true}
}

// leave removes an interface from its bridge domain, if it is in one, and deletes the MACs learned on it. As in
// VPP static entries stay and drop their frames.
func (ds *bridgeDomains) leave(i *iface) { ds.flush(ds.detach(i), i) }

// detach removes an interface from its bridge domain and returns that, or nil.
func (ds *bridgeDomains) detach(i *iface) *bridge {
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
	if err := ds.sync(b); err != nil {
		ds.log.Error("packet path rejected a bridge domain", "bridge", b.ID, "err", err)
	}
	return b
}

// flush deletes the MACs that a bridge domain has learned on an interface. b can be nil.
func (ds *bridgeDomains) flush(b *bridge, i *iface) {
	if b != nil {
		ds.engine.FlushMACs(forward.MACFilter{Bridge: b.ID, Interface: i.Index})
	}
}

// unfix deletes the entry for the MAC of a BVI.
func (b *bridge) unfix(i *iface, mac frame.MAC) {
	if b.fixed[mac].Interface == i.Index {
		delete(b.fixed, mac)
	}
}

// updateBVI replaces the entry of a BVI after a change of its MAC.
func (ds *bridgeDomains) updateBVI(i *iface, old frame.MAC) {
	b := i.bridge
	if b == nil || b.bvi != i.Index {
		return
	}
	b.unfix(i, old)
	if err := ds.fix(b, ownEntry(b, i)); err != nil {
		ds.log.Error("packet path rejected a bridge domain", "bridge", b.ID, "err", err)
	}
}

// fix adds an entry and deletes the learned one of its MAC.
func (ds *bridgeDomains) fix(b *bridge, e L2Entry) error {
	b.fixed[e.MAC] = e
	err := ds.sync(b)
	ds.engine.ForgetMAC(b.ID, e.MAC, NoIndex)
	return err
}

func (bs *Bridges) stateLocked(s *State) {
	for _, b := range bs.domains.byID {
		s.Bridges = append(s.Bridges, BridgeState{
			Bridge:  b.Bridge,
			Index:   b.index,
			BVI:     b.bvi,
			Members: slices.Clone(b.members),
			Fixed:   slices.Collect(maps.Values(b.fixed)),
		})
	}
}

func (bs *Bridges) restoreLocked(s *State) error {
	for n := range s.Bridges {
		one := &s.Bridges[n]
		if bs.domains.byID[one.ID] != nil {
			return fmt.Errorf("%w: bridge domain %d twice", errState, one.ID)
		}
		b := &bridge{
			Bridge:  one.Bridge,
			index:   one.Index,
			bvi:     one.BVI,
			members: one.Members,
			fixed:   one.fixedEntries(),
		}
		for _, member := range b.members {
			i := bs.interfaces.byIndex[member.Interface]
			if i == nil || i.bridge != nil {
				return fmt.Errorf("%w: interface %d in bridge domain %d", errState, member.Interface, b.ID)
			}
			i.bridge = b
		}
		if err := bs.domains.sync(b); err != nil {
			return fmt.Errorf("bridge domain %d: %w", b.ID, err)
		}
		bs.domains.byID[b.ID] = b
	}
	return nil
}

// fixedEntries returns the entries of a bridge domain by MAC.
func (s *BridgeState) fixedEntries() map[frame.MAC]L2Entry {
	all := map[frame.MAC]L2Entry{}
	for _, e := range s.Fixed {
		all[e.MAC] = e
	}
	return all
}
