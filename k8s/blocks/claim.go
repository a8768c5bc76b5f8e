package blocks

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/internal/netaddr"
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

// holdClaimed uses the result of a claim; false: other nodes have the block.
func (k *Keeper) holdClaimed(b *v1.IPBlock, err error) (bool, error) {
	if b == nil || err != nil {
		return false, err
	}
	return true, k.hold(b)
}

// hold allows the allocation of addresses of this node's block.
func (k *Keeper) hold(b *v1.IPBlock) error {
	prefix, err := Parse(b)
	if err != nil {
		return err
	}
	h := &held{
		Block: netaddr.Block{
			Network:  string(b.Spec.Network),
			Prefix:   prefix,
			Withheld: v1.Addresses(b.Spec.Offered),
		},
		pool:   b.Spec.Pool,
		name:   b.Name,
		object: b,
	}
	k.held[b.Name] = h
	// Addresses of the block that were lent to this node are its own now.
	maps.DeleteFunc(k.loans.all, func(_ addressKey, l *loan) bool { return l.name == b.Name })
	if err := k.keep(); err != nil { // before a pod can have an address of it
		delete(k.held, b.Name)
		return err
	}
	err = k.config.Local.Add(h.Block)
	h.closed = errors.Is(err, ErrNoNetwork) // Step opens it with the network, or releases it after the grace
	if err != nil && !h.closed {
		delete(k.held, b.Name)
	}
	if err != nil {
		return fmt.Errorf("use block %s: %w", b.Name, err)
	}
	h.count(k.config.Local.Usage(h.Block), k.config.Now())
	k.config.Log.Info("block claimed", "block", b.Name, "pool", b.Spec.Pool, "network", b.Spec.Network)
	return nil
}

// release releases a block without pods. It first stops the allocation, also for the next run, then deletes the object
// in the version that was seen.
func (k *Keeper) release(ctx context.Context, h *held) error {
	if !h.leaving && !k.config.Local.Remove(h.Block) {
		return k.config.Local.Add(h.Block) // an address was allocated since the count
	}
	h.leaving = true
	if err := k.keep(); err != nil {
		return err // no other node must get it: a restart without an API server would allocate from it
	}
	err := k.config.Store.Delete(ctx, h.object)
	switch {
	case err == nil, apierrors.IsNotFound(err):
		k.forget(h)
		k.config.Log.Info("block released", "block", h.name)
		return nil
	case apierrors.IsConflict(err):
		return k.reconsider(ctx, h)
	}
	// The object may be deleted now or later: the node allocates no address of the block until the API server says that
	// it is gone.
	return fmt.Errorf("release block %s: %w", h.name, err)
}

// reconsider reads a block after its object changed before the delete: no earlier request can delete it any more.
func (k *Keeper) reconsider(ctx context.Context, h *held) error {
	b, err := k.read(ctx, h.name)
	if err != nil {
		return err
	}
	if !k.isOurs(b) || b.UID != h.object.UID {
		k.forget(h)
		return nil
	}
	h.leaving = false
	return errors.Join(k.refresh(h, b), k.config.Local.Add(h.Block))
}

// forget records that a block does not belong to this node any more. An object with its UID never does again, although
// an old watch may show it.
func (k *Keeper) forget(h *held) {
	delete(k.held, h.name)
	k.gone[string(h.object.UID)] = true
}

// isOurs reports whether a block, which may be nil, belongs to this node.
func (k *Keeper) isOurs(b *v1.IPBlock) bool {
	return nodeOf(b) == k.config.Node && b.DeletionTimestamp == nil
}
