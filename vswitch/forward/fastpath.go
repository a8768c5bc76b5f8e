package forward

import (
	"encoding/binary"
	"net/netip"

	"github.com/weftnet/weft/vswitch/frame"
)

// fastPath forwards the plain frames of a vector: those that need only a lookup and, if they are routed, a new header.
// It uses only the head of the frame, so that a borrowed body is not copied before it is transmitted. All other frames
// take the full path, input, which decides the same for a plain frame.
//
// A fastPath is used for one vector. It may keep lookup results, because snapshot, ports and MAC table do not change
// during a vector.
type fastPath struct {
	w  *worker
	in *iface
	br *bridge // nil: in is routed

	source, target macKey // in a bridge domain: of the previous frame
	out            *iface // of the previous frame
	port           *attachedPort

	acl      plainACL
	exceeded bool // the frame exceeds the rate of out, by conforms
}

// fastPath returns the fast path of a vector from in; false if all frames take the full path.
func (w *worker) fastPath(in *iface) (s fastPath, ok bool) {
	if in == nil || !in.up || in.subs != nil {
		return s, false
	}
	s = fastPath{w: w, in: in}
	if in.l2.slot == 0 {
		return s, in.ip4 && in.fib4 >= 0
	}
	s.br = w.snapshot.bridges[in.l2.slot]
	return s, s.br.forward
}

// tryForward makes a frame ready to be sent to s.port; false if it takes the full path.
func (s *fastPath) tryForward(b *frame.Buffer) bool {
	if b.Virtio.NeedsChecksum() || b.Virtio.IsGSO() || b.Len() < frame.EthernetLen {
		return false
	}
	h := b.Head()
	if s.in.macip != nil && !s.in.macip.permitsPlainIPv4(h) {
		return false
	}
	s.acl.next()
	if s.in.acl != nil && !s.acl.permits(s.w, s.in, inward, plainFrame{h, b.Len()}) {
		return false
	}
	if s.br != nil {
		return s.tryBridge(h) && s.mayLeave(s.out, h, b.Len())
	}
	return s.tryRoute(b, h)
}

// conforms reports whether a frame conforms to the policer of its output interface. The frame is dropped otherwise: the
// full path would police it again.
func (s *fastPath) conforms(b *frame.Buffer) bool {
	p := s.out.policeOut
	s.exceeded = p != nil && !s.w.police(p, s.out, b, dropPolicerOutput)
	return !s.exceeded
}

// mayLeave reports whether the output ACLs of an interface permit the frame, and counts its rules then.
func (s *fastPath) mayLeave(out *iface, h []byte, n int) bool {
	if out.acl != nil && !s.acl.permits(s.w, out, outward, plainFrame{h, n}) {
		return false
	}
	s.acl.count(s.in, out, n)
	return true
}

// setOutput sets the output interface; false if its port is missing or failed.
func (s *fastPath) setOutput(out *iface) bool {
	if out == s.out {
		return true
	}
	a := s.w.ports.at(out.index)
	if a == nil || a.failure.Load() != nil {
		return false
	}
	s.out = out
	s.port = a
	return true
}

// tryBridge reports whether a bridged frame with the head h goes to s.port, and its source needs no learning.
func (s *fastPath) tryBridge(h []byte) bool {
	target := macKeyAt(s.br.slot, h)
	source := macKeyAt(s.br.slot, h[6:])
	if source != s.source && s.br.learn {
		if !s.w.l2.fib.isCurrent(s.br, s.in, source) {
			return false
		}
		s.source = source
	}
	if target == s.target {
		return true
	}
	out := s.member(target)
	if out == nil || !s.setOutput(out) {
		s.target = 0
		return false
	}
	s.target = target
	return true
}

// member returns the bridge domain's member behind a MAC; nil if frames to it take the full path.
func (s *fastPath) member(target macKey) *iface {
	if target.isMulticast() {
		return nil
	}
	f, known := s.w.l2.fib.lookup(s.br, target)
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
	// routeCacheOrder is the binary logarithm of the entries of a route cache, which takes 32 KiB.
	routeCacheOrder = 10
	// plainIPv4 is the first byte of an IPv4 header without options.
	plainIPv4 = 0x45
)

