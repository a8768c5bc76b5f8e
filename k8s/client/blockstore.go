package client

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
)

// RequestTimeout bounds one request of those that no caller waits for.
const RequestTimeout = 15 * time.Second

// BlockStore is the API server as a keeper of blocks sees it. Each request has a deadline of its own.
type BlockStore struct {
	blocks *Typed[*v1.IPBlock, *v1.IPBlockList]
}

// BlockStore gives access to blocks for [blocks.Keeper] and [blocks.Collector].
func (c *Client) BlockStore() *BlockStore { return &BlockStore{c.Blocks()} }

// Get reads one block as the API server has it now.
func (s *BlockStore) Get(ctx context.Context, name string) (*v1.IPBlock, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	return s.blocks.Get(ctx, name, metav1.GetOptions{})
}

// List lists the blocks of a pool; those that need not be fresh come from the API server's cache.
func (s *BlockStore) List(ctx context.Context, p blocks.Pool, fresh bool) ([]v1.IPBlock, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	o := metav1.ListOptions{ResourceVersion: "0"}
	if fresh {
		o.ResourceVersion = ""
	}
	o.FieldSelector = fields.OneTermEqualSelector("spec.pool", p.Name).String()
	if p.Network != "" {
		o.FieldSelector = fields.OneTermEqualSelector("spec.network", p.Network).String()
	}
	list, err := s.blocks.List(ctx, o)
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Create makes a block.
func (s *BlockStore) Create(ctx context.Context, b *v1.IPBlock) (*v1.IPBlock, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	return s.blocks.Create(ctx, b, metav1.CreateOptions{})
}

// Update writes a block that is still of b's resource version.
func (s *BlockStore) Update(ctx context.Context, b *v1.IPBlock) (*v1.IPBlock, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	return s.blocks.Update(ctx, b, metav1.UpdateOptions{})
}

// UpdateStatus writes the status of a block that is still of b's resource version.
func (s *BlockStore) UpdateStatus(ctx context.Context, b *v1.IPBlock) (*v1.IPBlock, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	return s.blocks.UpdateStatus(ctx, b, metav1.UpdateOptions{})
}

// Delete deletes the block that b is, if it is still of b's resource version.
func (s *BlockStore) Delete(ctx context.Context, b *v1.IPBlock) error {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	uid, version := b.UID, b.ResourceVersion
	return s.blocks.Delete(ctx, b.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
}
