package blocks

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// probes is the number of blocks to try before the pool is listed: in a half full pool at most one in sixteen nodes has
// to list it.
const probes = 4

// tries is the number of blocks of a list to try before the list counts as outdated.
const tries = 8

// ErrNoBlocks means that other nodes have all blocks of a pool.
type ErrNoBlocks struct{ Pool PoolCIDR }

// Error names the pool.
func (e ErrNoBlocks) Error() string { return fmt.Sprintf("%s: all of its blocks are claimed", e.Pool) }

var errContended = errors.New("other nodes were faster each time")

// claimer claims blocks for a node in the API server. It returns nil if other nodes have the block.
type claimer struct {
	store  store
	node   string
	held   map[string]*held // the keeper's
	seed   uint64           // from the node's name
	random *rand.Rand
}

// claim claims one more block of a pool. Creating the object is the claim: its name is the block's, so the API server
// lets only one node create it.
func (c *claimer) claim(ctx context.Context, p PoolCIDR) (*v1.IPBlock, error) {
	for i := range probes {
		// The first one is the same each time, so that nodes tend to get their earlier blocks.
		number := c.seed % p.Blocks()
		if i > 0 {
			number = c.random.Uint64N(p.Blocks())
		}
		if claimed, err := c.create(ctx, p, p.Block(number)); claimed != nil || err != nil {
			return claimed, err
		}
	}
	for _, fresh := range []bool{false, true} {
		list, err := c.store.List(ctx, p, fresh)
		if err != nil {
			return nil, fmt.Errorf("list blocks: %w", err)
		}
		if claimed, err := c.claimFree(ctx, p, list); claimed != nil || err != nil {
			return claimed, err
		}
	}
	return nil, ErrNoBlocks{Pool: p}
}

func (c *claimer) create(ctx context.Context, p PoolCIDR, block netip.Prefix) (*v1.IPBlock, error) {
	name := Name(p.Network, block)
	if c.held[name] != nil {
		return nil, nil
	}
	b, err := c.store.Create(ctx, &v1.IPBlock{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.IPBlockSpec{
		CIDR: v1.CIDR(block.String()), Pool: p.Name, Network: v1.NetworkName(p.Network), Node: v1.NodeName(c.node),
	}})
	if err != nil {
		return nil, ignoring(apierrors.IsAlreadyExists, err) // if an error left it created, the watch shows it
	}
	return b, nil
}

// ignoring returns err, or nil if is reports true for it.
func ignoring(is func(error) bool, err error) error {
	if is(err) {
		return nil
	}
	return err
}

// isOvertaken reports whether an error says that the object changed or is gone.
func isOvertaken(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }

// claimFree claims a block without an owner, or one that is not in the pool's list.
func (c *claimer) claimFree(ctx context.Context, p PoolCIDR, list []v1.IPBlock) (*v1.IPBlock, error) {
	taken := make(map[netip.Prefix]bool, len(list))
	for i := range list {
		b := &list[i]
		if b.Spec.Node == "" && b.DeletionTimestamp == nil {
			if claimed, err := c.adopt(ctx, b); claimed != nil || err != nil {
				return claimed, err
			}
		}
		taken[b.Spec.CIDR.Prefix()] = true
	}
	tried := 0
	for block := range c.untaken(p, taken) {
		if claimed, err := c.create(ctx, p, block); claimed != nil || err != nil {
			return claimed, err
		}
		if tried++; tried == tries {
			break
		}
	}
	if tried > 0 {
		return nil, errContended
	}
	return nil, nil
}

// untaken iterates over the blocks of a pool that are not taken, from a random one on.
func (c *claimer) untaken(p PoolCIDR, taken map[netip.Prefix]bool) iter.Seq[netip.Prefix] {
	start := c.random.Uint64N(p.Blocks())
	return func(yield func(netip.Prefix) bool) {
		for i := range p.Blocks() {
			block := p.Block((start + i) % p.Blocks())
			if !taken[block] && !yield(block) {
				return
			}
		}
	}
}

// adopt claims a block with an object that has no owner. A node does not adopt a block that it borrows from.
func (c *claimer) adopt(ctx context.Context, b *v1.IPBlock) (*v1.IPBlock, error) {
	lent := slices.ContainsFunc(b.Spec.Borrowed, func(l v1.Loan) bool { return string(l.Node) == c.node })
	if _, err := Parse(b); err != nil || lent {
		return nil, nil //nolint:nilerr // an invalid object is not claimed
	}
	b = b.DeepCopy()
	b.Spec.Node = v1.NodeName(c.node)
	b.OwnerReferences = nil
	updated, err := c.store.Update(ctx, b)
	if err != nil {
		return nil, ignoring(isOvertaken, err)
	}
	return updated, nil
}
