package wire

import (
	"net/netip"
	"slices"
)

// Masquerade is the nftables table weft, which masquerades packets of pods that pass the node. Kind linux.masquerade;
// there is one. Connections that the node redirects into the dataplane (for example to a pod of a Service) always get
// another source, so that their replies pass the node, too: the address of the node, or the client address of the pod.
type Masquerade struct {
	Link    string         `json:"link"`              // the node's link to the dataplane
	Egress  bool           `json:"egress,omitempty"`  // masquerade packets from pods to destinations other than pods
	Pods    []netip.Prefix `json:"pods"`              // addresses of the pods of all nodes, masked
	Exclude []netip.Prefix `json:"exclude,omitempty"` // other destinations that see the pods' addresses, masked
	Clients ServiceClients `json:"clients,omitzero"`
	Guard   TunnelGuard    `json:"guard,omitzero"`
}

// ServiceClients gives pods that contact Services client addresses instead of the node's: the network part of their
// address is replaced by that of a range. The zero value gives none.
type ServiceClients struct {
	Ranges    []netip.Prefix `json:"ranges,omitempty"`    // at most one of each family, masked
	Pods      []netip.Prefix `json:"pods,omitempty"`      // addresses of pods that get client addresses, masked
	Addresses []netip.Prefix `json:"addresses,omitempty"` // the client addresses of these pods
	// addresses of pods whose replies to client addresses return to this node
	Endpoints []netip.Prefix `json:"endpoints,omitempty"`
}

// Equal reports whether both have the same fields.
func (c ServiceClients) Equal(o ServiceClients) bool {
	return slices.Equal(c.Ranges, o.Ranges) && slices.Equal(c.Pods, o.Pods) && slices.Equal(c.Addresses, o.Addresses) &&
		slices.Equal(c.Endpoints, o.Endpoints)
}

// TunnelGuard drops packets that other nodes would accept as tunnel packets. A node trusts tunnel packets by their
// source address, and a masqueraded packet of a pod has the address of its node. The guard drops forwarded packets to
// the UDP port of the tunnels that are not from the dataplane. The zero value drops nothing.
type TunnelGuard struct {
	Port  uint16         `json:"port,omitempty"`  // UDP; 0: no tunnels
	Link  string         `json:"link,omitempty"`  // the node's link that receives the dataplane's tunnel packets; "": the dataplane owns the network card
	Nodes []netip.Prefix `json:"nodes,omitempty"` // addresses of all known nodes, including this one
}

// Equal reports whether both guards have the same fields.
func (g TunnelGuard) Equal(o TunnelGuard) bool {
	return g.Port == o.Port && g.Link == o.Link && slices.Equal(g.Nodes, o.Nodes)
}

// MasqueradeKey returns the key of the only Masquerade.
func MasqueradeKey() string { return Key(KindMasquerade, "weft") }

// Equal reports whether both have the same fields.
func (m Masquerade) Equal(o Masquerade) bool {
	return m.Link == o.Link && m.Egress == o.Egress && slices.Equal(m.Pods, o.Pods) &&
		slices.Equal(m.Exclude, o.Exclude) &&
		m.Clients.Equal(o.Clients) && m.Guard.Equal(o.Guard)
}