// cachedRoute is the route to a block of destinations or to a single one, with the Ethernet addresses: the results of
// resolveRoute and of the neighbour lookup.
type cachedRoute struct {
	out     *iface // nil: the full path decides
	key     uint64 // table slot and destination or block; 0: empty
	first   uint64 // first eight bytes of the new Ethernet header
	rest    uint32
	perHost bool // of a block: its destinations have different routes
}

// routeCache caches routes of one snapshot, and is cleared for the next one. It is direct mapped: a hit costs one
// comparison or two. Packets to ever changing destinations at worst miss the cache.
type routeCache struct {
	snapshot *snapshot
	entries  [1 << routeCacheOrder]cachedRoute
}

// use prepares the cache for a vector that is routed by s.
func (c *routeCache) use(s *snapshot) {
	if c.snapshot != s {
		c.snapshot = s
		clear(c.entries[:])
	}
}

// The lower bits of a key are a destination or, with blockKey, the number of a block.
const (
	blockKey  = 1 << 32
	slotShift = 33
)

// lookup returns the route to a destination in the table of a slot.
func (c *routeCache) lookup(slot int, destination uint32) *cachedRoute {
	table := uint64(slot+1) << slotShift
	w := c.entry(table|blockKey|uint64(destination>>(32-blockBits)), slot, destination)
	if w.perHost {
		w = c.entry(table|uint64(destination), slot, destination)
	}
	return w
}

// entry returns the entry of a key, and fills it if it has another key.
func (c *routeCache) entry(key uint64, slot int, destination uint32) *cachedRoute {
	w := &c.entries[key*0x9e3779b97f4a7c15>>(64-routeCacheOrder)]
	if w.key != key {
		*w = c.snapshot.cacheableRoute(slot, destination)
		if w.perHost = w.perHost && key&blockKey != 0; w.perHost {
			w.out = nil
		}
		w.key = key
	}
	return w
}

// tryRoute reports whether a routed IPv4 packet goes to s.port, and rewrites its headers then.
func (s *fastPath) tryRoute(b *frame.Buffer, h []byte) bool {
	const end = frame.EthernetLen + frame.IPv4Len
	if len(h) < end || binary.LittleEndian.Uint64(h)&macWordMask != s.in.macWord {
		return false
	}
	if binary.BigEndian.Uint16(h[12:]) != frame.TypeIPv4 || h[frame.EthernetLen] != plainIPv4 {
		return false
	}
	p := frame.IPv4(h[frame.EthernetLen:end])
	total := int(binary.BigEndian.Uint16(p[2:]))
	if total < frame.IPv4Len || total > b.Len()-frame.EthernetLen || p.TTL() <= 1 ||
		!frame.PlainChecksumValid((*[frame.IPv4Len]byte)(p)) ||
		!s.validSource(binary.BigEndian.Uint32(p[12:])) {
		return false
	}
	destination := binary.BigEndian.Uint32(p[16:])
	if !isUnicast4(destination) {
		return false
	}
	e := s.w.routes.lookup(s.in.fib4, destination)
	if e.out == nil || total > e.out.mtu || !s.setOutput(e.out) || !s.mayLeave(e.out, h, b.Len()) {
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

// validSource reports whether an address passes unicast4 and is not one of the interface's own.
func (s *fastPath) validSource(a uint32) bool {
	if !isUnicast4(a) {
		return false
	}
	for _, own := range s.in.addresses4 {
		if a == own {
			return false
		}
	}
	return true
}

// isUnicast4 is unicast4 for an address as a word.
func isUnicast4(a uint32) bool {
	return a>>28 != 0xe && a>>24 != 127 && a != 0 && a != ^uint32(0)
}

// cacheableRoute looks up a destination in a table. out is nil if packets may have different paths, are not forwarded,
// or need more than new addresses. perHost means that the route applies to this destination only.
func (s *snapshot) cacheableRoute(slot int, destination uint32) (found cachedRoute) {
	var raw [4]byte
	binary.BigEndian.PutUint32(raw[:], destination)
	a := netip.AddrFrom4(raw)
	out, target, shared := s.singlePath(slot, a)
	found.perHost = !shared || s.hasLongPrefix(slot, a)
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
	found.out = out
	found.first = binary.LittleEndian.Uint64(header[:])
	found.rest = binary.LittleEndian.Uint32(header[8:])
	return found
}
