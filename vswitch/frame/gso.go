package frame

import "encoding/binary"

// ipHeader locates an IP header, with its extension headers, and the header behind it.
type ipHeader struct {
	at       int   // offset
	upper    int   // offset of the header behind it
	protocol uint8 // of that header
}

// LongestIP returns the length of the longest IP packet on the wire: the length of the packet, or of a GSO frame's
// segments, which have headers of the same length. It returns false if v does not describe the packet, so that it
// cannot be segmented. The packet follows an untagged Ethernet header; the header behind its IP header is at offset
// upper.
func (v *Virtio) LongestIP(packet []byte, upper int, protocol uint8) (int, bool) {
	if !v.IsGSO() {
		return len(packet), true
	}
	h, ok := segmented(packet, ipHeader{upper: upper, protocol: protocol}, int(v.ChecksumStart)-EthernetLen)
	if !ok {
		return 0, false
	}
	return v.longest(packet, h)
}

// longest returns the end of the longest segment in a packet that is cut behind h.
func (v *Virtio) longest(packet []byte, h ipHeader) (int, bool) {
	if h.upper > len(packet) {
		return 0, false
	}
	length := UDPLen
	switch kind := v.GSOType &^ GSOECN; kind {
	case GSOUDP:
		if _, err := ParseUDP(packet[h.upper:]); err != nil || h.protocol != ProtocolUDP {
			return 0, false
		}
	case GSOTCP4, GSOTCP6:
		t, err := ParseTCP(packet[h.upper:])
		if err != nil || h.protocol != ProtocolTCP || packet[h.at]>>4 != tcpVersions[kind] {
			return 0, false
		}
		length = t.HeaderLen()
	default:
		return 0, false
	}
	return h.upper + length + int(v.GSOSize), true
}

// tcpVersions are the IP versions of the TCP types.
var tcpVersions = [...]byte{GSOTCP4: 4, GSOTCP6: 6}

// IsEncapsulated reports whether the segments of a GSO frame are behind the headers of a tunnel. A virtio header has no
// types for that, so no port takes such a frame.
func (v *Virtio) IsEncapsulated(b []byte) bool {
	if !v.IsGSO() || len(b) < EthernetLen {
		return false
	}
	_, h, ok := firstIP(b)
	return ok && int(v.ChecksumStart) != h.upper
}

// firstIP returns the IP packet of a frame that is no fragment, and the place of its header.
func firstIP(b []byte) (packet []byte, h ipHeader, ok bool) {
	kind, at := Ethernet(b).Network()
	h.at = at
	switch kind {
	case TypeIPv4:
		p, err := ParseIPv4(b[at:])
		if err != nil || p.IsFragment() {
			return nil, h, false
		}
		h.upper = at + p.HeaderLen()
		h.protocol = p.Protocol()
		return p, h, true
	case TypeIPv6:
		p, err := ParseIPv6(b[at:])
		if err != nil {
			return nil, h, false
		}
		u, ok := p.Upper()
		h.upper = at + u.Offset
		h.protocol = u.Protocol
		return p, h, ok && !u.Fragment
	}
	return nil, h, false
}

// maxTunnelHeaders limits the headers between two IP headers. The options of GENEVE take up to 252 bytes.
const maxTunnelHeaders = 512

// segmented returns the IP header before the L4 header at offset upper: first, or one behind the headers of a tunnel.
// Only its end is known, because the port of UDP does not tell what it carries. It is the nearest one that describes
// the rest of b.
func segmented(b []byte, first ipHeader, upper int) (ipHeader, bool) {
	if upper == first.upper {
		return first, true
	}
	from, ok := tunnelPayload(b, first)
	if !ok || upper > len(b) {
		return ipHeader{}, false
	}
	for at := upper - IPv4Len; at >= max(from, upper-maxTunnelHeaders); at-- {
		switch b[at] >> 4 {
		case 4:
			p, err := ParseIPv4(b[at:])
			if err == nil && at+p.HeaderLen() == upper && len(p) == len(b)-at && !p.IsFragment() && p.ChecksumValid() {
				return ipHeader{at, upper, p.Protocol()}, true
			}
		case 6:
			p, err := ParseIPv6(b[at:])
			if err != nil || len(p) != len(b)-at {
				continue
			}
			if u, ok := p.Upper(); ok && !u.Fragment && at+u.Offset == upper {
				return ipHeader{at, upper, u.Protocol}, true
			}
		}
	}
	return ipHeader{}, false
}

// Tunnels whose payload the kernel leaves to be segmented, and the flag of GRE for a checksum, which follows the first
// four bytes.
const (
	protocolIPIP = 4
	protocolIPv6 = 41
	protocolGRE  = 47
	greLen       = 4
	greChecksum  = 0x80
)

// tunnelPayload returns the offset of what follows the header of a tunnel; false if h precedes no tunnel.
func tunnelPayload(b []byte, h ipHeader) (int, bool) {
	if h.upper > len(b) {
		return 0, false
	}
	body := b[h.upper:]
	switch h.protocol {
	case protocolIPIP, protocolIPv6:
		return h.upper, true
	case ProtocolUDP:
		u, err := ParseUDP(body)
		return h.upper + UDPLen, err == nil && len(u) == len(body)
	case protocolGRE:
		if len(body) < greLen {
			return 0, false
		}
		n := greLen
		if body[0]&greChecksum != 0 {
			n += 4
		}
		return h.upper + n, n <= len(body)
	}
	return 0, false
}

// putIP sets the length and, for IPv4, the identification of a segment.
func putIP(segment []byte, h ipHeader, identification uint16) {
	packet := segment[h.at:]
	if packet[0]>>4 == 6 {
		binary.BigEndian.PutUint16(packet[4:], uint16(len(packet)-IPv6Len))
		return
	}
	header := packet[:h.upper-h.at]
	binary.BigEndian.PutUint16(header[2:], uint16(len(packet)))
	binary.BigEndian.PutUint16(header[4:], identification)
	header[10] = 0
	header[11] = 0
	binary.BigEndian.PutUint16(header[10:], Checksum(header))
}

// putTunnel sets the length and the checksum in the header of a segment's tunnel, if it has them. The rest of the
// segment is complete.
func putTunnel(segment []byte, h ipHeader) {
	body := segment[h.upper:]
	switch h.protocol {
	case ProtocolUDP:
		binary.BigEndian.PutUint16(body[4:], uint16(len(body)))
		if field := body[udpChecksumOffset:UDPLen]; field[0] != 0 || field[1] != 0 { // zero means no checksum
			putTransportChecksum(segment[h.at:], body, udpChecksumOffset)
		}
	case protocolGRE:
		if body[0]&greChecksum != 0 {
			body[greLen] = 0
			body[greLen+1] = 0
			binary.BigEndian.PutUint16(body[greLen:], Checksum(body))
		}
	}
}

// Shorten reduces the segment size of a TCP frame, which is invisible to the receiver; false if the frame is not TCP or
// no payload would remain.
func (v *Virtio) Shorten(by int) bool {
	kind := v.GSOType &^ GSOECN
	if kind != GSOTCP4 && kind != GSOTCP6 || by >= int(v.GSOSize) {
		return false
	}
	v.GSOSize -= uint16(by)
	return true
}
