package blocks

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// ownership keeps the ledger equal to the state of the API server, which decides which blocks belong to this node.
type ownership struct {
	*ledger
	claims claimer
}

// takeOver takes over the state of the API server. A watch may be old, so a difference is confirmed by a request.
func (o *ownership) takeOver(ctx context.Context, observed []*v1.IPBlock) error {
	var errs []error
	seen := make(map[string]*v1.IPBlock, len(observed))
	uids := make(map[string]bool, len(observed))
	for _, b := range observed {
		seen[b.Name] = b
		uids[string(b.UID)] = true
		if o.held[b.Name] == nil && !o.gone[string(b.UID)] {
			errs = append(errs, o.find(ctx, b.Name))
		}
	}
	for _, h := range o.sorted() {
		if !h.leaving && (h.closed || h.isDoubtful(seen[h.name])) {
			errs = append(errs, o.confirm(ctx, h))
		}
	}
	for _, l := range o.loans.sorted() {
		if !l.leaving && (l.closed || l.taken || !o.loans.isLent(o.config.Watch.ForeignBlock(l.name), l)) {
			errs = append(errs, o.confirmLoan(ctx, l))
		}
	}
	for uid := range o.gone {
		if !uids[uid] {
			delete(o.gone, uid) // no watch shows it again
		}
	}
	return errors.Join(append(errs, o.disown(ctx))...)
}

// isDoubtful reports whether the API server must be asked for a block that a watch shows as b, or not at all. Other
// nodes also write blocks that lend addresses, or that they request addresses of.
func (h *held) isDoubtful(b *v1.IPBlock) bool {
	return b == nil || b.UID != h.object.UID ||
		(h.unsure || h.lent() || len(b.Spec.Requested) > 0) && b.ResourceVersion != h.object.ResourceVersion
}

// read reads the object of a block; nil: it does not exist.
func (o *ownership) read(ctx context.Context, name string) (*v1.IPBlock, error) {
	b, err := o.config.Store.Get(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read block %s: %w", name, err)
	}
	return b, nil
}

// find holds an unknown block of this node: an earlier run claimed it, or the answer to the claim was lost.
func (o *ownership) find(ctx context.Context, name string) error {
	b, err := o.read(ctx, name)
	if err != nil || !o.isOurs(b) {
		return err
	}
	return o.hold(b)
}

// confirm reads a block, and loses it if it no longer belongs to this node.
func (o *ownership) confirm(ctx context.Context, h *held) error {
	b, err := o.read(ctx, h.name)
	switch {
	case err != nil:
		return err
	case o.isOurs(b):
		return o.refresh(h, b)
	}
	return o.lose(ctx, h, b)
}

// lose handles a block that does not belong to this node any more. If pods have its addresses the node claims it again,
// or isolates them if another node owns it. By is the current object, or nil.
func (o *ownership) lose(ctx context.Context, h *held, by *v1.IPBlock) error {
	if o.config.Local.Remove(h.Block) {
		o.forget(h)
		o.config.Log.Warn("block lost", "block", h.name)
		return nil
	}
	switch owner := nodeOf(by); owner {
	case "":
	case o.config.Node:
		return nil // it is being deleted; then this node claims it again
	default:
		// if true the block is not stored any more, and a restarted keeper does not allocate from it
		h.taken = o.config.Taken(h.Block, owner)
		if h.told {
			return nil
		}
		h.told = true
		return fmt.Errorf("block %s belongs to node %s, but pods of this node use its addresses: delete these pods",
			h.name, owner)
	}
	if by != nil {
		_, err := o.holdClaimed(o.claims.adopt(ctx, by))
		return err
	}
	again := h.object.DeepCopy()
	again.ResourceVersion = ""
	again.UID = ""
	again.OwnerReferences = nil
	b, err := o.config.Store.Create(ctx, again)
	if apierrors.IsAlreadyExists(err) {
		return nil // the next step shows its owner
	}
	if err != nil {
		return fmt.Errorf("claim block %s again: %w", h.name, err)
	}
	o.config.Log.Warn("lost block claimed again", "block", h.name)
	return o.hold(b)
}

