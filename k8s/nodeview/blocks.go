package nodeview

import (
	"fmt"
	"net/netip"
	"reflect"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/ipam"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/informer"
)

// blockWatches show the blocks of the cluster.
type blockWatches struct {
	own     *informer.Informer[*v1.IPBlock] // of this node
	foreign *informer.Informer[*v1.IPBlock] // of the other nodes, without status
}

// Blocks lists this node's blocks; false: the watch has not shown all yet.
func (b *blockWatches) Blocks() ([]*v1.IPBlock, bool) { return b.own.All(), b.own.Synced() }

// ForeignBlock returns another node's block without its status, or nil.
func (b *blockWatches) ForeignBlock(name string) *v1.IPBlock {
	found, _ := b.foreign.One(name)
	return found
}

// lightenBlock drops the status of a block, which changes with each pod.
func lightenBlock(b *v1.IPBlock) *v1.IPBlock {
	b.ManagedFields = nil
	b.Status = v1.IPBlockStatus{}
	return b
}

func sameBlock(x, y *v1.IPBlock) bool { return x.UID == y.UID && reflect.DeepEqual(x.Spec, y.Spec) }

// PodBlocks converts a keeper's blocks: the node's own, and of other nodes' blocks the addresses that it borrows.
func PodBlocks(node string, held []v1.IPBlock) []netaddr.Block {
	var list []netaddr.Block
	for i := range held {
		b := &held[i]
		prefix, err := blocks.Parse(b)
		if err != nil {
			continue
		}
		if string(b.Spec.Node) == node {
			list = append(list, netaddr.Block{
				Network:  string(b.Spec.Network),
				Prefix:   prefix,
				Withheld: v1.Addresses(b.Spec.Offered),
			})
			continue
		}
		for _, l := range b.Spec.Borrowed {
			if a, err := netip.ParseAddr(string(l.Address)); err == nil && string(l.Node) == node {
				list = append(list, netaddr.Block{Network: string(b.Spec.Network), Prefix: netaddr.Single(a)})
			}
		}
	}
	return list
}

// Local allocates the addresses of a keeper's blocks with the node's allocators.
type Local struct {
	// Allocator returns the allocator of a custom network, or of the pools for ""; nil: it does not exist yet.
	Allocator func(network string) *ipam.Allocator
}

// Add allows the allocation of the block's addresses except those withheld.
func (l Local) Add(b netaddr.Block) error {
	a := l.Allocator(b.Network)
	if a == nil {
		return fmt.Errorf("network %q: %w", b.Network, blocks.ErrNoNetwork)
	}
	return a.AddBlock(b.Prefix, b.Withheld...)
}

// Remove closes a block for new addresses, and removes it if none is in use.
func (l Local) Remove(b netaddr.Block) bool {
	a := l.Allocator(b.Network)
	return a == nil || a.RemoveBlock(b.Prefix)
}

// Usage counts the block's addresses. The node's own address counts as held.
func (l Local) Usage(b netaddr.Block) blocks.Usage {
	a := l.Allocator(b.Network)
	if a == nil {
		return blocks.Usage{}
	}
	known, _ := a.Block(b.Prefix)
	u := blocks.Usage{Held: int(known.Stats.Leased + known.Stats.Used), Cooling: int(known.Stats.Cooling)}
	if known.Internal.IsValid() {
		u.Held++
	}
	if !known.Closed {
		u.Free = int(known.Stats.Free)
	}
	return u
}

// Withhold reserves an address to be lent: the wanted one if no pod has it, and none of another namespace had it a
// moment ago, or any free one if wanted is invalid. It returns an invalid address if there is none.
func (l Local) Withhold(b netaddr.Block, wanted netip.Addr, namespace string) netip.Addr {
	if a := l.Allocator(b.Network); a != nil {
		return a.Withhold(b.Prefix, wanted, namespace)
	}
	return netip.Addr{}
}

// Return allows the allocation of a withheld address again, after its cooling time.
func (l Local) Return(b netaddr.Block, address netip.Addr) {
	if a := l.Allocator(b.Network); a != nil {
		a.Return(address)
	}
}
