package frame

import (
	"encoding/binary"
	"net/netip"
)

// VXLANLen is the length of a VXLAN header (RFC 7348 5).
const VXLANLen = 8

// MaxVNI is the largest VXLAN network identifier.
const MaxVNI = 1<<24 - 1

// vxlanFlags says that there is a VNI. As in VPP a header with others is refused.
const vxlanFlags = 0x08

// The times to live that VPP gives to envelopes.
const (
	envelopeTTL      = 254
	envelopeHopLimit = 255
)

// ParseVXLAN checks a VXLAN header and returns its VNI.
func ParseVXLAN(b []byte) (vni uint32, err error) {
	if len(b) < VXLANLen {
		return 0, ErrShort
	}
	if b[0] != vxlanFlags {
		return 0, ErrFormat
	}
	return binary.BigEndian.Uint32(b[4:]) >> 8, nil
}

// checksumInUDP is where a UDP header has its checksum.
const checksumInUDP = 6

// Envelope is what a tunnel puts before an Ethernet frame: IP, UDP and VXLAN headers. DF is not set. As in VPP there is no UDP
// checksum over IPv4 (RFC 7348 5), for the frame inside has its own, and there is one over IPv6, which demands it (RFC 8200
// 8.1).
type Envelope struct {
	headers [IPv6Len + UDPLen + VXLANLen]byte
	length  int
	udp     int    // where the UDP header begins
	sum     uint16 // of the IPv4 header without total length and identification
}

// NewEnvelope prepares the headers; both addresses are of one family. The source's port is Push's matter.
func NewEnvelope(source netip.Addr, destination netip.AddrPort, vni uint32) Envelope {
	e := Envelope{udp: IPv6Len}
	f := IPFields{TTL: envelopeHopLimit, Protocol: ProtocolUDP, Source: source, Destination: destination.Addr()}
	if source.Is4() {
		e.udp, f.TTL = IPv4Len, envelopeTTL
		PutIPv4(e.headers[:], f)
		clear(e.headers[2:8])
		clear(e.headers[10:12])
		e.sum = Sum(e.headers[:IPv4Len], 0)
	} else {
		PutIPv6(e.headers[:], f)
	}
	e.length = e.udp + UDPLen + VXLANLen
	binary.BigEndian.PutUint16(e.headers[e.udp+2:], destination.Port())
	e.headers[e.udp+UDPLen] = vxlanFlags
	binary.BigEndian.PutUint32(e.headers[e.length-4:], vni<<8)
	return e
}

// Len returns the length of all headers.
func (e *Envelope) Len() int { return e.length }

// Push puts the headers before the frame in b; false where it does not fit: there is no head room, or no IP packet is so
// long. The frame must be complete: what its virtio header says is not said of the envelope. The UDP
// checksum is complete: VPP takes one that is not for the frame's inside.
func (e *Envelope) Push(b *Buffer, sourcePort, identification uint16) bool {
	if e.udp+UDPLen+VXLANLen+b.Len() > 1<<16-1 || !b.Push(e.length) {
		return false
	}
	b.Virtio = Virtio{}
	raw := b.Bytes()
	copy(raw, e.headers[:e.length])
	binary.BigEndian.PutUint16(raw[e.udp:], sourcePort)
	binary.BigEndian.PutUint16(raw[e.udp+4:], uint16(len(raw)-e.udp))
	if e.udp == IPv6Len {
		length := len(raw) - IPv6Len
		binary.BigEndian.PutUint16(raw[4:], uint16(length))
		sum := ^Sum(raw[IPv6Len:], pseudoOf(raw, ProtocolUDP, length))
		if sum == 0 {
			sum = 0xffff // zero means that there is none
		}
		binary.BigEndian.PutUint16(raw[IPv6Len+checksumInUDP:], sum)
		return true
	}
	binary.BigEndian.PutUint16(raw[2:], uint16(len(raw)))
	binary.BigEndian.PutUint16(raw[4:], identification)
	binary.BigEndian.PutUint16(raw[10:], ^fold(uint64(e.sum)+uint64(len(raw))+uint64(identification)))
	return true
}
