package forward

import (
	"encoding/binary"
	"net/netip"

	"github.com/weftnet/weft/vswitch/frame"
)

const (
	// waysOrder sizes a worker's cache of routes: 1<<waysOrder ways, 32 KiB.
	waysOrder = 10
	// plainIPv4 is the first byte of an IPv4 header without options.
	plainIPv4 = 0x45
)

// way is where all packets to one destination of a table leave, with the addresses of the Ethernet header: a result of
// find and of the neighbour's table.
type way struct {
	out   *iface // nil: packets take the long way
	key   uint64 // the table's slot and the destination; 0: an empty entry
	first uint64 // of the Ethernet header, as rewritten
	rest  uint32
}

// ways caches routes of one snapshot; a new one voids it. It is direct mapped: a lookup is one comparison, and the worst
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

// at returns the place of a destination, which may be another one's.
func (c *ways) at(slot int, destination uint32) (w *way, key uint64) {
	key = uint64(slot+1)<<32 | uint64(destination)
	return &c.entries[key*0x9e3779b97f4a7c15>>(64-waysOrder)], key
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
	e, key := s.w.ways.at(s.in.fib4, destination)
	if e.key != key {
		*e = s.w.wayTo(s.in.fib4, destination)
		e.key = key
	}
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
// new addresses.
func (w *worker) wayTo(slot int, destination uint32) (found way) {
	var raw [4]byte
	binary.BigEndian.PutUint32(raw[:], destination)
	a := netip.AddrFrom4(raw)
	if !unicast4(a) {
		return found
	}
	out, target, ok := w.snapshot.onlyWay(slot, a)
	if !ok || out.bare {
		return found
	}
	n, ok := out.neighbour(target)
	if !ok {
		return found
	}
	var header [frame.EthernetLen]byte
	frame.PutEthernet(header[:], n.mac, out.mac, frame.TypeIPv4)
	return way{out: out, first: binary.LittleEndian.Uint64(header[:]), rest: binary.LittleEndian.Uint32(header[8:])}
}
