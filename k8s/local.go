package k8s

import (
	"fmt"
	"net/netip"

	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/k8s/blocks"
)

// Local gives out the addresses of a keeper's blocks by the node's allocators.
type Local struct {
	// Allocator is who gives out the addresses of a custom network, or, for "", of the pools; nil: nobody yet.
	Allocator func(network string) *ipam.Allocator
}

// Add lets the block's addresses be given out but for those withheld.
func (l Local) Add(b blocks.Block) error {
	a := l.Allocator(b.Network)
	if a == nil {
		return fmt.Errorf("network %q gives out no addresses on this node", b.Network)
	}
	return a.AddBlock(b.Prefix, b.Withheld...)
}

// Remove gives out no more of the block's addresses, and forgets it if nobody has one.
func (l Local) Remove(b blocks.Block) bool {
	a := l.Allocator(b.Network)
	return a == nil || a.RemoveBlock(b.Prefix)
}

// Usage counts the block's addresses. One that is the node's own is held too.
func (l Local) Usage(b blocks.Block) blocks.Usage {
	a := l.Allocator(b.Network)
	if a == nil {
		return blocks.Usage{}
	}
	known, there := a.Block(b.Prefix)
	if !there {
		return blocks.Usage{}
	}
	u := blocks.Usage{Held: int(known.Stats.Leased + known.Stats.Used), Cooling: int(known.Stats.Cooling)}
	if known.Internal.IsValid() {
		u.Held++
	}
	if !known.Closed {
		u.Free = int(known.Stats.Free)
	}
	return u
}

// Withhold takes an address out, to be lent: the wanted one if no pod has it, or any free one if wanted is not valid. It
// returns an invalid address if there is none.
func (l Local) Withhold(b blocks.Block, wanted netip.Addr) netip.Addr {
	if a := l.Allocator(b.Network); a != nil {
		return a.Withhold(b.Prefix, wanted)
	}
	return netip.Addr{}
}

// Return lets an address that was withheld be given out again, once it has rested.
func (l Local) Return(b blocks.Block, address netip.Addr) {
	if a := l.Allocator(b.Network); a != nil {
		a.Return(address)
	}
}
