package frame

import (
	"encoding/binary"
	"net/netip"
)

// IPv6Len is the length of the fixed header.
const IPv6Len = 40

// Extension headers that Upper skips.
const (
	protocolHopByHop    = 0
	protocolRouting     = 43
	protocolFragment    = 44
	protocolDestination = 60
)

// maxExtensions limits the extension headers that Upper skips; legitimate packets have fewer.
const maxExtensions = 8

// IPv6 is a view of a packet, without padding (RFC 8200).
type IPv6 []byte

// ParseIPv6 checks version and payload length, and cuts padding off. It rejects jumbograms.
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

// Source returns the source address.
func (p IPv6) Source() netip.Addr { return netip.AddrFrom16([16]byte(p[8:24])) }

// Destination returns the destination address.
func (p IPv6) Destination() netip.Addr { return netip.AddrFrom16([16]byte(p[24:40])) }

// DecrementHopLimit decrements the hop limit, which must not be zero.
func (p IPv6) DecrementHopLimit() { p[7]-- }

// SetDSCP sets the six bits of the DSCP, and leaves ECN.
func (p IPv6) SetDSCP(dscp uint8) {
	p[0] = p[0]&0xf0 | dscp>>2
	p[1] = p[1]&0x3f | dscp<<6
}

// Upper is the header after a packet's extension headers.
type Upper struct {
	Protocol uint8
	Offset   int  // from the start of the packet
	Later    bool // not the first fragment: Offset points to data
	Fragment bool // has a fragment header and is not an atomic fragment (RFC 6946)
}

// IsExtension reports whether Upper skips headers of this type.
func IsExtension(protocol uint8) bool {
	switch protocol {
	case protocolHopByHop, protocolRouting, protocolFragment, protocolDestination:
		return true
	}
	return false
}

// Upper skips the extension headers. It returns false if their chain exceeds the packet or maxExtensions, or has two
// fragment headers (RFC 8200 4.1 allows one).
func (p IPv6) Upper() (Upper, bool) {
	u := Upper{Protocol: p[6], Offset: IPv6Len}
	fragment := false
	for range maxExtensions + 1 { // the last time reads the upper layer's protocol
		switch u.Protocol {
		case protocolHopByHop, protocolRouting, protocolDestination:
			if u.Offset+8 > len(p) {
				return u, false
			}
			u.Protocol = p[u.Offset]
			u.Offset = u.Offset + 8 + int(p[u.Offset+1])*8
		case protocolFragment:
			if fragment || u.Offset+8 > len(p) {
				return u, false
			}
			place := binary.BigEndian.Uint16(p[u.Offset+2:])
			fragment = true
			u.Later = place>>3 != 0
			u.Fragment = place&^6 != 0
			u.Protocol = p[u.Offset]
			u.Offset = u.Offset + 8
		default:
			return u, u.Offset <= len(p)
		}
		if u.Later {
			return u, u.Offset <= len(p)
		}
	}
	return u, false
}

// FragmentLen is the length of a fragment header.
const FragmentLen = 8

// FragmentHeader is the fragment header of a packet (RFC 8200 4.5).
type FragmentHeader struct {
	At             int // offset in the packet
	NextField      int // offset of the field that announces it
	Protocol       uint8
	Offset         int // of the data behind it in the packet that was fragmented
	More           bool
	Identification uint32
}

// Fragment returns the fragment header; false without one, and for an atomic fragment.
func (p IPv6) Fragment() (h FragmentHeader, ok bool) {
	next := p[6]
	field := 6
	at := IPv6Len
	for range maxExtensions + 1 {
		if !IsExtension(next) || at+FragmentLen > len(p) {
			return h, false
		}
		if next == protocolFragment {
			place := binary.BigEndian.Uint16(p[at+2:])
			h = FragmentHeader{At: at, NextField: field, Protocol: p[at], Offset: int(place &^ 7), More: place&1 != 0,
				Identification: binary.BigEndian.Uint32(p[at+4:])}
			return h, place&^6 != 0
		}
		next = p[at]
		field = at
		at = at + 8 + int(p[at+1])*8
	}
	return h, false
}

// SetWhole sets the length for a packet with all bytes of p.
func (p IPv6) SetWhole() { binary.BigEndian.PutUint16(p[4:], uint16(len(p)-IPv6Len)) }

// PutIPv6 writes a header into the first IPv6Len bytes of b.
func PutIPv6(b []byte, f IPFields) {
	b = b[:IPv6Len]
	binary.BigEndian.PutUint32(b, 6<<28|uint32(f.TOS)<<20)
	binary.BigEndian.PutUint16(b[4:], uint16(f.PayloadLen))
	b[6] = f.Protocol
	b[7] = f.TTL
	s := f.Source.As16()
	d := f.Destination.As16()
	copy(b[8:], s[:])
	copy(b[24:], d[:])
}
