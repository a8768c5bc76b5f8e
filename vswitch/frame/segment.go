package frame

import "encoding/binary"

// Bits of TCP's flags that only one of a frame's segments keeps.
const (
	tcpFIN = 0x01
	tcpPSH = 0x08
	tcpCWR = 0x80
)

// maxSegments bounds the work that one frame can make: a sender of raw frames could ask for 65,000 segments of a byte each.
// A full frame of a connection with segments of 64 bytes still passes.
const maxSegments = 1024

// Segmenter cuts a GSO frame into the segments it stands for, each complete with lengths, checksums and IP identification
// (as Linux's tcp_gso_segment and __udp_gso_segment do). It only reads the frame, and allocates nothing.
type Segmenter struct {
	frame    []byte
	network  int // where the IP header begins
	upper    int // where the TCP or UDP header begins
	headers  int // of all layers: what each segment repeats
	size     int // of a full segment's payload
	next     int // payload that is cut already
	count    uint16
	udp      bool
	identify uint16
	sequence uint32
}

// NewSegmenter prepares to cut a frame; false where v does not describe it.
func NewSegmenter(b []byte, v Virtio) (Segmenter, bool) {
	s := Segmenter{frame: b, size: int(v.GSOSize), upper: int(v.ChecksumStart)}
	if !v.IsGSO() || !v.Fits(len(b)) || len(b) < EthernetLen {
		return s, false
	}
	packet, protocol, ok := s.readNetwork()
	if !ok {
		return s, false
	}
	if _, ok := v.longestIP(packet, s.upper-s.network, protocol); !ok {
		return s, false
	}
	s.frame = b[:s.network+len(packet)]
	s.udp = v.GSOType&^GSOECN == GSOUDP
	s.headers = s.upper + UDPLen
	if !s.udp {
		s.headers = s.upper + TCP(b[s.upper:]).HeaderLen()
		s.sequence = binary.BigEndian.Uint32(b[s.upper+4:])
	}
	payload := len(s.frame) - s.headers
	return s, payload > 0 && payload <= maxSegments*s.size
}

// readNetwork finds the IP packet, and checks that its header ends where the upper one begins.
func (s *Segmenter) readNetwork() (packet []byte, protocol uint8, ok bool) {
	kind, at := Ethernet(s.frame).Network()
	s.network = at
	if s.upper < at || s.upper > len(s.frame) {
		return nil, 0, false
	}
	switch kind {
	case TypeIPv4:
		p, err := ParseIPv4(s.frame[at:])
		if err != nil || at+p.HeaderLen() != s.upper || p.IsFragment() {
			return nil, 0, false
		}
		s.identify = binary.BigEndian.Uint16(p[4:])
		return p, p.Protocol(), true
	case TypeIPv6:
		p, err := ParseIPv6(s.frame[at:])
		if err != nil {
			return nil, 0, false
		}
		u, whole := p.Upper()
		return p, u.Protocol, whole && at+u.Offset == s.upper
	}
	return nil, 0, false
}

// Next writes the next segment into room and returns its length, or 0 when all are cut; Longest bytes are enough for
// each.
func (s *Segmenter) Next(room []byte) int {
	at := s.headers + s.next
	n := min(s.size, len(s.frame)-at)
	if n <= 0 {
		return 0
	}
	copy(room, s.frame[:s.headers])
	copy(room[s.headers:], s.frame[at:at+n])
	segment := room[:s.headers+n]
	last := at+n == len(s.frame)
	s.finishNetwork(segment)
	s.finishUpper(segment, last)
	s.next += n
	s.count++
	return len(segment)
}

// Longest returns the length of the longest segment.
func (s *Segmenter) Longest() int { return min(s.headers+s.size, len(s.frame)) }

func (s *Segmenter) finishNetwork(segment []byte) {
	packet := segment[s.network:]
	if packet[0]>>4 == 6 {
		binary.BigEndian.PutUint16(packet[4:], uint16(len(packet)-IPv6Len))
		return
	}
	header := packet[:s.upper-s.network]
	binary.BigEndian.PutUint16(header[2:], uint16(len(packet)))
	binary.BigEndian.PutUint16(header[4:], s.identify+s.count)
	header[10], header[11] = 0, 0
	binary.BigEndian.PutUint16(header[10:], Checksum(header))
}

func (s *Segmenter) finishUpper(segment []byte, last bool) {
	body := segment[s.upper:]
	field, protocol := 6, uint8(ProtocolUDP)
	if s.udp {
		binary.BigEndian.PutUint16(body[4:], uint16(len(body)))
	} else {
		field, protocol = 16, ProtocolTCP
		binary.BigEndian.PutUint32(body[4:], s.sequence+uint32(s.next))
		if s.next > 0 {
			body[13] &^= tcpCWR
		}
		if !last {
			body[13] &^= tcpFIN | tcpPSH
		}
	}
	body[field], body[field+1] = 0, 0
	sum := ^Sum(body, s.pseudo(segment, protocol, len(body)))
	if s.udp && sum == 0 {
		sum = 0xffff // zero means that there is none
	}
	binary.BigEndian.PutUint16(body[field:], sum)
}

func (s *Segmenter) pseudo(segment []byte, protocol uint8, length int) uint16 {
	return pseudoOf(segment[s.network:], protocol, length)
}

// pseudoOf sums the pseudo header of an IP packet, whose last destination is that in its header.
func pseudoOf(packet []byte, protocol uint8, length int) uint16 {
	start := fold(uint64(protocol) + uint64(length))
	if packet[0]>>4 == 6 {
		return Sum(packet[8:IPv6Len], start)
	}
	return Sum(packet[12:IPv4Len], start)
}
