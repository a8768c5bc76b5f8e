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

// bridged decides on a frame that was received in a bridge domain. Whatever it carries, VLAN tags too, passes untouched.
func (w *worker) bridged(in *iface, b *frame.Buffer) verdict {
	raw := b.Bytes()
	if len(raw) < frame.EthernetLen {
		return verdict{drop: dropShortEthernet}
	}
	if !b.Virtio.Fits(b.Len()) {
		return verdict{drop: dropVirtio}
	}
	br := w.snapshot.bridges[in.l2.slot]
	if br.learn {
		if drop := w.learn(br, in, macKeyAt(br.slot, raw[6:])); drop != kept {
			return verdict{drop: drop}
		}
	}
	return w.relay(br, in, b)
}

// relay sends a frame on in its bridge domain; in is where it came from, which may be the BVI.
func (w *worker) relay(br *bridge, in *iface, b *frame.Buffer) verdict {
	to := macKeyAt(br.slot, b.Bytes())
	if to.isMulticast() {
		if !br.flood {
			return verdict{drop: dropNotBridged}
		}
		return w.flood(br, in, b)
	}
	if !br.forward {
		if !br.uFlood && !br.flood {
			return verdict{drop: dropNotBridged}
		}
		return w.flood(br, in, b)
	}
	f, known := w.whereIs(br, to)
	switch {
	case known && f.filter:
		return verdict{drop: dropFilter}
	case known:
		return w.unicast(in, f.out, b)
	case br.uFlood:
		return w.flood(br, in, b)
	}
	return verdict{drop: dropUnknownMAC}
}

// unicast sends a frame to one member.
func (w *worker) unicast(in *iface, index uint32, b *frame.Buffer) verdict {
	if index == in.index {
		return verdict{drop: dropReflected}
	}
	out := w.snapshot.iface(index)
	if out == nil || out.l2.slot != in.l2.slot {
		return verdict{drop: dropNoMember}
	}
	if out.l2.bvi {
		return w.toBVI(out, b)
	}
	if !out.up {
		return verdict{drop: dropOutputDown}
	}
	if out.l2.splitHorizon != 0 && out.l2.splitHorizon == in.l2.splitHorizon {
		return verdict{drop: dropSplitHorizon}
	}
	return verdict{out: out}
}

// flood sends a frame to all members but the one it came from and those of its split-horizon group. The BVI comes last: layer 3
// may change the frame.
func (w *worker) flood(br *bridge, in *iface, b *frame.Buffer) verdict {
	if !w.mayFlood(in) {
		return verdict{drop: dropStorm}
	}
	var last *iface
	receivers := 0
	for _, m := range br.members {
		out := w.snapshot.iface(m.Interface)
		if out == nil || out == in || !out.up || out.l2.slot != br.slot || out.l2.bvi {
			continue
		}
		if in.l2.splitHorizon != 0 && in.l2.splitHorizon == out.l2.splitHorizon {
			continue
		}
		if last != nil {
			w.replicate(last, b)
		}
		last = out
		receivers++
	}
	w.payFlood(in, receivers)
	if bvi := w.floodedBVI(br, in, b); bvi != nil {
		return w.floodBVI(bvi, last, b)
	}
	if last == nil {
		return verdict{drop: dropNoMembers}
	}
	w.drops[noteFlooded].Add(1)
	w.how = byFlood
	return verdict{out: last}
}

// replicate sends a copy.
func (w *worker) replicate(out *iface, b *frame.Buffer) {
	c := w.spare()
	if c == nil {
		w.drops[dropReplication].Add(1)
		return
	}
	c.SetLen(copy(c.Room(), b.Bytes()))
	c.Virtio = b.Virtio
	w.send(out, c)
}

// floodedBVI is the bridge's BVI where it takes part in the flooding of b, or nil. It listens to groups and to its own MAC.
func (w *worker) floodedBVI(br *bridge, in *iface, b *frame.Buffer) *iface {
	if br.bvi == NoInterface || br.bvi == in.index {
		return nil
	}
	bvi := w.snapshot.iface(br.bvi)
	if bvi == nil || !bvi.up || bvi.l2.slot != br.slot {
		return nil
	}
	if to := frame.Ethernet(b.Bytes()).Destination(); !to.IsMulticast() && to != bvi.mac {
		return nil
	}
	return bvi
}

// floodBVI hands a flooded frame to the BVI, after a copy to the last member, if any. What layer 3 has no use for is then
// no drop of the frame.
func (w *worker) floodBVI(bvi, last *iface, b *frame.Buffer) verdict {
	if last == nil {
		return w.toBVI(bvi, b)
	}
	w.replicate(last, b)
	w.drops[noteFlooded].Add(1)
	d := w.toBVI(bvi, b)
	if d.drop != kept {
		w.drops[d.drop].Add(1)
	}
	d.drop, w.how = kept, byFlood
	return d
}

// toBVI lets a frame enter layer 3 by the BVI, as if it had been received there.
func (w *worker) toBVI(bvi *iface, b *frame.Buffer) verdict {
	e := frame.Ethernet(b.Bytes())
	switch {
	case !bvi.up:
		return verdict{drop: dropInterfaceDown}
	case !e.Destination().IsMulticast() && e.Destination() != bvi.mac:
		return verdict{drop: dropBVIMAC}
	case e.Type() != frame.TypeIPv4 && e.Type() != frame.TypeIPv6 && e.Type() != frame.TypeARP:
		return verdict{drop: dropBVIType}
	}
	var tally vectorTally
	tally.bytes = uint64(b.Len())
	d := w.layer3(bvi, b, e)
	tally.add(b, d)
	tally.publish(bvi.counters[w.id], 1)
	if d.punt != 0 {
		// Here, and not where the frame's own interface is known only: the slow path answers on the BVI.
		w.punt(bvi, b, d)
		w.how = byBVI
		return verdict{drop: d.drop}
	}
	return d
}

// fromBVI sends a routed frame, or one of the slow path's, into the bridge. As in VPP the split-horizon group of the BVI does not
// hold back what it sends to one host, nor its questions for neighbours; it sends nothing else.
func (w *worker) fromBVI(bvi *iface, b *frame.Buffer) {
	c := bvi.counters[w.id]
	c.txPackets.Add(1)
	c.txBytes.Add(uint64(b.Len()))
	w.dispose(bvi, b, w.relay(w.snapshot.bridges[bvi.l2.slot], bvi, b))
}
