package nodeview

import (
	"fmt"
	"net/netip"

	"github.com/weftnet/weft/ipnet/ipam"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/pod"
)

// PodBlocks are a keeper's blocks in the words of the node: its own, and of other nodes' the addresses that they lend it.
func PodBlocks(node string, held []v1.IPBlock) []pod.Block {
	var list []pod.Block
	for i := range held {
		b := &held[i]
		prefix, err := blocks.Parse(b)
		if err != nil {
			continue
		}
		if string(b.Spec.Node) == node {
			list = append(list, pod.Block{Network: string(b.Spec.Network), Prefix: prefix, Withheld: addresses(b.Spec.Offered)})
			continue
		}
		for _, l := range b.Spec.Borrowed {
			if a, err := netip.ParseAddr(string(l.Address)); err == nil && string(l.Node) == node {
				list = append(list, pod.Block{Network: string(b.Spec.Network), Prefix: netip.PrefixFrom(a, a.BitLen())})
			}
		}
	}
	return list
}

// addresses reads what the API server has checked; invalid entries are skipped.
func addresses(texts []v1.IP) []netip.Addr {
	var read []netip.Addr
	for _, text := range texts {
		if a, err := netip.ParseAddr(string(text)); err == nil {
			read = append(read, a)
		}
	}
	return read
}

// Local gives out the addresses of a keeper's blocks by the node's allocators.
type Local struct {
	// Allocator returns the allocator of a custom network, or of the pools for ""; nil: there is none yet.
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

// Remove closes a block for new addresses, and removes it if none is in use.
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
