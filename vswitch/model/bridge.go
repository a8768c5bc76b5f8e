package model

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
)

// maxBridgeID is VPP's L2_BD_ID_MAX.
const maxBridgeID = 1<<24 - 1

// Bridge is what the API sets of a bridge domain.
type Bridge struct {
	ID    uint32 // NoIndex in AddBridge: the lowest free one
	Flags BridgeFlags
	Age   uint8 // minutes after which a learned MAC is forgotten; 0: never
	Tag   string
}

// BridgeFlags are a bridge domain's features, in the numbers of bridge_flags.
type BridgeFlags uint32

// The features. Those of ARP are refused.
const (
	BridgeLearn   BridgeFlags = 1
	BridgeForward BridgeFlags = 2
	BridgeFlood   BridgeFlags = 4
	BridgeUUFlood BridgeFlags = 8
	bridgeARP     BridgeFlags = 16 | 32

	bridgeDefaults = BridgeLearn | BridgeForward | BridgeFlood | BridgeUUFlood
)

// BridgeDetails is what bridge_domain_details tells.
type BridgeDetails struct {
	Bridge
	Index   int    // its place in the dump
	BVI     uint32 // or NoIndex
	Members []BridgeMember
	Learned int // MACs
}

// BridgeMember is an interface in a bridge domain; the BVI is the first.
type BridgeMember struct {
	Interface    uint32
	SplitHorizon uint8
}

// bridge is a bridge domain with all that hangs on it.
type bridge struct {
	Bridge
	index   int
	bvi     uint32
	members []BridgeMember
	fixed   map[frame.MAC]L2Entry
}

// AddBridge makes a bridge domain and returns its id.
func (m *Model) AddBridge(b Bridge) (uint32, error) {
	defer m.change()()
	if b.ID == NoIndex {
		b.ID = m.freeBridgeLocked()
	}
	switch {
	case b.ID == 0 || m.bridges[b.ID] != nil:
		return b.ID, BDAlreadyExists
	case b.ID > maxBridgeID:
		return b.ID, BDIDExceedMax
	case b.Flags&bridgeARP != 0:
		return b.ID, Unsupported
	}
	_, err := m.makeBridgeLocked(b)
	return b.ID, err
}

// DeleteBridge removes a bridge domain without members. Unlike in VPP its static MACs go with it.
func (m *Model) DeleteBridge(id uint32) error {
	defer m.change()()
	b := m.bridges[id]
	switch {
	case id == 0:
		return BDNotModifiable
	case b == nil:
		return NoSuchEntry
	case len(b.members) > 0:
		return BDInUse
	}
	delete(m.bridges, id)
	m.engine.DelBridge(id)
	return nil
}

// Bridges lists the bridge domain of that id, or all for NoIndex, in the order of their indexes.
func (m *Model) Bridges(id uint32) []BridgeDetails {
	m.mu.Lock()
	defer m.mu.Unlock()
	learned := map[uint32]int{}
	for _, l := range m.engine.LearnedMACs(0) {
		learned[l.Bridge]++
	}
	var list []BridgeDetails
	for _, b := range m.bridges {
		if id == NoIndex || id == b.ID {
			list = append(list, BridgeDetails{Bridge: b.Bridge, Index: b.index, BVI: b.bvi, Members: slices.Clone(b.members),
				Learned: learned[b.ID]})
		}
	}
	slices.SortFunc(list, func(a, b BridgeDetails) int { return cmp.Compare(a.Index, b.Index) })
	return list
}

// SetBridgeFlags switches features on or off and returns VPP's bitmap of those that are on then.
func (m *Model) SetBridgeFlags(id uint32, flags BridgeFlags, on bool) (uint32, error) {
	defer m.change()()
	b, err := m.bridgeLocked(id)
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
	return b.Flags.bitmap(), m.setBridgeLocked(b)
}

// SetBridgeAge sets after how many minutes learned MACs are forgotten.
func (m *Model) SetBridgeAge(id uint32, minutes uint8) error {
	defer m.change()()
	b, err := m.bridgeLocked(id)
	if err != nil {
		return err
	}
	b.Age = minutes
	return m.setBridgeLocked(b)
}

// bitmap is VPP's: all bits but those of features that are off, which have bits of their own there.
func (f BridgeFlags) bitmap() uint32 {
	const arpUnicast, arpTermination, unicastForward = 1 << 3, 1 << 4, 1 << 6
	off := uint32(arpUnicast | arpTermination | unicastForward)
	for flag, bit := range map[BridgeFlags]uint32{BridgeFlood: 1 << 2, BridgeUUFlood: 1 << 5, BridgeForward: 1 << 7, BridgeLearn: 1 << 9} {
		if f&flag == 0 {
			off |= bit
		}
	}
	return ^off
}

// bridgeLocked finds a bridge domain that may be changed.
func (m *Model) bridgeLocked(id uint32) (*bridge, error) {
	if id == 0 {
		return nil, BDNotModifiable
	}
	b := m.bridges[id]
	if b == nil {
		return nil, NoSuchEntry
	}
	return b, nil
}

func (m *Model) freeBridgeLocked() uint32 {
	id := uint32(1)
	for m.bridges[id] != nil {
		id++
	}
	return id
}

func (m *Model) makeBridgeLocked(b Bridge) (*bridge, error) {
	made := &bridge{Bridge: b, index: 1, bvi: NoIndex, fixed: map[frame.MAC]L2Entry{}}
	made.Tag = cutTag(b.Tag)
	taken := map[int]bool{}
	for _, other := range m.bridges {
		taken[other.index] = true
	}
	for taken[made.index] {
		made.index++
	}
	if err := m.setBridgeLocked(made); err != nil {
		return nil, err
	}
	m.bridges[b.ID] = made
	return made, nil
}

// setBridgeLocked tells the engine what a bridge domain is like.
func (m *Model) setBridgeLocked(b *bridge) error {
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
		f.Fixed = append(f.Fixed, forward.FixedMAC{MAC: mac, Interface: e.Interface, Static: e.Static, Filter: e.Filter})
	}
	err := m.engine.SetBridge(f)
	if errors.Is(err, forward.ErrTooManyBridges) {
		return LimitExceeded
	}
	return err
}

func compareMACs(a, b frame.MAC) int { return slices.Compare(a[:], b[:]) }
