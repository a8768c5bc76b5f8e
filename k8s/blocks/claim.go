package blocks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// probes is how many blocks are tried blindly before the pool is listed: in a pool that is half full at most one in
// sixteen nodes has to list it.
const probes = 4

// tries is how many blocks of a list are tried before the list is thought too old.
const tries = 8

// ErrNoBlocks says that all blocks of a pool are other nodes'.
type ErrNoBlocks struct{ Pool Pool }

// Error names the pool.
func (e ErrNoBlocks) Error() string { return fmt.Sprintf("%s: all of its blocks are claimed", e.Pool) }

var errContended = errors.New("other nodes were faster each time")

// claim makes one more block of the pool this node's. Creating the object is the claim: its name is the block's, so the
// API server lets one node only do it.
func (k *Keeper) claim(ctx context.Context, p Pool) error {
	for i := range probes {
		// The first one is the same each time, so that nodes tend to get the blocks that they had.
		number := k.seed % p.Blocks()
		if i > 0 {
			number = k.random.Uint64N(p.Blocks())
		}
		claimed, err := k.create(ctx, p, p.Block(number))
		if claimed || err != nil {
			return err
		}
	}
	return k.claimListed(ctx, p)
}

// create tries to claim a block; false: it is taken.
func (k *Keeper) create(ctx context.Context, p Pool, block netip.Prefix) (bool, error) {
	if _, ours := k.held[Name(p.Network, block)]; ours {
		return false, nil
	}
	b, err := k.config.Store.Create(ctx, &v1.IPBlock{
		ObjectMeta: metav1.ObjectMeta{Name: Name(p.Network, block)},
		Spec: v1.IPBlockSpec{
			CIDR: v1.CIDR(block.String()), Pool: p.Name, Network: v1.NetworkName(p.Network), Node: v1.NodeName(k.config.Node),
		},
	})
	switch {
	case apierrors.IsAlreadyExists(err):
		return false, nil
	case err != nil:
		return false, err // if it was made all the same, the watch shows it
	}
	return true, k.hold(b)
}

// claimListed claims a block that is not in the pool's list, or is there without an owner.
func (k *Keeper) claimListed(ctx context.Context, p Pool) error {
	for _, fresh := range []bool{false, true} {
		list, err := k.config.Store.List(ctx, p, fresh)
		if err != nil {
			return fmt.Errorf("list blocks: %w", err)
		}
		claimed, contended, err := k.claimFree(ctx, p, list)
		if claimed || err != nil {
			return err
		}
		if contended {
			return errContended
		}
	}
	return ErrNoBlocks{Pool: p}
}

func (k *Keeper) claimFree(ctx context.Context, p Pool, list []v1.IPBlock) (claimed, contended bool, err error) {
	taken := make(map[netip.Prefix]bool, len(list))
	for i := range list {
		b := &list[i]
		if b.Spec.Node == "" && b.DeletionTimestamp == nil {
			if claimed, err = k.adopt(ctx, b); claimed || err != nil {
				return claimed, false, err
			}
		}
		if prefix, err := netip.ParsePrefix(string(b.Spec.CIDR)); err == nil {
			taken[prefix] = true
		}
	}
	tried := 0
	for block := range k.untaken(p, taken) {
		if claimed, err = k.create(ctx, p, block); claimed || err != nil {
			return claimed, false, err
		}
		if tried++; tried == tries {
			return false, true, nil
		}
	}
	return false, tried > 0, nil
}

// untaken goes through the blocks of a pool that are not taken, from a random one on.
func (k *Keeper) untaken(p Pool, taken map[netip.Prefix]bool) func(yield func(netip.Prefix) bool) {
	start := k.random.Uint64N(p.Blocks())
	return func(yield func(netip.Prefix) bool) {
		for i := range p.Blocks() {
			block := p.Block((start + i) % p.Blocks())
			if !taken[block] && !yield(block) {
				return
			}
		}
	}
}

// adopt claims a block whose object exists and is unclaimed; false: another node was faster. A block that lends this node an
// address is for other nodes to claim: no node borrows from itself.
func (k *Keeper) adopt(ctx context.Context, b *v1.IPBlock) (bool, error) {
	lent := slices.ContainsFunc(b.Spec.Borrowed, func(l v1.Loan) bool { return string(l.Node) == k.config.Node })
	if _, err := Parse(b); err != nil || lent {
		return false, nil //nolint:nilerr // an object that no block is made from is not claimed
	}
	b = b.DeepCopy()
	b.Spec.Node, b.OwnerReferences = v1.NodeName(k.config.Node), nil
	updated, err := k.config.Store.Update(ctx, b)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, k.hold(updated)
}

// hold lets addresses of a block be given out that is this node's.
func (k *Keeper) hold(b *v1.IPBlock) error {
	prefix, err := Parse(b)
	if err != nil {
		return err
	}
	h := &held{
		Block: Block{Pool: b.Spec.Pool, Network: string(b.Spec.Network), Prefix: prefix, Withheld: addresses(b.Spec.Offered)},
		name:  b.Name, object: b,
	}
	k.held[b.Name] = h
	for _, l := range k.loans {
		if l.name == b.Name {
			delete(k.loans, l.key()) // its address is one of this node's block now
		}
	}
	if err := k.keep(); err != nil { // before a pod can have an address of it
		delete(k.held, b.Name)
		return err
	}
	if err := k.config.Local.Add(h.Block); err != nil {
		delete(k.held, b.Name)
		return fmt.Errorf("use block %s: %w", b.Name, err)
	}
	h.count(k.config.Local.Usage(h.Block), k.config.Now())
	k.config.Log.Info("block claimed", "block", b.Name, "pool", b.Spec.Pool, "network", b.Spec.Network)
	return nil
}
