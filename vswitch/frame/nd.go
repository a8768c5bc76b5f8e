package frame

import (
	"encoding/binary"
	"net/netip"
)

// NDLen is the length of a neighbour solicitation or advertisement without options; NDLinkLen with a link-layer
// address.
const (
	NDLen     = 24
	NDLinkLen = 32
)

// Options and flags of neighbour discovery (RFC 4861 4.6, 4.4).
const (
	NDSourceLink     = 1
	NDTargetLink     = 2
	NDFlagSolicited  = 0x40
	NDFlagOverride   = 0x20
	ndOptionUnit     = 8
	ndMaxOptions     = 16 // legitimate messages have fewer
	ndSolicitedBytes = 3  // last bytes of the target, in its solicited-node address
)

// ND is a view of a neighbour solicitation or advertisement.
type ND []byte

// ParseND checks type, length, code, target and the chain of options. The caller checks hop limit and checksum.
func ParseND(b []byte) (ND, error) {
	if len(b) < NDLen {
		return nil, ErrShort
	}
	n := ND(b)
	if (b[0] != ICMP6Solicit && b[0] != ICMP6Advert) || b[1] != 0 || n.Target().IsMulticast() {
		return nil, ErrFormat
	}
	rest := b[NDLen:]
	for i := 0; len(rest) > 0; i++ {
		if len(rest) < 2 || i >= ndMaxOptions {
			return nil, ErrLength
		}
		size := int(rest[1]) * ndOptionUnit
		if size == 0 || size > len(rest) {
			return nil, ErrLength
		}
		rest = rest[size:]
	}
	return n, nil
}

// Type returns ICMP6Solicit or ICMP6Advert.
func (n ND) Type() uint8 { return n[0] }

// Flags returns an advertisement's flags.
func (n ND) Flags() uint8 { return n[4] }

// Target returns the solicited or advertised address.
func (n ND) Target() netip.Addr { return netip.AddrFrom16([16]byte(n[8:24])) }

// LinkAddress returns the address in the first option of a type.
func (n ND) LinkAddress(option uint8) (MAC, bool) {
	for rest := n[NDLen:]; len(rest) >= ndOptionUnit; rest = rest[int(rest[1])*ndOptionUnit:] {
		if rest[0] == option {
			return MAC(rest[2:8]), true
		}
	}
	return MAC{}, false
}

// NDFields are the fields of a message to write.
type NDFields struct {
	Type, Flags uint8
	Target      netip.Addr
	Option      uint8
	Link        MAC
}

// PutND writes a message with one link-layer option into the first NDLinkLen bytes of b, without checksum.
func PutND(b []byte, f NDFields) {
	b = b[:NDLinkLen]
	clear(b)
	b[0] = f.Type
	binary.BigEndian.PutUint32(b[4:], uint32(f.Flags)<<24)
	t := f.Target.As16()
	copy(b[8:], t[:])
	b[24] = f.Option
	b[25] = 1
	copy(b[26:], f.Link[:])
}

// SolicitedNode returns the solicited-node multicast address, and its Ethernet address (RFC 4291 2.7.1, RFC 2464 7).
func SolicitedNode(a netip.Addr) (netip.Addr, MAC) {
	raw := a.As16()
	group := [16]byte{0: 0xff, 1: 0x02, 11: 0x01, 12: 0xff}
	copy(group[16-ndSolicitedBytes:], raw[16-ndSolicitedBytes:])
	return netip.AddrFrom16(group), MAC{0x33, 0x33, group[12], group[13], group[14], group[15]}
}