// confirmLoan reads whether an address is still lent to this node. The controller frees loans of nodes that were gone
// for long.
func (o *ownership) confirmLoan(ctx context.Context, l *loan) error {
	b, err := o.read(ctx, l.name)
	if err != nil {
		return err
	}
	if !o.loans.isLent(b, l) {
		return o.loseLoan(ctx, l, b)
	}
	l.object = b
	if !l.closed && !l.taken {
		return nil
	}
	l.closed = false
	l.taken = false
	return o.open(&l.held)
}

// loseLoan handles an address of block b that is not lent to this node any more. Its pods are isolated, unless the
// block is free: then this node claims it.
func (o *ownership) loseLoan(ctx context.Context, l *loan, b *v1.IPBlock) error {
	if o.config.Local.Remove(l.Block) {
		delete(o.loans.all, l.key())
		return nil
	}
	l.closed = true
	owner := nodeOf(b)
	switch {
	case owner == o.config.Node:
		return nil // Step holds the block, and with it the address
	case owner != "":
		l.taken = o.config.Taken(l.Block, owner)
		return nil
	case b != nil:
		_, err := o.holdClaimed(o.claims.adopt(ctx, b))
		return err
	}
	_, err := o.holdClaimed(o.claims.create(ctx, PoolCIDR{Name: l.pool, Network: l.Network}, l.around))
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
func (o *ownership) disown(ctx context.Context) error {
	var errs []error
	for _, h := range o.sorted() {
		if h.isOurs() && len(h.object.OwnerReferences) > 0 {
			b := h.object.DeepCopy()
			b.OwnerReferences = nil
			errs = append(errs, o.write(ctx, h, b))
		}
	}
	return errors.Join(errs...)
}

// write updates the object of a block, or reads it after a conflict.
func (o *ownership) write(ctx context.Context, h *held, b *v1.IPBlock) error {
	updated, err := o.config.Store.Update(ctx, b)
	if isOvertaken(err) {
		return o.confirm(ctx, h)
	}
	if err != nil {
		return fmt.Errorf("write block %s: %w", h.name, err)
	}
	h.object = updated
	return nil
}

// holdClaimed uses the result of a claim; false: other nodes have the block.
func (o *ownership) holdClaimed(b *v1.IPBlock, err error) (bool, error) {
	if b == nil || err != nil {
		return false, err
	}
	return true, o.hold(b)
}

// release releases a block without pods. It first stops the allocation, also for the next run, then deletes the object
// in the version that was seen.
func (o *ownership) release(ctx context.Context, h *held) error {
	if !h.leaving && !o.config.Local.Remove(h.Block) {
		return o.config.Local.Add(h.Block) // an address was allocated since the count
	}
	h.leaving = true
	if err := o.keep(); err != nil {
		return err // no other node must get it: a restart without an API server would allocate from it
	}
	err := o.config.Store.Delete(ctx, h.object)
	switch {
	case err == nil, apierrors.IsNotFound(err):
		o.forget(h)
		o.config.Log.Info("block released", "block", h.name)
		return nil
	case apierrors.IsConflict(err):
		return o.reconsider(ctx, h)
	}
	// The object may be deleted now or later: the node allocates no address of the block until the API server says that
	// it is gone.
	return fmt.Errorf("release block %s: %w", h.name, err)
}

// reconsider reads a block after its object changed before the delete: no earlier request can delete it any more.
func (o *ownership) reconsider(ctx context.Context, h *held) error {
	b, err := o.read(ctx, h.name)
	if err != nil {
		return err
	}
	if !o.isOurs(b) || b.UID != h.object.UID {
		o.forget(h)
		return nil
	}
	h.leaving = false
	return errors.Join(o.refresh(h, b), o.config.Local.Add(h.Block))
}
