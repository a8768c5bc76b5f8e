package frame

import "encoding/binary"

// Lengths of the transport headers without options.
const (
	UDPLen  = 8
	TCPLen  = 20
	SCTPLen = 12
)

// UDP is a view of a datagram (RFC 768), without padding.
type UDP []byte

// ParseUDP checks the header and its length field.
func ParseUDP(b []byte) (UDP, error) {
	if len(b) < UDPLen {
		return nil, ErrShort
	}
	n := int(binary.BigEndian.Uint16(b[4:]))
	if n < UDPLen || n > len(b) {
		return nil, ErrLength
	}
	return UDP(b[:n]), nil
}

// SourcePort returns the sender's port.
func (u UDP) SourcePort() uint16 { return binary.BigEndian.Uint16(u) }

// DestinationPort returns the receiver's port.
func (u UDP) DestinationPort() uint16 { return binary.BigEndian.Uint16(u[2:]) }

// TCP is a view of a segment (RFC 9293).
type TCP []byte

// ParseTCP checks the header and its data offset.
func ParseTCP(b []byte) (TCP, error) {
	if len(b) < TCPLen {
		return nil, ErrShort
	}
	if n := int(b[12]>>4) * 4; n < TCPLen || n > len(b) {
		return nil, ErrHeaderLength
	}
	return TCP(b), nil
}

// SourcePort returns the sender's port.
func (t TCP) SourcePort() uint16 { return binary.BigEndian.Uint16(t) }

// DestinationPort returns the receiver's port.
func (t TCP) DestinationPort() uint16 { return binary.BigEndian.Uint16(t[2:]) }

// HeaderLen returns the length of the header with options.
func (t TCP) HeaderLen() int { return int(t[12]>>4) * 4 }
