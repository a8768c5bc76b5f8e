package frame

import (
	"encoding/binary"
	"net/netip"
)

// IPv6Len is the length of the fixed header.
const IPv6Len = 40

// Extension headers that Transport walks over, and NoNext.
const (
	protocolHopByHop    = 0
	protocolRouting     = 43
	protocolFragment    = 44
	protocolNoNext      = 59
	protocolDestination = 60
)

// maxExtensions bounds the walk over extension headers: more of them is no honest packet.
const maxExtensions = 8

// IPv6 is a view of a packet, cut to its payload length (RFC 8200).
type IPv6 []byte

// ParseIPv6 checks version and payload length; padding behind the packet is cut off. Jumbograms do not fit.
func ParseIPv6(b []byte) (IPv6, error) {
	if len(b) < IPv6Len {
		return nil, ErrShort
	}
	if b[0]>>4 != 6 {
		return nil, ErrVersion
	}
	total := IPv6Len + int(binary.BigEndian.Uint16(b[4:]))
	if total > len(b) {
		return nil, ErrLength
	}
	return IPv6(b[:total]), nil
}

// HopLimit returns the hop limit.
func (p IPv6) HopLimit() uint8 { return p[7] }

// Source returns the sender.
func (p IPv6) Source() netip.Addr { return netip.AddrFrom16([16]byte(p[8:24])) }

// Destination returns the receiver.
func (p IPv6) Destination() netip.Addr { return netip.AddrFrom16([16]byte(p[24:40])) }

// DecrementHopLimit takes one off the hop limit, which must not be zero.
func (p IPv6) DecrementHopLimit() { p[7]-- }

// Upper is what a packet's extension headers lead to.
type Upper struct {
	Protocol uint8
	Offset   int  // from the IPv6 header
	Later    bool // a fragment that is not the first: Offset points to data
}

// IsExtension reports whether Upper walks over headers of that protocol.
func IsExtension(protocol uint8) bool {
	switch protocol {
	case protocolHopByHop, protocolRouting, protocolFragment, protocolDestination:
		return true
	}
	return false
}

// Upper walks over the extension headers; false where the chain leaves the packet, does not end, or has a second fragment header
// (RFC 8200 4.1 allows one).
func (p IPv6) Upper() (Upper, bool) {
	u, fragment := Upper{Protocol: p[6], Offset: IPv6Len}, false
	for range maxExtensions {
		switch u.Protocol {
		case protocolHopByHop, protocolRouting, protocolDestination:
			if u.Offset+8 > len(p) {
				return u, false
			}
			u.Protocol, u.Offset = p[u.Offset], u.Offset+8+int(p[u.Offset+1])*8
		case protocolFragment:
			if fragment || u.Offset+8 > len(p) {
				return u, false
			}
			fragment, u.Later = true, binary.BigEndian.Uint16(p[u.Offset+2:])>>3 != 0
			u.Protocol, u.Offset = p[u.Offset], u.Offset+8
		default:
			return u, u.Offset <= len(p)
		}
		if u.Later {
			return u, u.Offset <= len(p)
		}
	}
	return u, false
}

// PutIPv6 writes a header into the first IPv6Len bytes of b.
func PutIPv6(b []byte, f IPFields) {
	b = b[:IPv6Len]
	binary.BigEndian.PutUint32(b, 6<<28|uint32(f.TOS)<<20)
	binary.BigEndian.PutUint16(b[4:], uint16(f.PayloadLen))
	b[6], b[7] = f.Protocol, f.TTL
	s, d := f.Source.As16(), f.Destination.As16()
	copy(b[8:], s[:])
	copy(b[24:], d[:])
}
