package frame

import (
	"encoding/binary"
	"errors"
	"net"
)

// EthernetLen is the length of an untagged Ethernet header.
const EthernetLen = 14

// Ethernet types.
const (
	TypeIPv4 = 0x0800
	TypeARP  = 0x0806
	TypeIPv6 = 0x86dd
)

// Ethernet is a view of a frame.
type Ethernet []byte

// ParseEthernet checks the length.
func ParseEthernet(b []byte) (Ethernet, error) {
	if len(b) < EthernetLen {
		return nil, ErrShort
	}
	return Ethernet(b), nil
}

// Destination returns the destination address.
func (e Ethernet) Destination() MAC { return MAC(e[0:6]) }

// Source returns the source address.
func (e Ethernet) Source() MAC { return MAC(e[6:12]) }

// Type returns the Ethernet type.
func (e Ethernet) Type() uint16 { return binary.BigEndian.Uint16(e[12:]) }

// Payload returns the bytes after the header.
func (e Ethernet) Payload() []byte { return e[EthernetLen:] }

// Rewrite sets both addresses.
func (e Ethernet) Rewrite(destination, source MAC) {
	d4 := binary.LittleEndian.Uint32(destination[:])
	d2 := binary.LittleEndian.Uint16(destination[4:])
	s2 := binary.LittleEndian.Uint16(source[:])
	s4 := binary.LittleEndian.Uint32(source[2:])
	binary.LittleEndian.PutUint64(e, uint64(d4)|uint64(d2)<<32|uint64(s2)<<48)
	binary.LittleEndian.PutUint32(e[8:], s4)
}

// PutEthernet writes a header into the first EthernetLen bytes of b.
func PutEthernet(b []byte, destination, source MAC, ethernetType uint16) {
	binary.BigEndian.PutUint16(b[12:], ethernetType)
	Ethernet(b).Rewrite(destination, source)
}

// Errors of the parsers. They are never wrapped, because a worker allocates nothing; compare them directly.
var (
	ErrShort        = errors.New("shorter than its header")
	ErrVersion      = errors.New("wrong IP version")
	ErrHeaderLength = errors.New("header length out of range")
	ErrLength       = errors.New("length does not fit the frame")
	ErrFormat       = errors.New("fields out of range")
)

// MAC is an Ethernet address, comparable and without allocation.
type MAC [6]byte

// Broadcast is the Ethernet broadcast address.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// MACOf converts a net.HardwareAddr; false if it is not six bytes long.
func MACOf(a net.HardwareAddr) (MAC, bool) {
	var m MAC
	if len(a) != len(m) {
		return m, false
	}
	copy(m[:], a)
	return m, true
}

// HardwareAddr returns a copy of the address as a net.HardwareAddr.
func (m MAC) HardwareAddr() net.HardwareAddr { return append(net.HardwareAddr(nil), m[:]...) }

// String returns the colon separated form.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// IsZero reports whether the address is unset.
func (m MAC) IsZero() bool { return m == MAC{} }

// IsMulticast reports whether the address is a multicast one, such as broadcast.
func (m MAC) IsMulticast() bool { return m[0]&1 == 1 }
