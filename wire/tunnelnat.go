package wire

import (
	"net/netip"
	"slices"
)

// TunnelNAT translates between the inner address of the dataplane's tunnel end and the node's address: the kernel
// rewrites one address of each packet between the dataplane's tunnel link and the peers, and keeps no state. Packets
// with other VNIs stay with the kernel, which may have VXLAN devices of other programs on the same port. Kind
// linux.tunnel-nat; there is one.
type TunnelNAT struct {
	Link  string     `json:"link"`  // the node's end of the dataplane's tunnel link
	Port  uint16     `json:"port"`  // UDP destination port of tunnel packets
	Inner netip.Addr `json:"inner"` // the dataplane's end of all tunnels. IPv6: it has the AddressSum of Node
	Node  netip.Addr `json:"node"`  // the node's address, which peers use for this end; of the same family
	// the other ends, sorted, without duplicates; packets of other hosts are not translated
	Peers []netip.Addr `json:"peers"`
	VNIs  []uint32     `json:"vnis"` // of the tunnels, sorted, without duplicates
}

// TunnelNATKey returns the key of the only TunnelNAT.
func TunnelNATKey() string { return Key(KindTunnelNAT, "weft") }

// Equal reports whether both have the same fields.
func (n TunnelNAT) Equal(o TunnelNAT) bool {
	return n.Link == o.Link && n.Port == o.Port && n.Inner == o.Inner && n.Node == o.Node &&
		slices.Equal(n.Peers, o.Peers) &&
		slices.Equal(n.VNIs, o.VNIs)
}

// AddressSum returns the Internet checksum of an address (RFC 1071), not inverted. Replacing an address by one with the
// same sum changes no checksum (RFC 6296, section 2.6).
func AddressSum(a netip.Addr) uint16 {
	raw := a.AsSlice()
	sum := uint32(0)
	for i := 0; i < len(raw); i += 2 {
		sum += uint32(raw[i])<<8 | uint32(raw[i+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum % 0xffff) // 0 and 0xffff are the same sum
}
