package frame

import "encoding/binary"

// TCP flags that only one segment keeps.
const (
	tcpFIN = 0x01
	tcpPSH = 0x08
	tcpCWR = 0x80
)

// maxSegments limits the segments of a frame: a raw sender could request 65,000 segments of one byte. A full frame with segments
// of 64 bytes is still accepted.
const maxSegments = 1024

// Segmenter cuts a GSO frame into segments with their own lengths, checksums and IP identification (as tcp_gso_segment and
// __udp_gso_segment of Linux do). It does not change the frame, and allocates nothing.
type Segmenter struct {
	frame          []byte
	network        int // offset of the IP header
	upper          int // offset of the TCP or UDP header
	headers        int // length of all headers, which each segment repeats
	size           int // payload of a full segment
	next           int // offset of the next segment in the payload
	count          uint16
	udp            bool
	identification uint16
	sequence       uint32
}

// NewSegmenter returns a Segmenter; false if v does not describe the frame.
func NewSegmenter(b []byte, v Virtio) (Segmenter, bool) {
	s := Segmenter{frame: b, size: int(v.GSOSize), upper: int(v.ChecksumStart)}
	if !v.IsGSO() || !v.Fits(len(b)) || len(b) < EthernetLen {
		return s, false
	}
	packet, protocol, ok := s.parseNetwork()
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

// parseNetwork parses the IP header and checks that the upper header follows it.
func (s *Segmenter) parseNetwork() (packet []byte, protocol uint8, ok bool) {
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
		s.identification = binary.BigEndian.Uint16(p[4:])
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

// Next writes the next segment into room, which needs Longest bytes, and returns its length, or 0 at the end.
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
	s.putNetwork(segment)
	s.putUpper(segment, last)
	s.next += n
	s.count++
	return len(segment)
}

// Longest returns the length of the longest segment.
func (s *Segmenter) Longest() int { return min(s.headers+s.size, len(s.frame)) }

func (s *Segmenter) putNetwork(segment []byte) {
	packet := segment[s.network:]
	if packet[0]>>4 == 6 {
		binary.BigEndian.PutUint16(packet[4:], uint16(len(packet)-IPv6Len))
		return
	}
	header := packet[:s.upper-s.network]
	binary.BigEndian.PutUint16(header[2:], uint16(len(packet)))
	binary.BigEndian.PutUint16(header[4:], s.identification+s.count)
	header[10], header[11] = 0, 0
	binary.BigEndian.PutUint16(header[10:], Checksum(header))
}

func (s *Segmenter) putUpper(segment []byte, last bool) {
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
	sum := ^Sum(body, packetPseudoHeader(segment[s.network:], protocol, len(body)))
	if s.udp && sum == 0 {
		sum = 0xffff // zero means no checksum
	}
	binary.BigEndian.PutUint16(body[field:], sum)
}

// packetPseudoHeader is PseudoHeader of an IP packet without a routing header.
func packetPseudoHeader(packet []byte, protocol uint8, length int) uint16 {
	start := fold(uint64(protocol) + uint64(length))
	if packet[0]>>4 == 6 {
		return Sum(packet[8:IPv6Len], start)
	}
	return Sum(packet[12:IPv4Len], start)
}
