package forward

import (
	"errors"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

// maxBridges bounds the bridge domains of an engine: their slots are part of the MAC tables' keys.
const maxBridges = 4096

// ErrTooManyBridges says that there is no room for one more bridge domain.
var ErrTooManyBridges = errors.New("too many bridge domains")

// Bridge is a bridge domain: a layer 2 network between interfaces. What they receive is no longer looked at above layer 2.
type Bridge struct {
	ID      uint32 // not 0
	Learn   bool   // remember where MACs were seen
	Forward bool   // send frames to known MACs to where they were seen; else they are flooded
	Flood   bool   // send frames to groups to all members
	UUFlood bool   // send frames to unknown MACs to all members
	Age     time.Duration
	Members []BridgeMember // in the order that frames are flooded in, without the BVI

	// BVI is the interface by which the bridge is routed, an interface without a port, or NoInterface: it receives what is
	// flooded and what is sent to its MAC, and what is routed to it goes into the bridge.
	BVI   uint32
	Fixed []FixedMAC // MACs that are not learned; the BVI's own is among them
}

// BridgeMember is an interface in a bridge domain. Members of the same split-horizon group other than 0 never send to each
// other.
type BridgeMember struct {
	Interface    uint32
	SplitHorizon uint8
}

// FixedMAC is an entry of a bridge domain's MAC table that control made.
type FixedMAC struct {
	MAC       frame.MAC
	Interface uint32
	Static    bool // no other interface may send from it; else it may be seen elsewhere, and is learned there
	Filter    bool // frames from and to it are dropped
}

// bridge is a bridge domain as workers see it.
type bridge struct {
	slot                          uint16
	id                            uint32
	learn, forward, flood, uFlood bool
	age                           uint32 // in seconds; 0: for ever
	members                       []BridgeMember
	bvi                           uint32
	own                           macKey // the BVI's, where it is fixed: kept apart, so that most bridges have no others
	fixed                         map[macKey]fixedMAC
}

// fixedMAC is what a worker must know of a FixedMAC.
type fixedMAC struct {
	out            uint32
	static, filter bool
}

// bridgePort is an interface's place in a bridge domain; the zero value is none.
type bridgePort struct {
	slot         uint16
	splitHorizon uint8
	bvi          bool
}

// SetBridge makes the bridge domain or changes all of it; what was learned stays. An interface that leaves keeps its learned
// MACs until FlushMACs; one that was in another bridge domain is no member there any more.
func (e *Engine) SetBridge(b Bridge) error {
	d := e.edit()
	for _, m := range b.Members {
		if d.iface(m.Interface) == nil {
			return ErrNoInterface
		}
	}
	if b.BVI != NoInterface && d.iface(b.BVI) == nil {
		return ErrNoInterface
	}
	slot, ok := e.bridgeSlots[b.ID]
	if !ok {
		if slot, ok = d.freeBridgeSlot(); !ok {
			return ErrTooManyBridges
		}
		e.bridgeSlots[b.ID] = slot
	}
	d.fillBridge(slot, newBridge(slot, b))
	return nil
}

// DelBridge removes the bridge domain and forgets its MACs; its members are back on layer 3. Like FlushMACs it publishes
// all changes and waits for the workers. One that is gone is no error.
func (e *Engine) DelBridge(id uint32) {
	slot, ok := e.bridgeSlots[id]
	if !ok {
		return
	}
	d := e.edit()
	d.fillBridge(slot, nil)
	e.flush(func(m macEntry) bool { return m.key.slot() == slot })
	delete(e.bridgeSlots, id)
}

func newBridge(slot uint16, b Bridge) *bridge {
	br := &bridge{slot: slot, id: b.ID, learn: b.Learn, forward: b.Forward, flood: b.Flood, uFlood: b.UUFlood,
		age: uint32(b.Age / time.Second), bvi: b.BVI, members: append([]BridgeMember(nil), b.Members...)}
	for _, f := range b.Fixed {
		key := macKeyOf(slot, f.MAC)
		if b.BVI != NoInterface && f.Interface == b.BVI && f.Static && br.own == 0 {
			br.own = key
			continue
		}
		if br.fixed == nil {
			br.fixed = map[macKey]fixedMAC{}
		}
		br.fixed[key] = fixedMAC{out: f.Interface, static: f.Static, filter: f.Filter}
	}
	return br
}

// fixedAt finds what control said of a MAC.
func (br *bridge) fixedAt(k macKey) (f fixedMAC, known bool) {
	if k == br.own {
		return fixedMAC{out: br.bvi, static: true}, true
	}
	if br.fixed == nil {
		return fixedMAC{}, false
	}
	f, known = br.fixed[k]
	return f, known
}

// bridge finds the one in a slot, or nil.
func (s *snapshot) bridge(slot uint16) *bridge {
	if int(slot) >= len(s.bridges) {
		return nil
	}
	return s.bridges[slot]
}

// freeBridgeSlot finds a slot; 0 is none, so that no key of a MAC table is 0.
func (s *snapshot) freeBridgeSlot() (uint16, bool) {
	for len(s.bridges) < 2 {
		s.bridges = append(s.bridges, nil)
	}
	for slot := 1; slot < len(s.bridges); slot++ {
		if s.bridges[slot] == nil {
			return uint16(slot), true
		}
	}
	if len(s.bridges) > maxBridges {
		return 0, false
	}
	s.bridges = append(s.bridges, nil)
	return uint16(len(s.bridges) - 1), true
}

// fillBridge puts a bridge into its slot, in place of the one there, and tells the interfaces that come, change or go.
func (s *snapshot) fillBridge(slot uint16, br *bridge) {
	before, now := s.bridges[slot].places(), br.places()
	for index := range before {
		if _, stays := now[index]; !stays {
			s.leave(index, slot)
		}
	}
	for index, place := range now {
		if s.iface(index).l2 != place {
			s.join(index, place)
		}
	}
	s.bridges[slot] = br
}

// places are the interfaces of a bridge, which may be nil.
func (br *bridge) places() map[uint32]bridgePort {
	if br == nil {
		return nil
	}
	all := make(map[uint32]bridgePort, len(br.members)+1)
	for _, m := range br.members {
		all[m.Interface] = bridgePort{slot: br.slot, splitHorizon: m.SplitHorizon}
	}
	if br.bvi != NoInterface {
		all[br.bvi] = bridgePort{slot: br.slot, bvi: true}
	}
	return all
}

func (s *snapshot) leave(index uint32, slot uint16) {
	if i := s.iface(index); i != nil && i.l2.slot == slot {
		s.join(index, bridgePort{})
	}
}

func (s *snapshot) join(index uint32, p bridgePort) {
	next := *s.iface(index)
	next.l2 = p
	s.put(&next)
}
