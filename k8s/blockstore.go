package k8s

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/weftnet/weft/ipnet/ipam"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
)

// requestTimeout bounds one request of those that no caller waits for.
const requestTimeout = 15 * time.Second

// BlockStore is the API server as a keeper of blocks sees it. Each request has a deadline of its own.
type BlockStore struct {
	blocks *Typed[*v1.IPBlock, *v1.IPBlockList]
}

// BlockStore gives access to blocks for [blocks.Keeper] and [blocks.Collector].
func (c *Client) BlockStore() *BlockStore { return &BlockStore{c.Blocks()} }

// Get reads one block as the API server has it now.
func (s *BlockStore) Get(ctx context.Context, name string) (*v1.IPBlock, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return s.blocks.Get(ctx, name, metav1.GetOptions{})
}

// List lists the blocks of a pool; those that need not be fresh come from the API server's cache.
func (s *BlockStore) List(ctx context.Context, p blocks.Pool, fresh bool) ([]v1.IPBlock, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	o := metav1.ListOptions{ResourceVersion: "0"}
	if fresh {
		o.ResourceVersion = ""
	}
	o.FieldSelector = fields.OneTermEqualSelector("spec.pool", p.Name).String()
	if p.Network != "" {
		o.FieldSelector = fields.OneTermEqualSelector("spec.network", p.Network).String()
	}
	list, err := s.blocks.List(ctx, o)
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Create makes a block.
func (s *BlockStore) Create(ctx context.Context, b *v1.IPBlock) (*v1.IPBlock, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return s.blocks.Create(ctx, b, metav1.CreateOptions{})
}

// Update writes a block that is still of b's resource version.
func (s *BlockStore) Update(ctx context.Context, b *v1.IPBlock) (*v1.IPBlock, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return s.blocks.Update(ctx, b, metav1.UpdateOptions{})
}

// UpdateStatus writes the status of a block that is still of b's resource version.
func (s *BlockStore) UpdateStatus(ctx context.Context, b *v1.IPBlock) (*v1.IPBlock, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return s.blocks.UpdateStatus(ctx, b, metav1.UpdateOptions{})
}

// Delete deletes the block that b is, if it is still of b's resource version.
func (s *BlockStore) Delete(ctx context.Context, b *v1.IPBlock) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	uid, version := b.UID, b.ResourceVersion
	return s.blocks.Delete(ctx, b.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
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
