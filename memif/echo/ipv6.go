package echo

import (
	"encoding/binary"
	"net/netip"

	"github.com/weftnet/weft/memif"
)

const (
	ipv6Size = 40
	icmpv6   = 58

	echoRequest6  = 128
	echoReply6    = 129
	solicitation  = 135
	advertisement = 136
	// advertisementSize includes the option with the link-layer address.
	advertisementSize = 32
)

// answerIPv6 answers echo requests (RFC 4443) and neighbour solicitations (RFC 4861) without extension headers.
func (h *Host) answerIPv6(p []byte) []byte {
	if len(p) < ipv6Size || p[0]>>4 != 6 || p[6] != icmpv6 {
		return nil
	}
	length := int(binary.BigEndian.Uint16(p[4:]))
	if length < 8 || ipv6Size+length > len(p) {
		return nil
	}
	p = p[:ipv6Size+length]
	body := p[ipv6Size:]
	if sum(body, pseudo(p)) != 0xffff {
		return nil
	}
	switch body[0] {
	case echoRequest6:
		return h.echo6(p, body)
	case solicitation:
		return h.advertise(p, body)
	}
	return nil
}

// pseudo returns the sum of the pseudo header of a packet.
func pseudo(p []byte) uint32 {
	return uint32(sum(p[8:ipv6Size], 0)) + uint32(len(p)-ipv6Size) + icmpv6
}

func (h *Host) echo6(p, body []byte) []byte {
	if !h.owns(p[24:40]) {
		return nil
	}
	body[0] = echoReply6
	swap(p[8:24], p[24:40])
	p[7] = 64
	setChecksum(body, 2, pseudo(p))
	return p
}

// advertise answers the soliciting node, or all nodes for duplicate address detection.
func (h *Host) advertise(p, body []byte) []byte {
	if h.mode != memif.Ethernet || p[7] != 255 || len(body) < 24 || !h.owns(body[8:24]) {
		return nil
	}
	var target [16]byte
	copy(target[:], body[8:24])
	flags := byte(0x60) // solicited, override
	if source, _ := netip.AddrFromSlice(p[8:24]); source.IsUnspecified() {
		flags = 0x20
		all := netip.IPv6LinkLocalAllNodes().As16()
		copy(p[8:24], all[:])
	}
	p = append(p[:ipv6Size], advertisement, 0, 0, 0, flags, 0, 0, 0)
	p = append(p, target[:]...)
	p = append(p, 2, 1)
	p = append(p, h.mac[:]...)
	binary.BigEndian.PutUint16(p[4:], advertisementSize)
	copy(p[24:40], p[8:24])
	copy(p[8:24], target[:])
	setChecksum(p[ipv6Size:], 2, pseudo(p))
	return p
}
