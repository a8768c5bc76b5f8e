package controller

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/client"
)

// keepCollecting frees blocks and loans of deleted nodes periodically. Each leader restarts the grace period.
func (c *Controller) keepCollecting(ctx context.Context) error {
	wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) {
		if len(c.overview.Missing()) > 0 {
			return
		}
		err := c.observed("IPBlock", func() error {
			freed, err := c.collector.Collect(ctx)
			c.observeFreed(freed)
			return err
		})
		if err != nil && ctx.Err() == nil {
			c.config.Log.Warn("addresses of deleted nodes not collected, retrying", "after", c.config.Collect,
				"err", err)
		}
	}, c.config.Collect)
	return ctx.Err()
}

// claimSources lists all pools and networks that own blocks, including deleted ones.
func (c *Controller) claimSources() []blocks.PoolCIDR {
	var pools []blocks.PoolCIDR
	for _, b := range c.overview.blocks.All() {
		p := blocks.PoolCIDR{Name: b.Spec.Pool, Network: string(b.Spec.Network)}
		if !slices.Contains(pools, p) {
			pools = append(pools, p)
		}
	}
	return pools
}

// nodeUID reads a node's UID from the API server; "": the node does not exist.
func (c *Controller) nodeUID(ctx context.Context, name string) (string, error) {
	n, err := client.Bounded(ctx, c.config.Client.Nodes().Get, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", err
	}
	return string(n.UID), nil
}
