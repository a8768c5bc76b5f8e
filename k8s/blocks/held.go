package blocks

import (
	"net/netip"
	"time"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// Block is a block of this node, or a single address that another node lends it.
type Block struct {
	Pool     string // of an IPPool
	Network  string // of a custom network
	Prefix   netip.Prefix
	Withheld []netip.Addr // addresses that are lent or offered to other nodes
}

// held is a block of this node with its state.
type held struct {
	Block
	name       string
	object     *v1.IPBlock // its last known state in the API server
	usage      Usage
	emptySince time.Time
	leaving    bool // removed from Local, not yet from the API server
	unsure     bool // known from an earlier run: the API server may have another version
	closed     bool // no address is allocated from it: the Node object was missing
	taken      bool // another node owns it, and all pods of this node that use it are isolated
	told       bool // the other owner was reported

	requested map[v1.AddressRequest]time.Time // when each request of the object was first seen
}

// isOurs reports whether the block counts as one of this node.
func (h *held) isOurs() bool { return !h.leaving && !h.taken }

// lent reports whether other nodes use addresses of the block, or may borrow them.
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
