package forward

import (
	"encoding/binary"
	"net/netip"

	"github.com/weftnet/weft/vswitch/frame"
)

// shortcut forwards the plain frames of a vector: those that need no more than a lookup and, between tables, a new
// header. It decides on the frame's head alone, so that a borrowed body is not copied before it is transmitted. Any
// other frame takes the long way, input, which decides the same for a plain frame.
//
// A shortcut lives for one vector. It may keep what it looked up, since snapshot, ports and MAC table change between
// vectors only.
type shortcut struct {
	w  *worker
	in *iface
	br *bridge // of in, or nil: in is routed

	source, target macKey // of a bridge: those of the frame before, which were looked up
	out            *iface // where the frame before went
	exit           *attachment
}

// shortcut returns that of a vector from in; false: all frames take the long way.
func (w *worker) shortcut(in *iface) (s shortcut, ok bool) {
	if in == nil || !in.up {
		return s, false
	}
	s = shortcut{w: w, in: in}
	if in.l2.slot == 0 {
		return s, in.ip4 && in.fib4 >= 0
	}
	s.br = w.snapshot.bridges[in.l2.slot]
	return s, s.br.forward
}

// take says that a frame goes to s.exit, ready to be sent; false: it takes the long way.
func (s *shortcut) take(b *frame.Buffer) bool {
	if b.Virtio.NeedsChecksum() || b.Virtio.IsGSO() || b.Len() < frame.EthernetLen {
		return false
	}
	h := b.Head()
	if s.in.senders != nil && !s.in.senders.admitsIPv4(h) {
		return false
	}
	if s.in.acl != nil && !s.in.acl.admitsPlain(h, b.Len()) {
		return false
	}
	if s.br != nil {
		return s.bridges(h)
	}
	return s.routes(b, h)
}

// leads makes out the way out; false: it has no port at work, or is down.
func (s *shortcut) leads(out *iface) bool {
	if out == s.out {
		return true
	}
	a := s.w.ports.at(out.index)
	if a == nil || a.failure.Load() != nil {
		return false
	}
	s.out, s.exit = out, a
	return true
}

// bridges says whether a frame that begins with h goes to s.exit. Its source is known then.
func (s *shortcut) bridges(h []byte) bool {
	target, source := macKeyAt(s.br.slot, h), macKeyAt(s.br.slot, h[6:])
	if source != s.source && s.br.learn {
		if !s.w.knows(s.br, s.in, source) {
			return false
		}
		s.source = source
	}
	if target == s.target {
		return true
	}
	out := s.member(target)
	if out == nil || !s.leads(out) {
		s.target = 0
		return false
	}
	s.target = target
	return true
}

// member finds the member of the bridge domain that frames to a MAC are sent to; nil: none, or not plainly.
func (s *shortcut) member(target macKey) *iface {
	if target.isMulticast() {
		return nil
	}
	f, known := s.w.whereIs(s.br, target)
	if !known || f.filter || f.out == s.in.index {
		return nil
	}
	out := s.w.snapshot.iface(f.out)
	if out == nil || !out.up || out.l2.bvi || out.l2.slot != s.in.l2.slot ||
		out.l2.splitHorizon != 0 && out.l2.splitHorizon == s.in.l2.splitHorizon {
		return nil
	}
	return out
}

const (
	// waysOrder sizes a worker's cache of routes: 1<<waysOrder ways, 32 KiB.
	waysOrder = 10
	// plainIPv4 is the first byte of an IPv4 header without options.
	plainIPv4 = 0x45
)

// way is where all packets to a block of destinations leave, or to a single one, with the addresses of the Ethernet header: a
// result of find and of the neighbour's table.
type way struct {
	out   *iface // nil: packets take the long way
	key   uint64 // the table's slot and the destination or its block; 0: an empty entry
	first uint64 // of the Ethernet header, as rewritten
	rest  uint32
	split bool // of a block: each destination has a way of its own
}

// ways caches routes of one snapshot; a new one voids it. It is direct mapped: a lookup is one comparison or two, and the worst
// that senders of ever new destinations achieve is that each packet is looked up in the tables.
type ways struct {
	of      *snapshot
	entries [1 << waysOrder]way
}

