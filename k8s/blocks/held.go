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
	closed     bool // gives out nothing: there was no Node
	taken      bool // is another node's, and closed: pods of this one that have addresses of it are isolated
	told       bool // that it is another node's is said
}

// isOurs reports whether addresses of the block may be given out, or soon again.
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
