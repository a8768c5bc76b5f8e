package forward

import (
	"errors"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

// maxBridges limits the bridge domains of an engine: their slots are part of MAC table keys.
const maxBridges = 4096

// ErrTooManyBridges means that maxBridges bridge domains exist.
var ErrTooManyBridges = errors.New("too many bridge domains")

// Bridge is a bridge domain: a layer 2 network between interfaces. Its members do not route the frames that they
// receive.
type Bridge struct {
	ID      uint32 // never 0
	Learn   bool   // learn source MACs
	Forward bool   // send frames to known MACs to one member; otherwise flood them
	Flood   bool   // flood frames to multicast MACs
	UUFlood bool   // flood frames to unknown MACs
	Age     time.Duration
	Members []BridgeMember // in flooding order, without the BVI

	// BVI is the bridge virtual interface, which has no port, or NoInterface. It receives flooded frames and frames to
	// its MAC, and sends the packets that are routed to it into the bridge domain.
	BVI        uint32
	Configured []ConfiguredMAC // entries that are not learned; includes the MAC of the BVI
}

// BridgeMember is an interface in a bridge domain. Members of the same split-horizon group other than 0 do not send to
// each other.
type BridgeMember struct {
	Interface    uint32
	SplitHorizon uint8
}

// ConfiguredMAC is an entry of a bridge domain's MAC table that control configures.
type ConfiguredMAC struct {
	MAC       frame.MAC
	Interface uint32
	Static    bool // frames from it on another interface are dropped; otherwise it can be learned there
	Filter    bool // frames from and to it are dropped
}

// bridge is a bridge domain as the workers see it.
type bridge struct {
	slot                          uint16
	id                            uint32
	learn, forward, flood, uFlood bool
	age                           uint32 // in seconds; 0: never expires
	members                       []BridgeMember
	bvi                           uint32
	// static MAC of the BVI, apart from configured because most bridge domains have no other
	bviMAC     macKey
	configured map[macKey]macTarget
}

// macTarget is the interface behind a MAC.
type macTarget struct {
	out            uint32
	static, filter bool
}

// bridgePort is an interface's membership in a bridge domain; the zero value is no membership.
type bridgePort struct {
	slot         uint16
	splitHorizon uint8
	bvi          bool
}

// switching configures bridge domains and their MACs.
type switching struct {
	*draft
	bridgeSlots map[uint32]uint16 // by bridge domain ID
}

// SetBridge creates a bridge domain or replaces its configuration; learned MACs stay. An interface that leaves keeps
// its learned MACs until FlushMACs. An interface in another bridge domain moves.
func (s *switching) SetBridge(b Bridge) error {
	d := s.edit()
	for _, m := range b.Members {
		if d.iface(m.Interface) == nil {
			return ErrNoInterface
		}
	}
	if b.BVI != NoInterface && d.iface(b.BVI) == nil {
		return ErrNoInterface
	}
	slot, ok := s.bridgeSlots[b.ID]
	if !ok {
		if slot, ok = d.freeBridgeSlot(); !ok {
			return ErrTooManyBridges
		}
		s.bridgeSlots[b.ID] = slot
	}
	d.fillBridge(slot, newBridge(slot, b))
	return nil
}

// DelBridge removes a bridge domain, if it exists, with its MACs; its members route again. Like FlushMACs it publishes
// all changes and waits for the workers.
func (s *switching) DelBridge(id uint32) {
	slot, ok := s.bridgeSlots[id]
	if !ok {
		return
	}
	d := s.edit()
	d.fillBridge(slot, nil)
	s.flush(func(m macEntry) bool { return m.key.slot() == slot })
	delete(s.bridgeSlots, id)
}

func newBridge(slot uint16, b Bridge) *bridge {
	br := &bridge{slot: slot, id: b.ID, learn: b.Learn, forward: b.Forward, flood: b.Flood, uFlood: b.UUFlood,
		age: uint32(b.Age / time.Second), bvi: b.BVI, members: append([]BridgeMember(nil), b.Members...)}
	for _, f := range b.Configured {
		key := macKeyOf(slot, f.MAC)
		if b.BVI != NoInterface && f.Interface == b.BVI && f.Static && br.bviMAC == 0 {
			br.bviMAC = key
			continue
		}
		if br.configured == nil {
			br.configured = map[macKey]macTarget{}
		}
		br.configured[key] = macTarget{out: f.Interface, static: f.Static, filter: f.Filter}
	}
	return br
}

// configuredMAC returns the configured entry of a MAC.
func (br *bridge) configuredMAC(k macKey) (f macTarget, known bool) {
	if k == br.bviMAC {
		return macTarget{out: br.bvi, static: true}, true
	}
	if br.configured == nil {
		return macTarget{}, false
	}
	f, known = br.configured[k]
	return f, known
}

// bridge returns the bridge domain in a slot, or nil.
func (s *snapshot) bridge(slot uint16) *bridge {
	if int(slot) >= len(s.bridges) {
		return nil
	}
	return s.bridges[slot]
}

// freeBridgeSlot returns a free slot. Slot 0 is never used, so that no key of a MAC table is 0.
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

// fillBridge sets the bridge domain in a slot and updates the interfaces that join, change or leave.
func (s *snapshot) fillBridge(slot uint16, br *bridge) {
	before := s.bridges[slot].ports()
	now := br.ports()
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

// ports returns the membership of each interface of a bridge domain, which may be nil.
func (br *bridge) ports() map[uint32]bridgePort {
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

// l2Forwarder forwards frames in bridge domains.
type l2Forwarder struct {
	*view
	w     *worker
	fib   l2fib
	storm stormControl
}

// input decides on a frame received in a bridge domain. The payload and VLAN tags are never changed.
func (l *l2Forwarder) input(in *iface, b *frame.Buffer) verdict {
	raw := b.Bytes()
	if len(raw) < frame.EthernetLen {
		return verdict{drop: dropShortEthernet}
	}
	if !b.Virtio.Fits(b.Len()) {
		return verdict{drop: dropVirtio}
	}
	br := l.snapshot.bridges[in.l2.slot]
	if br.learn {
		if drop := l.fib.learn(br, in, macKeyAt(br.slot, raw[6:])); drop != noDrop {
			return verdict{drop: drop}
		}
	}
	return l.relay(br, in, b)
}

// relay forwards a frame in its bridge domain; in is the interface it came from, possibly the BVI.
func (l *l2Forwarder) relay(br *bridge, in *iface, b *frame.Buffer) verdict {
	if l.path != nil {
		l.path.add(traceStep{kind: stepBridge, number: br.id, mac: frame.Ethernet(b.Bytes()).Destination()})
	}
	to := macKeyAt(br.slot, b.Bytes())
	if to.isMulticast() {
		if !br.flood {
			return verdict{drop: dropNotBridged}
		}
		return l.flood(br, in, b)
	}
	if !br.forward {
		if !br.uFlood && !br.flood {
			return verdict{drop: dropNotBridged}
		}
		return l.flood(br, in, b)
	}
	f, known := l.fib.lookup(br, to)
	switch {
	case known && f.filter:
		return verdict{drop: dropFilter}
	case known:
		return l.unicast(in, f.out, b)
	case br.uFlood:
		return l.flood(br, in, b)
	}
	return verdict{drop: dropUnknownMAC}
}

// unicast forwards a frame to one member.
func (l *l2Forwarder) unicast(in *iface, index uint32, b *frame.Buffer) verdict {
	if l.path != nil {
		l.path.add(traceStep{kind: stepMember, iface: index})
	}
	if index == in.index {
		return verdict{drop: dropReflected}
	}
	out := l.snapshot.iface(index)
	if out == nil || out.l2.slot != in.l2.slot {
		return verdict{drop: dropNoMember}
	}
	if out.l2.bvi {
		return l.toBVI(out, in, b)
	}
	if !out.up {
		return verdict{drop: dropOutputDown}
	}
	if out.l2.splitHorizon != 0 && out.l2.splitHorizon == in.l2.splitHorizon {
		return verdict{drop: dropSplitHorizon}
	}
	return verdict{out: out}
}

// flood sends a frame to all members except the source and its split-horizon group. The BVI comes last, because layer 3
// may change the frame.
func (l *l2Forwarder) flood(br *bridge, in *iface, b *frame.Buffer) verdict {
	if !l.storm.allows(in) {
		return verdict{drop: dropStorm}
	}
	if l.path != nil {
		l.path.add(traceStep{kind: stepFlood, number: uint32(len(br.members))})
	}
	var last *iface
	receivers := 0
	for _, m := range br.members {
		out := l.snapshot.iface(m.Interface)
		if out == nil || out == in || !out.up || out.l2.slot != br.slot || out.l2.bvi {
			continue
		}
		if in.l2.splitHorizon != 0 && in.l2.splitHorizon == out.l2.splitHorizon {
			continue
		}
		if last != nil {
			l.replicate(last, b)
		}
		last = out
		receivers++
	}
	l.storm.charge(in, receivers)
	if bvi := l.floodedBVI(br, in, b); bvi != nil {
		if last != nil {
			l.replicate(last, b)
		}
		return l.floodBVI(bvi, in, b, last != nil)
	}
	if last == nil {
		return verdict{drop: dropNoMembers}
	}
	l.drops[statFlooded].Add(1)
	l.w.detail = detailFlooded
	return verdict{out: last}
}

// replicate sends a copy of a frame.
func (l *l2Forwarder) replicate(out *iface, b *frame.Buffer) {
	if out.acl != nil {
		if drop := l.w.acl.verdict(out, outward, b.Bytes()); drop != noDrop {
			l.w.tx.countDrop(drop)
			return
		}
	}
	c := l.w.tx.newBuffer()
	if c == nil {
		l.drops[dropReplication].Add(1)
		return
	}
	c.SetLen(copy(c.Room(), b.Bytes()))
	c.Virtio = b.Virtio
	l.w.sendPoliced(out, c)
}

// floodedBVI returns the BVI if it receives the flooded frame b, or nil. A BVI receives multicast and frames to its own
// MAC.
func (l *l2Forwarder) floodedBVI(br *bridge, in *iface, b *frame.Buffer) *iface {
	if br.bvi == NoInterface || br.bvi == in.index {
		return nil
	}
	bvi := l.snapshot.iface(br.bvi)
	if bvi == nil || !bvi.up || bvi.l2.slot != br.slot {
		return nil
	}
	if to := frame.Ethernet(b.Bytes()).Destination(); !to.IsMulticast() && to != bvi.mac {
		return nil
	}
	return bvi
}

// floodBVI sends a flooded frame to the BVI after the other members, if any. If layer 3 drops it there, the frame still
// counts as flooded.
func (l *l2Forwarder) floodBVI(bvi, in *iface, b *frame.Buffer, hasOthers bool) verdict {
	if !hasOthers {
		return l.toBVI(bvi, in, b)
	}
	l.drops[statFlooded].Add(1)
	d := l.toBVI(bvi, in, b)
	if d.drop != noDrop {
		l.drops[d.drop].Add(1)
	}
	d.drop = noDrop
	l.w.detail = detailFlooded
	return d
}

// toBVI routes a frame of member in as received on the BVI.
func (l *l2Forwarder) toBVI(bvi, in *iface, b *frame.Buffer) verdict {
	if l.path != nil {
		l.path.add(traceStep{kind: stepBVI, iface: bvi.index})
	}
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
	d := l.w.layer3(bvi, b, e)
	tally.add(b, d)
	tally.publish(bvi.counters[l.id], 1)
	if d.punt != 0 {
		// Punt here, because the slow path answers on the BVI and the caller knows the member only.
		l.w.slow.punt(bvi, in, b, d)
		l.w.detail = detailPuntedByBVI
		return verdict{drop: d.drop}
	}
	return d
}

// fromBVI sends a routed frame, or one of the slow path, into the bridge domain. As in VPP the split-horizon group of
// the BVI restricts neither unicast nor neighbour solicitations, and the BVI sends no other frames.
func (l *l2Forwarder) fromBVI(bvi *iface, b *frame.Buffer) {
	c := bvi.counters[l.id]
	c.txPackets.Add(1)
	c.txBytes.Add(uint64(b.Len()))
	l.w.apply(bvi, b, l.w.egress(b, l.relay(l.snapshot.bridges[bvi.l2.slot], bvi, b)))
}
