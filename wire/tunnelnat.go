package wire

import (
	"net/netip"
	"slices"
)

// TunnelNAT gives tunnel packets of the dataplane the node's address, and back: the node's kernel rewrites one address of each
// packet between the dataplane's tunnel link and the peers, and keeps no state. Kind linux.tunnel-nat; there is one of them.
type TunnelNAT struct {
	Link  string       `json:"link"`  // the node's end of the link that the dataplane sends tunnel packets by
	Port  uint16       `json:"port"`  // UDP, that tunnel packets are sent to
	Inner netip.Addr   `json:"inner"` // the dataplane's end of all tunnels. IPv6: its checksum is that of Node, see validation
	Node  netip.Addr   `json:"node"`  // the node's address, by which its peers know this end; of the same family
	Peers []netip.Addr `json:"peers"` // the other ends, sorted, each once; packets of others are left alone
}

// TunnelNATKey is the key of the only TunnelNAT.
func TunnelNATKey() string { return Key(KindTunnelNAT, "weft") }

// Equal reports whether both are the same.
func (n TunnelNAT) Equal(o TunnelNAT) bool {
	return n.Link == o.Link && n.Port == o.Port && n.Inner == o.Inner && n.Node == o.Node && slices.Equal(n.Peers, o.Peers)
}

// AddressSum is the Internet checksum of an address (RFC 1071), not inverted. An address can take the place of another
// without a change of any checksum if their sums are the same (RFC 6296, section 2.6).
func AddressSum(a netip.Addr) uint16 {
	raw, sum := a.AsSlice(), uint32(0)
	for i := 0; i < len(raw); i += 2 {
		sum += uint32(raw[i])<<8 | uint32(raw[i+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum % 0xffff) // 0 and 0xffff are the same sum
}
