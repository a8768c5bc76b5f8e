package blocks

import (
	"net/netip"
	"time"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// Block is what this node gives out addresses of: a block of its own, or a single address that another node lends it.
type Block struct {
	Pool     string // of an IPPool
	Network  string // of a custom network
	Prefix   netip.Prefix
	Withheld []netip.Addr // of its addresses, those that are lent or offered to other nodes
}

// held is a block of this node with what is known of it.
type held struct {
	Block
	name       string
	object     *v1.IPBlock // as the API server had it last
	usage      Usage
	emptySince time.Time
	leaving    bool // taken from Local, not yet from the API server
	unsure     bool // of an earlier run: the API server may have another version
	closed     bool // no address is allocated from it: the Node object was missing
	taken      bool // another node owns it, and all pods of this node that use it are isolated
	told       bool // that another node owns it was reported

	requested map[v1.AddressRequest]time.Time // when each request of the object was first seen
}

// isOurs reports whether the block counts as one of this node.
func (h *held) isOurs() bool { return !h.leaving && !h.taken }

// lent reports whether others use addresses of the block, or may take them.
func (h *held) lent() bool { return len(h.object.Spec.Offered)+len(h.object.Spec.Borrowed) > 0 }

func (h *held) isOf(p Pool) bool {
	return h.Pool == p.Name && h.Network == p.Network && p.Has(h.Prefix)
}

func (h *held) count(u Usage, now time.Time) {
	switch {
	case !u.empty():
		h.emptySince = time.Time{}
	case h.emptySince.IsZero():
		h.emptySince = now
	}
	h.usage = u
}
