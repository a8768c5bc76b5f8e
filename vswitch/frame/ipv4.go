package frame

import (
	"encoding/binary"
	"net/netip"
)

// IPv4Len is the length of a header without options.
const IPv4Len = 20

// IP protocol numbers.
const (
	ProtocolICMP   = 1
	ProtocolTCP    = 6
	ProtocolUDP    = 17
	ProtocolICMPv6 = 58
	ProtocolSCTP   = 132
)

// IPv4 is a view of a packet, without padding (RFC 791).
type IPv4 []byte

// ParseIPv4 checks version, header length and total length, and cuts padding off. ChecksumValid checks the checksum.
func ParseIPv4(b []byte) (IPv4, error) {
	if len(b) < IPv4Len {
		return nil, ErrShort
	}
	if b[0]>>4 != 4 {
		return nil, ErrVersion
	}
	header := int(b[0]&15) * 4
	total := int(binary.BigEndian.Uint16(b[2:]))
	if header < IPv4Len {
		return nil, ErrHeaderLength
	}
	if total < header || total > len(b) {
		return nil, ErrLength
	}
	return IPv4(b[:total]), nil
}

// HeaderLen returns the length of the header with options.
func (p IPv4) HeaderLen() int { return int(p[0]&15) * 4 }

// ChecksumValid verifies the header's checksum.
func (p IPv4) ChecksumValid() bool { return Sum(p[:p.HeaderLen()], 0) == 0xffff }

// DontFragment returns the DF bit.
func (p IPv4) DontFragment() bool { return p[6]&0x40 != 0 }

// FragmentOffset returns the offset in units of 8 bytes.
func (p IPv4) FragmentOffset() uint16 { return binary.BigEndian.Uint16(p[6:]) & 0x1fff }

// IsFragment reports whether the packet is a fragment.
func (p IPv4) IsFragment() bool { return binary.BigEndian.Uint16(p[6:])&0x3fff != 0 }

// MoreFragments reports whether the packet is a fragment that is not the last one.
func (p IPv4) MoreFragments() bool { return binary.BigEndian.Uint16(p[6:])&moreFragments != 0 }

// SetWhole sets the header for a whole packet, with all bytes of p.
func (p IPv4) SetWhole() {
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	p[6] = 0
	p[7] = 0
	p[10] = 0
	p[11] = 0
	binary.BigEndian.PutUint16(p[10:], Checksum(p[:p.HeaderLen()]))
}

// TTL returns the time to live.
func (p IPv4) TTL() uint8 { return p[8] }

// Protocol returns the payload's protocol.
func (p IPv4) Protocol() uint8 { return p[9] }

// Source returns the source address.
func (p IPv4) Source() netip.Addr { return netip.AddrFrom4([4]byte(p[12:16])) }

// Destination returns the destination address.
func (p IPv4) Destination() netip.Addr { return netip.AddrFrom4([4]byte(p[16:20])) }

// Payload returns the bytes after the header.
func (p IPv4) Payload() []byte { return p[p.HeaderLen():] }

// DecrementTTL decrements the time to live, which must not be zero, and updates the checksum (RFC 1624, equation 3).
func (p IPv4) DecrementTTL() {
	p[8]--
	c := uint32(binary.BigEndian.Uint16(p[10:])) + 0x100
	if c >= 0xffff {
		c++
	}
	binary.BigEndian.PutUint16(p[10:], uint16(c))
}

// SetDSCP sets the six bits of the DSCP, and leaves ECN.
func (p IPv4) SetDSCP(dscp uint8) {
	tos := dscp<<2 | p[1]&3
	// RFC 1624, equation 3
	sum := uint32(^binary.BigEndian.Uint16(p[10:])) + uint32(^(uint16(p[0])<<8 | uint16(p[1]))) +
		uint32(uint16(p[0])<<8|uint16(tos))
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	p[1] = tos
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum))
}

// IPFields are the fields of an IP header to write. TOS is the traffic class in IPv6, which has no identification.
type IPFields struct {
	TOS, TTL, Protocol  uint8
	Identification      uint16
	Source, Destination netip.Addr
	PayloadLen          int
}

// PutIPv4 writes a header without options and flags, with its checksum, into the first IPv4Len bytes of b.
func PutIPv4(b []byte, f IPFields) {
	b = b[:IPv4Len]
	clear(b)
	b[0] = 0x45
	b[1] = f.TOS
	binary.BigEndian.PutUint16(b[2:], uint16(IPv4Len+f.PayloadLen))
	binary.BigEndian.PutUint16(b[4:], f.Identification)
	b[8] = f.TTL
	b[9] = f.Protocol
	s := f.Source.As4()
	d := f.Destination.As4()
	copy(b[12:], s[:])
	copy(b[16:], d[:])
	binary.BigEndian.PutUint16(b[10:], Checksum(b))
}
