package frame

import "encoding/binary"

// gatheredFlags may a segment have that is gathered: ACK, and PSH, which is the last one's.
const gatheredFlags = 0x10 | tcpPSH

// Gatherer makes one GSO frame of the segments of a TCP flow that came one after the other, as Linux's tcp_gro_receive does: it is
// what a Segmenter makes them of again. It adds to the first one's buffer, and allocates nothing.
type Gatherer struct {
	b        *Buffer
	network  int // where the IP header begins in b
	upper    int // where the TCP header begins
	headers  int // of all layers
	size     int // of a full segment's payload
	count    int
	sequence uint32 // of the next segment
	open     bool   // more may come
}

// Begin takes the first frame, which begins at bytes behind b's start. Where it is no segment that can be gathered, no other
// will be added.
func (g *Gatherer) Begin(b *Buffer, at int) {
	*g = Gatherer{b: b, count: 1}
	if at > b.Len() {
		return
	}
	s, ok := segmentAt(b.Bytes()[at:])
	if !ok {
		return
	}
	g.network, g.upper, g.headers = at+s.network, at+s.upper, at+s.headers
	g.size = b.Len() - g.headers
	g.sequence = s.sequence + uint32(g.size)
	g.open = s.flags&tcpPSH == 0
}

// Append adds a frame behind those that are there; false where it is not their next segment.
func (g *Gatherer) Append(raw []byte) bool {
	if !g.open {
		return false
	}
	s, ok := segmentAt(raw)
	first := g.b.Bytes()
	at := g.network - EthernetLen
	n := len(raw) - s.headers
	if !ok || s.headers != g.headers-at || s.sequence != g.sequence || n > g.size || len(first)-g.network+n > 1<<16-1 ||
		!sameFlow(first[at:g.headers], raw[:s.headers], s) {
		return false
	}
	g.b.SetLen(len(first) + n)
	whole := g.b.Bytes()
	copy(whole[len(first):], raw[s.headers:])
	whole[g.upper+13] |= s.flags & tcpPSH
	g.sequence += uint32(n)
	g.count++
	g.open = n == g.size && s.flags&tcpPSH == 0
	return true
}

// Finish writes what the frame is now into its headers. A single segment stays as it came.
func (g *Gatherer) Finish() {
	if g.count < 2 {
		return
	}
	whole := g.b.Bytes()
	packet, body := whole[g.network:], whole[g.upper:]
	kind := uint8(GSOTCP4)
	if packet[0]>>4 == 4 {
		binary.BigEndian.PutUint16(packet[2:], uint16(len(packet)))
		packet[10], packet[11] = 0, 0
		binary.BigEndian.PutUint16(packet[10:], Checksum(packet[:IPv4Len]))
	} else {
		kind = GSOTCP6
		binary.BigEndian.PutUint16(packet[4:], uint16(len(packet)-IPv6Len))
	}
	binary.BigEndian.PutUint16(body[16:], pseudoOf(packet, ProtocolTCP, len(body)))
	g.b.Virtio = Virtio{Flags: VirtioNeedsChecksum, GSOType: kind, HeaderLen: uint16(g.headers), GSOSize: uint16(g.size),
		ChecksumStart: uint16(g.upper), ChecksumOffset: 16}
}

// tcpSegment is what of a frame says whether it can be gathered.
type tcpSegment struct {
	network, upper, headers int
	sequence                uint32
	flags                   uint8
}

// segmentAt reads a frame; false: it is no plain segment of a TCP flow, or a wrong one.
func segmentAt(raw []byte) (s tcpSegment, ok bool) {
	if len(raw) < EthernetLen {
		return s, false
	}
	s.network = EthernetLen
	packet := raw[EthernetLen:]
	switch Ethernet(raw).Type() {
	case TypeIPv4:
		p, err := ParseIPv4(packet)
		if err != nil || len(p) != len(packet) || p.HeaderLen() != IPv4Len || p.IsFragment() || p.Protocol() != ProtocolTCP || !p.ChecksumValid() {
			return s, false
		}
		s.upper = EthernetLen + IPv4Len
	case TypeIPv6:
		p, err := ParseIPv6(packet)
		if err != nil || len(p) != len(packet) || p[6] != ProtocolTCP {
			return s, false
		}
		s.upper = EthernetLen + IPv6Len
	default:
		return s, false
	}
	t, err := ParseTCP(raw[s.upper:])
	if err != nil || t[13]&^gatheredFlags != 0 || len(t) == t.HeaderLen() {
		return s, false
	}
	s.headers, s.sequence, s.flags = s.upper+t.HeaderLen(), binary.BigEndian.Uint32(t[4:]), t[13]
	return s, Sum(t, pseudoOf(packet, ProtocolTCP, len(t))) == 0xffff
}

// sameFlow says that two segments' headers, of the same length, differ in nothing but what each segment has of its own.
func sameFlow(a, b []byte, s tcpSegment) bool {
	length, checksum := [2]int{s.network + 4, s.network + 6}, [2]int{s.network + 6, s.network + 6} // of IPv6, which has no checksum
	if b[s.network]>>4 == 4 {
		length, checksum = [2]int{s.network + 2, s.network + 6}, [2]int{s.network + 10, s.network + 12}
	}
	at, tcp := 0, s.upper
	for _, skip := range [...][2]int{length, checksum, {tcp + 4, tcp + 8}, {tcp + 13, tcp + 14}, {tcp + 16, tcp + 18}} {
		if string(a[at:skip[0]]) != string(b[at:skip[0]]) {
			return false
		}
		at = skip[1]
	}
	return string(a[at:]) == string(b[at:])
}

// pseudoOf sums the pseudo header of an IP packet, whose last destination is that in its header.
func pseudoOf(packet []byte, protocol uint8, length int) uint16 {
	start := fold(uint64(protocol) + uint64(length))
	if packet[0]>>4 == 6 {
		return Sum(packet[8:IPv6Len], start)
	}
	return Sum(packet[12:IPv4Len], start)
}
