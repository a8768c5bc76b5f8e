package frame

import (
	"encoding/binary"
	"net/netip"
)

// ARPLen is the length of an ARP packet for IPv4 over Ethernet (RFC 826).
const ARPLen = 28

// ARP operations.
const (
	ARPRequest = 1
	ARPReply   = 2
)

// ARP is a view of a packet for IPv4 over Ethernet.
type ARP []byte

// ParseARP checks length, address types and operation.
func ParseARP(b []byte) (ARP, error) {
	if len(b) < ARPLen {
		return nil, ErrShort
	}
	a := ARP(b[:ARPLen])
	fixed := binary.BigEndian.Uint64(a)
	if op := fixed & 0xffff; fixed>>16 != 0x0001_0800_0604 || op != ARPRequest && op != ARPReply {
		return nil, ErrFormat
	}
	return a, nil
}

// Operation returns ARPRequest or ARPReply.
func (a ARP) Operation() uint16 { return binary.BigEndian.Uint16(a[6:]) }

// SenderMAC returns the sender's hardware address.
func (a ARP) SenderMAC() MAC { return MAC(a[8:14]) }

// Sender returns the sender's IPv4 address; unspecified in a probe (RFC 5227).
func (a ARP) Sender() netip.Addr { return netip.AddrFrom4([4]byte(a[14:18])) }

// Target returns the requested IPv4 address, or the receiver of a reply.
func (a ARP) Target() netip.Addr { return netip.AddrFrom4([4]byte(a[24:28])) }

// ARPFields are the fields of a packet to write.
type ARPFields struct {
	Operation            uint16
	SenderMAC, TargetMAC MAC
	Sender, Target       netip.Addr
}

// PutARP writes a packet into the first ARPLen bytes of b; both addresses must be IPv4.
func PutARP(b []byte, f ARPFields) {
	binary.BigEndian.PutUint64(b, 0x0001_0800_0604_0000|uint64(f.Operation))
	s := f.Sender.As4()
	t := f.Target.As4()
	copy(b[8:], f.SenderMAC[:])
	copy(b[14:], s[:])
	copy(b[18:], f.TargetMAC[:])
	copy(b[24:], t[:])
}
