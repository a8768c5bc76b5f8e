package blockstest

import (
	"context"
	"time"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
)

// hungTime is how long a request waits for an answer: as long as one of the client of the API server.
const hungTime = 15 * time.Second

// Hung is the backend of an API server that accepts requests and does not answer them.
type Hung struct {
	Began chan struct{} // has a token after the first request began
}

// NewHung returns a backend without requests.
func NewHung() *Hung { return &Hung{Began: make(chan struct{}, 1)} }

// Get waits in vain.
func (h *Hung) Get(ctx context.Context, _ string) (*v1.IPBlock, error) { return nil, h.wait(ctx) }

// List waits in vain.
func (h *Hung) List(ctx context.Context, _ blocks.PoolCIDR, _ bool) ([]v1.IPBlock, error) {
	return nil, h.wait(ctx)
}

// Create waits in vain.
func (h *Hung) Create(ctx context.Context, _ *v1.IPBlock) (*v1.IPBlock, error) {
	return nil, h.wait(ctx)
}

// Update waits in vain.
func (h *Hung) Update(ctx context.Context, _ *v1.IPBlock) (*v1.IPBlock, error) {
	return nil, h.wait(ctx)
}

// Delete waits in vain.
func (h *Hung) Delete(ctx context.Context, _ *v1.IPBlock) error { return h.wait(ctx) }

func (h *Hung) wait(ctx context.Context) error {
	select {
	case h.Began <- struct{}{}:
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, hungTime)
	defer cancel()
	<-ctx.Done()
	return ctx.Err()
}
