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
}

// MasqueradeKey is the key of the only Masquerade.
func MasqueradeKey() string { return Key(KindMasquerade, "weft") }

// Equal reports whether both are written alike.
func (m Masquerade) Equal(o Masquerade) bool {
	return m.Link == o.Link && m.Egress == o.Egress && slices.Equal(m.Pods, o.Pods) && slices.Equal(m.Exclude, o.Exclude)
}
