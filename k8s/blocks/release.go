package blocks

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// release releases a block without pods. It first stops the allocation, also for the next run, then deletes the object in the version that was
// seen.
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
	// The object may be deleted now or later: nothing is allocated from the block until the API server says that it is gone.
	return fmt.Errorf("release block %s: %w", h.name, err)
}

// reconsider reads a block whose object changed before the delete: no earlier request can delete it any more.
func (k *Keeper) reconsider(ctx context.Context, h *held) error {
	b, err := k.config.Store.Get(ctx, h.name)
	switch {
	case apierrors.IsNotFound(err), err == nil && (b.UID != h.object.UID || !k.isOurs(b)):
		k.forget(h)
		return nil
	case err != nil:
		return fmt.Errorf("release block %s: %w", h.name, err)
	}
	h.leaving = false
	return errors.Join(k.refresh(h, b), k.config.Local.Add(h.Block))
}

// forget records that a block does not belong to this node any more. An object with its UID never does again, although an old watch may show
// it.
func (k *Keeper) forget(h *held) {
	delete(k.held, h.name)
	k.gone[string(h.object.UID)] = true
}

func (k *Keeper) isOurs(b *v1.IPBlock) bool {
	return string(b.Spec.Node) == k.config.Node && b.DeletionTimestamp == nil
}