// begin prepares for packets that are routed by s.
func (c *ways) begin(s *snapshot) {
	if c.of != s {
		c.of = s
		clear(c.entries[:])
	}
}

// The lower bits of a key are a destination, or, with ofBlock, a block's number.
const (
	ofBlock   = 1 << 32
	slotShift = 33
)

// to returns the way to a destination from the table in a slot, which there is.
func (c *ways) to(slot int, destination uint32) *way {
	table := uint64(slot+1) << slotShift
	w := c.at(table|ofBlock|uint64(destination>>(32-blockBits)), slot, destination)
	if w.split {
		w = c.at(table|uint64(destination), slot, destination)
	}
	return w
}

// at returns the entry of a key, which it fills if that is another one's.
func (c *ways) at(key uint64, slot int, destination uint32) *way {
	w := &c.entries[key*0x9e3779b97f4a7c15>>(64-waysOrder)]
	if w.key != key {
		*w = c.of.wayTo(slot, destination)
		if w.split = w.split && key&ofBlock != 0; w.split {
			w.out = nil
		}
		w.key = key
	}
	return w
}

// routes says whether an IPv4 packet goes to s.exit. Its headers are rewritten then.
func (s *shortcut) routes(b *frame.Buffer, h []byte) bool {
	const end = frame.EthernetLen + frame.IPv4Len
	if len(h) < end || binary.LittleEndian.Uint64(h)&macWordMask != s.in.macWord {
		return false
	}
	if binary.BigEndian.Uint16(h[12:]) != frame.TypeIPv4 || h[frame.EthernetLen] != plainIPv4 {
		return false
	}
	p := frame.IPv4(h[frame.EthernetLen:end])
	total := int(binary.BigEndian.Uint16(p[2:]))
	if total < frame.IPv4Len || total > b.Len()-frame.EthernetLen || p.TTL() <= 1 || !frame.PlainChecksumValid((*[frame.IPv4Len]byte)(p)) ||
		!s.admitsSource(binary.BigEndian.Uint32(p[12:])) {
		return false
	}
	destination := binary.BigEndian.Uint32(p[16:])
	if !isUnicast4(destination) {
		return false
	}
	e := s.w.ways.to(s.in.fib4, destination)
	if e.out == nil || total > e.out.mtu || !s.leads(e.out) {
		return false
	}
	if b.Len() != frame.EthernetLen+total {
		b.SetLen(frame.EthernetLen + total)
	}
	p.DecrementTTL()
	binary.LittleEndian.PutUint64(h, e.first)
	binary.LittleEndian.PutUint32(h[8:], e.rest)
	return true
}

// admitsSource says that packets from an address are neither spoofed nor from none: what unicast4 and holds say.
func (s *shortcut) admitsSource(a uint32) bool {
	if !isUnicast4(a) {
		return false
	}
	for _, own := range s.in.own4 {
		if a == own {
			return false
		}
	}
	return true
}

// isUnicast4 is unicast4 of an address in a register.
func isUnicast4(a uint32) bool {
	return a>>28 != 0xe && a>>24 != 127 && a != 0 && a != ^uint32(0)
}

// wayTo looks up a destination in a table. The way out is nil where packets differ, are not forwarded, or need more than
// new addresses; split says that it is the way of this destination only.
func (s *snapshot) wayTo(slot int, destination uint32) (found way) {
	var raw [4]byte
	binary.BigEndian.PutUint32(raw[:], destination)
	a := netip.AddrFrom4(raw)
	out, target, one := s.onlyWay(slot, a)
	found.split = !one || s.isFine(slot, a)
	if out == nil {
		return found
	}
	var header [frame.EthernetLen]byte
	if !out.bare {
		n, ok := out.neighbour(target)
		if !ok {
			return found
		}
		frame.PutEthernet(header[:], n.mac, out.mac, frame.TypeIPv4)
	}
	found.out, found.first, found.rest = out, binary.LittleEndian.Uint64(header[:]), binary.LittleEndian.Uint32(header[8:])
	return found
}
