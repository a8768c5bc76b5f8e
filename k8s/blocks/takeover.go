package blocks

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// takeOver takes over the state of the API server. A watch may be old, so a difference is confirmed by a request.
func (k *Keeper) takeOver(ctx context.Context, observed []*v1.IPBlock) error {
	var errs []error
	seen := make(map[string]*v1.IPBlock, len(observed))
	uids := make(map[string]bool, len(observed))
	for _, b := range observed {
		seen[b.Name] = b
		uids[string(b.UID)] = true
		if k.held[b.Name] == nil && !k.gone[string(b.UID)] {
			errs = append(errs, k.find(ctx, b.Name))
		}
	}
	for _, h := range k.sortedHeld() {
		if !h.leaving && (h.closed || h.isDoubtful(seen[h.name])) {
			errs = append(errs, k.confirm(ctx, h))
		}
	}
	for _, l := range k.loans.sorted() {
		if !l.leaving && (l.closed || l.taken || !k.loans.isLent(k.config.Foreign(l.name), l)) {
			errs = append(errs, k.confirmLoan(ctx, l))
		}
	}
	for uid := range k.gone {
		if !uids[uid] {
			delete(k.gone, uid) // no watch shows it again
		}
	}
	return errors.Join(append(errs, k.disown(ctx))...)
}

// isDoubtful reports whether the API server must be asked for a block that a watch shows as b, or not at all. Other
// nodes also write blocks that lend addresses, or that they request addresses of.
func (h *held) isDoubtful(b *v1.IPBlock) bool {
	return b == nil || b.UID != h.object.UID ||
		(h.unsure || h.lent() || len(b.Spec.Requested) > 0) && b.ResourceVersion != h.object.ResourceVersion
}

// read reads the object of a block; nil: it does not exist.
func (k *Keeper) read(ctx context.Context, name string) (*v1.IPBlock, error) {
	b, err := k.config.Store.Get(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read block %s: %w", name, err)
	}
	return b, nil
}

// find holds an unknown block of this node: an earlier run claimed it, or the answer to the claim was lost.
func (k *Keeper) find(ctx context.Context, name string) error {
	b, err := k.read(ctx, name)
	if err != nil || !k.isOurs(b) {
		return err
	}
	return k.hold(b)
}

// confirm reads a block, and loses it if it no longer belongs to this node.
func (k *Keeper) confirm(ctx context.Context, h *held) error {
	b, err := k.read(ctx, h.name)
	switch {
	case err != nil:
		return err
	case k.isOurs(b):
		return k.refresh(h, b)
	}
	return k.lose(ctx, h, b)
}

// refresh takes over the object of a block. Addresses that other nodes may have borrowed are withheld.
func (k *Keeper) refresh(h *held, b *v1.IPBlock) error {
	more := h.closed || h.taken
	h.object = b
	h.unsure = false
	h.closed = false
	h.taken = false
	h.told = false
	for _, a := range v1.Addresses(b.Spec.Offered) {
		if !slices.Contains(h.Withheld, a) {
			h.Withheld = append(h.Withheld, a)
			more = true
		}
	}
	if !more {
		return nil
	}
	return k.open(h)
}

// open allows the allocation of a block's addresses as soon as the node has its network.
func (k *Keeper) open(h *held) error {
	err := k.config.Local.Add(h.Block)
	h.closed = errors.Is(err, ErrNoNetwork)
	return ignoring(func(error) bool { return h.closed }, err)
}

// lose handles a block that does not belong to this node any more. If pods have its addresses the node claims it again,
// or isolates them if another node owns it. By is the current object, or nil.
func (k *Keeper) lose(ctx context.Context, h *held, by *v1.IPBlock) error {
	if k.config.Local.Remove(h.Block) {
		k.forget(h)
		k.config.Log.Warn("block lost", "block", h.name)
		return nil
	}
	switch owner := nodeOf(by); owner {
	case "":
	case k.config.Node:
		return nil // it is being deleted; then this node claims it again
	default:
		// if true the block is not stored any more, and a restarted keeper does not allocate from it
		h.taken = k.config.Taken(h.Block, owner)
		if h.told {
			return nil
		}
		h.told = true
		return fmt.Errorf("block %s belongs to node %s, but pods of this node use its addresses: delete these pods",
			h.name, owner)
	}
	if by != nil {
		_, err := k.holdClaimed(k.claims.adopt(ctx, by))
		return err
	}
	again := h.object.DeepCopy()
	again.ResourceVersion = ""
	again.UID = ""
	again.OwnerReferences = nil
	b, err := k.config.Store.Create(ctx, again)
	if apierrors.IsAlreadyExists(err) {
		return nil // the next step shows its owner
	}
	if err != nil {
		return fmt.Errorf("claim block %s again: %w", h.name, err)
	}
	k.config.Log.Warn("lost block claimed again", "block", h.name)
	return k.hold(b)
}

// confirmLoan reads whether an address is still lent to this node. The controller frees loans of nodes that were gone
// for long.
func (k *Keeper) confirmLoan(ctx context.Context, l *loan) error {
	b, err := k.read(ctx, l.name)
	if err != nil {
		return err
	}
	if !k.loans.isLent(b, l) {
		return k.loseLoan(ctx, l, b)
	}
	l.object = b
	if !l.closed && !l.taken {
		return nil
	}
	l.closed = false
	l.taken = false
	return k.open(&l.held)
}

// loseLoan handles an address of block b that is not lent to this node any more. Its pods are isolated, unless the
// block is free: then this node claims it.
func (k *Keeper) loseLoan(ctx context.Context, l *loan, b *v1.IPBlock) error {
	if k.config.Local.Remove(l.Block) {
		delete(k.loans.all, l.key())
		return nil
	}
	l.closed = true
	owner := nodeOf(b)
	switch {
	case owner == k.config.Node:
		return nil // Step holds the block, and with it the address
	case owner != "":
		l.taken = k.config.Taken(l.Block, owner)
		return nil
	case b != nil:
		_, err := k.holdClaimed(k.claims.adopt(ctx, b))
		return err
	}
	_, err := k.holdClaimed(k.claims.create(ctx, PoolCIDR{Name: l.pool, Network: l.Network}, l.around))
	return err
}

// nodeOf returns the node that owns a block, or "" if the block is nil or unclaimed.
func nodeOf(b *v1.IPBlock) string {
	if b == nil {
		return ""
	}
	return string(b.Spec.Node)
}

// disown removes the owner references that older versions wrote. Kubernetes deletes owned blocks within seconds after
// the Node, and other nodes then allocated addresses that running pods still used.
func (k *Keeper) disown(ctx context.Context) error {
	var errs []error
	for _, h := range k.sortedHeld() {
		if h.isOurs() && len(h.object.OwnerReferences) > 0 {
			b := h.object.DeepCopy()
			b.OwnerReferences = nil
			errs = append(errs, k.write(ctx, h, b))
		}
	}
	return errors.Join(errs...)
}

// write updates the object of a block, or reads it after a conflict.
func (k *Keeper) write(ctx context.Context, h *held, b *v1.IPBlock) error {
	updated, err := k.config.Store.Update(ctx, b)
	if isOvertaken(err) {
		return k.confirm(ctx, h)
	}
	if err != nil {
		return fmt.Errorf("write block %s: %w", h.name, err)
	}
	h.object = updated
	return nil
}
