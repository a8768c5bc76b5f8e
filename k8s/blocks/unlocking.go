package blocks

import (
	"context"
	"sync"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// unlocking is a store that unlocks the keeper during requests: the API server may hang, and readers of the keeper's
// state do not wait for it. The state must be consistent at each request, as a request may fail.
type unlocking struct {
	store store
	mu    *sync.Mutex
}

func (u unlocking) Get(ctx context.Context, name string) (*v1.IPBlock, error) {
	u.mu.Unlock()
	defer u.mu.Lock()
	return u.store.Get(ctx, name)
}

func (u unlocking) List(ctx context.Context, p PoolCIDR, fresh bool) ([]v1.IPBlock, error) {
	u.mu.Unlock()
	defer u.mu.Lock()
	return u.store.List(ctx, p, fresh)
}

func (u unlocking) Create(ctx context.Context, b *v1.IPBlock) (*v1.IPBlock, error) {
	u.mu.Unlock()
	defer u.mu.Lock()
	return u.store.Create(ctx, b)
}

func (u unlocking) Update(ctx context.Context, b *v1.IPBlock) (*v1.IPBlock, error) {
	u.mu.Unlock()
	defer u.mu.Lock()
	return u.store.Update(ctx, b)
}

func (u unlocking) Delete(ctx context.Context, b *v1.IPBlock) error {
	u.mu.Unlock()
	defer u.mu.Lock()
	return u.store.Delete(ctx, b)
}
