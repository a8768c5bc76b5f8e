package frame

import "encoding/binary"

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

// ParseEthernet checks that there is a whole header.
func ParseEthernet(b []byte) (Ethernet, error) {
	if len(b) < EthernetLen {
		return nil, ErrShort
	}
	return Ethernet(b), nil
}

// Destination returns the receiver's address.
func (e Ethernet) Destination() MAC { return MAC(e[0:6]) }

// Source returns the sender's address.
func (e Ethernet) Source() MAC { return MAC(e[6:12]) }

// Type returns the Ethernet type.
func (e Ethernet) Type() uint16 { return binary.BigEndian.Uint16(e[12:]) }

// Payload returns what follows the header.
func (e Ethernet) Payload() []byte { return e[EthernetLen:] }

// Rewrite sets both addresses.
func (e Ethernet) Rewrite(destination, source MAC) {
	d4, d2 := binary.LittleEndian.Uint32(destination[:]), binary.LittleEndian.Uint16(destination[4:])
	s2, s4 := binary.LittleEndian.Uint16(source[:]), binary.LittleEndian.Uint32(source[2:])
	binary.LittleEndian.PutUint64(e, uint64(d4)|uint64(d2)<<32|uint64(s2)<<48)
	binary.LittleEndian.PutUint32(e[8:], s4)
}

// PutEthernet writes a header into the first EthernetLen bytes of b.
func PutEthernet(b []byte, destination, source MAC, ethernetType uint16) {
	binary.BigEndian.PutUint16(b[12:], ethernetType)
	Ethernet(b).Rewrite(destination, source)
}
