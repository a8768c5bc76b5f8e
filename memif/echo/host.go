// Package echo answers ARP, neighbour solicitations and pings on memifs.
package echo

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/weftnet/weft/memif"
)

const (
	ethernetSize = 14
	typeIPv4     = 0x0800
	typeARP      = 0x0806
	typeIPv6     = 0x86dd
)

// Host answers requests for the addresses of an interface.
type Host struct {
	mode      memif.Mode
	mac       [6]byte
	addresses map[netip.Addr]bool
}

// NewHost returns a host with the addresses of a memif.
func NewHost(d memif.Description) *Host {
	h := &Host{mode: d.Mode, addresses: make(map[netip.Addr]bool)}
	copy(h.mac[:], d.MAC)
	for _, p := range d.Addresses {
		h.addresses[p.Addr()] = true
	}
	return h
}

// Answer returns the reply to a request, or nil. It overwrites the request, and may use more of its capacity.
func (h *Host) Answer(packet []byte) []byte {
	if h.mode != memif.Ethernet {
		return h.answerIP(packet)
	}
	if len(packet) < ethernetSize || packet[0]&1 == 0 && [6]byte(packet[:6]) != h.mac {
		return nil
	}
	var reply []byte
	payload := packet[ethernetSize:]
	switch binary.BigEndian.Uint16(packet[12:]) {
	case typeARP:
		reply = h.answerARP(payload)
	case typeIPv4:
		reply = h.answerIPv4(payload)
	case typeIPv6:
		reply = h.answerIPv6(payload)
	}
	if reply == nil {
		return nil
	}
	copy(packet[:6], packet[6:12])
	copy(packet[6:12], h.mac[:])
	return packet[:ethernetSize+len(reply)]
}

func (h *Host) answerIP(packet []byte) []byte {
	if len(packet) == 0 {
		return nil
	}
	switch packet[0] >> 4 {
	case 4:
		return h.answerIPv4(packet)
	case 6:
		return h.answerIPv6(packet)
	}
	return nil
}

// answerARP answers who-has (RFC 826).
func (h *Host) answerARP(p []byte) []byte {
	request := []byte{0, 1, 8, 0, 6, 4, 0, 1}
	if len(p) < 28 || !bytes.Equal(p[:8], request) || !h.owns(p[24:28]) {
		return nil
	}
	wanted := [4]byte(p[24:28])
	p[7] = 2
	copy(p[18:28], p[8:18])
	copy(p[8:14], h.mac[:])
	copy(p[14:18], wanted[:])
	return p
}

// answerIPv4 answers an echo request (RFC 792) that is not a fragment.
func (h *Host) answerIPv4(p []byte) []byte {
	if len(p) < 20 || p[0]>>4 != 4 || p[9] != 1 || !h.owns(p[16:20]) {
		return nil
	}
	header := int(p[0]&15) * 4
	total := int(binary.BigEndian.Uint16(p[2:]))
	fragment := binary.BigEndian.Uint16(p[6:]) & 0x3fff
	if header < 20 || total > len(p) || total < header+8 || fragment != 0 || sum(p[:header], 0) != 0xffff {
		return nil
	}
	icmp := p[header:total]
	if icmp[0] != 8 || sum(icmp, 0) != 0xffff {
		return nil
	}
	icmp[0] = 0
	setChecksum(icmp, 2, 0)
	swap(p[12:16], p[16:20])
	p[8] = 64
	setChecksum(p[:header], 10, 0)
	return p
}

func (h *Host) owns(address []byte) bool {
	a, ok := netip.AddrFromSlice(address)
	return ok && h.addresses[a]
}

func swap(a, b []byte) {
	for i := range a {
		a[i], b[i] = b[i], a[i]
	}
}

// sum returns the sum of the Internet checksum (RFC 1071), not complemented.
func sum(b []byte, from uint32) uint16 {
	s := uint64(from)
	for ; len(b) >= 2; b = b[2:] {
		s += uint64(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

func setChecksum(b []byte, at int, pseudo uint32) {
	binary.BigEndian.PutUint16(b[at:], 0)
	binary.BigEndian.PutUint16(b[at:], ^sum(b, pseudo))
}
