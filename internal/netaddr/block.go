package netaddr

import "net/netip"

// Block is a part of a pool, or of a custom network's addresses, that this node allocates from; or a single address
// that another node lends.
type Block struct {
	Network  string       `json:"network,omitempty"` // custom network; "" or "default": the block is of a pool
	Prefix   netip.Prefix `json:"prefix"`
	Withheld []netip.Addr `json:"withheld,omitempty"` // addresses that are lent or offered to other nodes
}
