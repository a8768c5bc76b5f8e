package frame

import "encoding/binary"

// Hash returns the flow hash of addresses, protocol and, unless the packet is a fragment, ports.
func (p IPv4) Hash() uint32 {
	h := mix(uint64(binary.BigEndian.Uint32(p[12:]))<<32|uint64(binary.BigEndian.Uint32(p[16:])), uint64(p[9]))
	if p.IsFragment() {
		return uint32(h >> 32)
	}
	return withPorts(h, p[9], p.Payload())
}

// Hash returns the flow hash, as for IPv4.
func (p IPv6) Hash() uint32 {
	h := mix(binary.BigEndian.Uint64(p[8:]), binary.BigEndian.Uint64(p[16:]))
	h = mix(binary.BigEndian.Uint64(p[24:])^h, binary.BigEndian.Uint64(p[32:]))
	if p[6] != ProtocolTCP && p[6] != ProtocolUDP {
		return uint32(h >> 32)
	}
	return withPorts(h, p[6], p[IPv6Len:])
}

// Hash returns the flow hash of the IP packet, or of the MAC addresses of another frame.
func (e Ethernet) Hash() uint32 {
	switch kind, at := e.Network(); kind {
	case TypeIPv4:
		if p, err := ParseIPv4(e[at:]); err == nil {
			return p.Hash()
		}
	case TypeIPv6:
		if p, err := ParseIPv6(e[at:]); err == nil {
			return p.Hash()
		}
	}
	return uint32(mix(binary.BigEndian.Uint64(e), uint64(binary.BigEndian.Uint32(e[8:]))) >> 32)
}

func withPorts(h uint64, protocol uint8, b []byte) uint32 {
	if (protocol == ProtocolTCP || protocol == ProtocolUDP) && len(b) >= 4 {
		h = mix(h, uint64(binary.BigEndian.Uint32(b)))
	}
	return uint32(h >> 32)
}

// mix is a multiply-xorshift step with the constants of splitmix64.
func mix(a, b uint64) uint64 {
	h := (a ^ b*0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9
	h ^= h >> 31
	h *= 0x94d049bb133111eb
	return h ^ h>>29
}
