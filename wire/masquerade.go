package wire

import (
	"net/netip"
	"slices"
)

// Masquerade is how the node translates the sources of what pods send by way of it: the table weft of nftables. Kind
// linux.masquerade; there is one of them. Connections that the node redirected into the dataplane (to a pod of a Service,
// for example) always get the node's address, so that their replies come by the node too.
type Masquerade struct {
	Link    string         `json:"link"`              // the node's link to the dataplane
	Egress  bool           `json:"egress,omitempty"`  // what pods send to others than pods gets the node's address
	Pods    []netip.Prefix `json:"pods"`              // ranges of the addresses of all nodes' pods, masked
	Exclude []netip.Prefix `json:"exclude,omitempty"` // others that see pods' own addresses, masked
	Guard   TunnelGuard    `json:"guard,omitzero"`
}

// TunnelGuard keeps pods from sending packets that other nodes would take for those of a tunnel. A node trusts tunnel packets by
// their source address, and a masqueraded packet has the address of the pod's node. The guard drops packets to the UDP port of
// the tunnels that this node forwards and that are not the dataplane's own. The zero value drops nothing.
type TunnelGuard struct {
	Port  uint16         `json:"port,omitempty"`  // UDP; 0: there are no tunnels
	Link  string         `json:"link,omitempty"`  // the dataplane's tunnel packets come by this link; "": it owns the network card
	Nodes []netip.Prefix `json:"nodes,omitempty"` // the addresses of all known nodes, this one included
}

// Equal reports whether both guards have the same content.
func (g TunnelGuard) Equal(o TunnelGuard) bool {
	return g.Port == o.Port && g.Link == o.Link && slices.Equal(g.Nodes, o.Nodes)
}

// MasqueradeKey is the key of the only Masquerade.
func MasqueradeKey() string { return Key(KindMasquerade, "weft") }

// Equal reports whether both are written alike.
func (m Masquerade) Equal(o Masquerade) bool {
	return m.Link == o.Link && m.Egress == o.Egress && slices.Equal(m.Pods, o.Pods) && slices.Equal(m.Exclude, o.Exclude) &&
		m.Guard.Equal(o.Guard)
}
