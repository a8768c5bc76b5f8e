package client

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
)

// RequestTimeout bounds a request that no caller waits for.
const RequestTimeout = 15 * time.Second

// BlockStore is access to blocks for [blocks.Keeper] and [blocks.Collector]. Each request has a timeout of its own.
type BlockStore struct {
	blocks *Typed[*v1.IPBlock, *v1.IPBlockList]
}

// BlockStore gives access to blocks.
func (c *Client) BlockStore() *BlockStore { return &BlockStore{c.Blocks()} }

// Bounded calls a method of a typed client with [RequestTimeout].
func Bounded[A, O, R any](ctx context.Context, request func(context.Context, A, O) (R, error), a A, o O) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	return request(ctx, a, o)
}

// Get reads the current state of a block.
func (s *BlockStore) Get(ctx context.Context, name string) (*v1.IPBlock, error) {
	return Bounded(ctx, s.blocks.Get, name, metav1.GetOptions{})
}

// List lists the blocks of a pool: their current state if fresh, else the state in the API server's cache.
func (s *BlockStore) List(ctx context.Context, p blocks.PoolCIDR, fresh bool) ([]v1.IPBlock, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	o := metav1.ListOptions{
		ResourceVersion: "0",
		FieldSelector:   fields.OneTermEqualSelector("spec.pool", p.Name).String(),
	}
	if fresh {
		o.ResourceVersion = ""
	}
	if p.Network != "" {
		o.FieldSelector = fields.OneTermEqualSelector("spec.network", p.Network).String()
	}
	list, err := s.blocks.List(ctx, o)
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Create creates a block.
func (s *BlockStore) Create(ctx context.Context, b *v1.IPBlock) (*v1.IPBlock, error) {
	return Bounded(ctx, s.blocks.Create, b, metav1.CreateOptions{})
}

// Update writes a block if it still has b's resource version.
func (s *BlockStore) Update(ctx context.Context, b *v1.IPBlock) (*v1.IPBlock, error) {
	return Bounded(ctx, s.blocks.Update, b, metav1.UpdateOptions{})
}

// UpdateStatus writes the status of a block if the block still has b's resource version.
func (s *BlockStore) UpdateStatus(ctx context.Context, b *v1.IPBlock) (*v1.IPBlock, error) {
	return Bounded(ctx, s.blocks.UpdateStatus, b, metav1.UpdateOptions{})
}

// Delete deletes a block if it still has b's UID and resource version.
func (s *BlockStore) Delete(ctx context.Context, b *v1.IPBlock) error {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	return s.blocks.Delete(ctx, b.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &b.UID, ResourceVersion: &b.ResourceVersion},
	})
}
