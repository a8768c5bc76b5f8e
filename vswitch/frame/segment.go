package frame

import "encoding/binary"

// TCP flags that only one segment keeps.
const (
	tcpFIN = 0x01
	tcpPSH = 0x08
	tcpCWR = 0x80
)

// maxSegments limits the segments of a frame: a raw sender could request 65,000 segments of one byte. A full frame with
// segments of 64 bytes is still accepted.
const maxSegments = 1024

// Segmenter cuts a GSO frame into segments with their own lengths, checksums and IP identification (as tcp_gso_segment
// and __udp_gso_segment of Linux do), also behind the headers of a tunnel. It does not change the frame, and allocates
// nothing.
type Segmenter struct {
	frame    []byte
	ip       ipHeader // before the header whose payload is cut
	tunnel   ipHeader // before the headers of a tunnel; without one, the same as ip
	headers  int      // length of all headers, which each segment repeats
	size     int      // payload of a full segment
	next     int      // offset of the next segment in the payload
	count    uint16
	udp      bool
	sequence uint32
}

// NewSegmenter returns a Segmenter; false if v does not describe the frame.
func NewSegmenter(b []byte, v Virtio) (Segmenter, bool) {
	s := Segmenter{size: int(v.GSOSize)}
	if !v.IsGSO() || !v.Fits(len(b)) || len(b) < EthernetLen {
		return s, false
	}
	packet, first, ok := firstIP(b)
	if !ok {
		return s, false
	}
	s.frame = b[:first.at+len(packet)]
	s.tunnel = first
	if s.ip, ok = segmented(s.frame, first, int(v.ChecksumStart)); !ok {
		return s, false
	}
	longest, ok := v.longest(s.frame, s.ip)
	if !ok {
		return s, false
	}
	s.headers = longest - s.size
	if s.udp = v.GSOType&^GSOECN == GSOUDP; !s.udp {
		s.sequence = binary.BigEndian.Uint32(b[s.ip.upper+4:])
	}
	payload := len(s.frame) - s.headers
	return s, payload > 0 && payload <= maxSegments*s.size
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
	putIP(segment, s.ip, s.identification(s.ip))
	s.putUpper(segment, last)
	if s.tunnel != s.ip {
		putIP(segment, s.tunnel, s.identification(s.tunnel))
		putTunnel(segment, s.tunnel)
	}
	s.next += n
	s.count++
	return len(segment)
}

// identification returns the IPv4 identification of the next segment; for IPv6 it is not used.
func (s *Segmenter) identification(h ipHeader) uint16 {
	return binary.BigEndian.Uint16(s.frame[h.at+4:]) + s.count
}

// Sizes returns the number of segments, the length of each but the last, and the length of the last, as frames on the
// wire.
func (s *Segmenter) Sizes() (segments, full, last int) {
	payload := len(s.frame) - s.headers
	segments = (payload + s.size - 1) / s.size
	return segments, s.headers + s.size, s.headers + payload - (segments-1)*s.size
}

// Cut shortens a frame to its first n segments, all full. The frame must be the Segmenter's, which is of no use
// afterwards.
func (s *Segmenter) Cut(b *Buffer, n int) {
	b.SetLen(s.headers + n*s.size)
	whole := b.Bytes()
	putIP(whole, s.ip, s.identification(s.ip))
	body := whole[s.ip.upper:]
	if s.udp {
		binary.BigEndian.PutUint16(body[4:], uint16(len(body)))
		putPartialChecksum(whole[s.ip.at:], body, udpChecksumOffset)
	} else {
		body[13] &^= tcpFIN | tcpPSH // the last segment has them
		putPartialChecksum(whole[s.ip.at:], body, tcpChecksumOffset)
	}
	if s.tunnel != s.ip {
		putIP(whole, s.tunnel, s.identification(s.tunnel))
		if s.tunnel.protocol == ProtocolUDP {
			binary.BigEndian.PutUint16(whole[s.tunnel.upper+4:], uint16(len(whole)-s.tunnel.upper))
		}
		return // only the Segmenter completes the headers of a tunnel
	}
	if n == 1 {
		b.Virtio.GSOType = GSONone
		b.Virtio.GSOSize = 0
	}
}

// Longest returns the length of the longest segment.
func (s *Segmenter) Longest() int { return min(s.headers+s.size, len(s.frame)) }

func (s *Segmenter) putUpper(segment []byte, last bool) {
	body := segment[s.ip.upper:]
	if s.udp {
		binary.BigEndian.PutUint16(body[4:], uint16(len(body)))
		putTransportChecksum(segment[s.ip.at:], body, udpChecksumOffset)
		return
	}
	binary.BigEndian.PutUint32(body[4:], s.sequence+uint32(s.next))
	if s.next > 0 {
		body[13] &^= tcpCWR
	}
	if !last {
		body[13] &^= tcpFIN | tcpPSH
	}
	putTransportChecksum(segment[s.ip.at:], body, tcpChecksumOffset)
}

// putPartialChecksum writes the sum of the pseudo header to the checksum of a UDP datagram or TCP segment.
func putPartialChecksum(packet, body []byte, field int) {
	binary.BigEndian.PutUint16(body[field:], packetPseudoHeader(packet, protocolOf(field), len(body)))
}

// protocolOf returns the protocol with the checksum at offset field of its header.
func protocolOf(field int) uint8 {
	if field == udpChecksumOffset {
		return ProtocolUDP
	}
	return ProtocolTCP
}

// putTransportChecksum writes the checksum of the UDP datagram or TCP segment of an IP packet, at offset field of body.
func putTransportChecksum(packet, body []byte, field int) {
	protocol := protocolOf(field)
	body[field] = 0
	body[field+1] = 0
	sum := ^Sum(body, packetPseudoHeader(packet, protocol, len(body)))
	if protocol == ProtocolUDP && sum == 0 {
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
