package frame

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"net/netip"
)

// Sum adds b to a one's complement sum of big endian 16-bit words, padded with a zero byte (RFC 1071). The result is
// not inverted, so that the sum can be continued; all pieces except the last must have an even length.
func Sum(b []byte, initial uint16) uint16 {
	var s, carry uint64
	for len(b) >= 32 {
		s, carry = bits.Add64(s, binary.BigEndian.Uint64(b), carry)
		s, carry = bits.Add64(s, binary.BigEndian.Uint64(b[8:]), carry)
		s, carry = bits.Add64(s, binary.BigEndian.Uint64(b[16:]), carry)
		s, carry = bits.Add64(s, binary.BigEndian.Uint64(b[24:]), carry)
		b = b[32:]
	}
	for len(b) >= 8 {
		s, carry = bits.Add64(s, binary.BigEndian.Uint64(b), carry)
		b = b[8:]
	}
	rest := s>>32 + s&0xffffffff + carry + uint64(initial)
	for len(b) >= 2 {
		rest += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		rest += uint64(b[0]) << 8
	}
	return fold(rest)
}

// PlainChecksumValid is IPv4.ChecksumValid for a header without options. The byte order does not matter (RFC 1071, 2
// (B)).
func PlainChecksumValid(p *[IPv4Len]byte) bool {
	s, carry := bits.Add64(binary.LittleEndian.Uint64(p[:]), binary.LittleEndian.Uint64(p[8:]), 0)
	s = s>>32 + s&0xffffffff + carry + uint64(binary.LittleEndian.Uint32(p[16:]))
	s = s>>32 + s&0xffffffff
	s = s>>16 + s&0xffff
	return uint16(s>>16+s) == 0xffff
}

// Checksum returns the Internet checksum of b: the inverted sum.
func Checksum(b []byte) uint16 { return ^Sum(b, 0) }

// PseudoHeader returns the sum of the pseudo header for TCP, UDP and ICMPv6 (RFC 9293 3.1, RFC 8200 8.1); both
// addresses are of one family.
func PseudoHeader(source, destination netip.Addr, protocol uint8, length int) uint16 {
	s := fold(uint64(protocol) + uint64(length))
	if source.Is4() {
		a := source.As4()
		b := destination.As4()
		return Sum(b[:], Sum(a[:], s))
	}
	a := source.As16()
	b := destination.As16()
	return Sum(b[:], Sum(a[:], s))
}

// Complete completes a partial L4 checksum in place and clears the flag; false if the offsets in v exceed the frame.
// SCTP gets its CRC. The field of another protocol holds the sum of the pseudo header. Zero is written as all ones,
// which UDP requires and the others accept.
func Complete(frame []byte, v *Virtio) bool {
	if !v.NeedsChecksum() {
		return true
	}
	start := int(v.ChecksumStart)
	field := start + int(v.ChecksumOffset)
	switch {
	case start < EthernetLen || field+v.checksumLen() > len(frame):
		return false
	case v.NeedsCRC():
		if !putCRC(frame, start) {
			return false
		}
	default:
		c := Checksum(frame[start:])
		if c == 0 {
			c = 0xffff
		}
		binary.BigEndian.PutUint16(frame[field:], c)
	}
	v.Flags = v.Flags&^VirtioNeedsChecksum | VirtioDataValid
	v.ChecksumStart = 0
	v.ChecksumOffset = 0
	return true
}

// castagnoli is the polynomial of SCTP's CRC (RFC 9260 appendix A).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// putCRC writes the CRC of the SCTP packet that begins at an offset of the frame, least significant byte first. Padding
// behind the IP packet does not belong to it. It returns false if the packet is shorter than its header.
func putCRC(frame []byte, start int) bool {
	end := networkEnd(frame)
	if start+SCTPLen > end {
		return false
	}
	packet := frame[start:end]
	field := packet[sctpChecksumOffset:SCTPLen]
	clear(field)
	binary.LittleEndian.PutUint32(field, crc32.Checksum(packet, castagnoli))
	return true
}

// networkEnd returns the end of the IP packet in a frame, or of another frame.
func networkEnd(frame []byte) int {
	switch kind, at := Ethernet(frame).Network(); kind {
	case TypeIPv4:
		if p, err := ParseIPv4(frame[at:]); err == nil {
			return at + len(p)
		}
	case TypeIPv6:
		if p, err := ParseIPv6(frame[at:]); err == nil {
			return at + len(p)
		}
	}
	return len(frame)
}

func fold(s uint64) uint16 {
	s = s>>32 + s&0xffffffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	return uint16(s>>16 + s&0xffff)
}
