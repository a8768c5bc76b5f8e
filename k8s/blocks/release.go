package blocks

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// release gives a block back that no pod has an address of. First nothing of it is given out any more, also by a next run,
// then the very object that was seen is deleted.
func (k *Keeper) release(ctx context.Context, h *held) error {
	if !h.leaving && !k.config.Local.Remove(h.Block) {
		return k.config.Local.Add(h.Block) // an address was allocated since the count
	}
	h.leaving = true
	if err := k.keep(); err != nil {
		return err // before another node can have it: a restart without an API server must not give it out
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
	// It is open whether the object is gone, and it may go later still: the block is given out no more, whatever is
	// seen of it, until the API server says that it is gone.
	return fmt.Errorf("release block %s: %w", h.name, err)
}

// reconsider looks at a block whose object changed before it could be deleted: nothing that was sent so far can delete
// it any more.
func (k *Keeper) reconsider(ctx context.Context, h *held) error {
	b, err := k.config.Store.Get(ctx, h.name)
	switch {
	case apierrors.IsNotFound(err):
		k.forget(h)
		return nil
	case err != nil:
		return fmt.Errorf("release block %s: %w", h.name, err)
	case b.UID != h.object.UID || !k.isOurs(b):
		k.forget(h)
		return nil
	}
	h.leaving = false
	return errors.Join(k.refresh(h, b), k.config.Local.Add(h.Block))
}

// forget takes note that a block is no longer this node's. Its incarnation never is again, whatever an old watch says.
func (k *Keeper) forget(h *held) {
	delete(k.held, h.name)
	k.gone[string(h.object.UID)] = true
}

func (k *Keeper) isOurs(b *v1.IPBlock) bool {
	return string(b.Spec.Node) == k.config.Node && b.DeletionTimestamp == nil
}
