package controller

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/blocks"
)

// keepCollecting frees, again and again, what nodes left behind that are no more. A leader that is new begins to count the
// grace anew.
func (c *Controller) keepCollecting(ctx context.Context) error {
	tick := time.NewTicker(c.collect)
	defer tick.Stop()
	for {
		if len(c.overview.Missing()) == 0 {
			if _, err := c.collector.Collect(ctx); err != nil && ctx.Err() == nil {
				c.log.Warn("addresses of nodes that are gone not collected, trying again", "after", c.collect, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// claimedFrom lists all pools and networks that own blocks, including deleted ones.
func (c *Controller) claimedFrom() []blocks.Pool {
	var pools []blocks.Pool
	for _, b := range c.overview.blocks.All() {
		p := blocks.Pool{Name: b.Spec.Pool, Network: string(b.Spec.Network)}
		if !slices.Contains(pools, p) {
			pools = append(pools, p)
		}
	}
	return pools
}

// nodeUID asks the API server for a node's UID; "": there is none.
func (c *Controller) nodeUID(ctx context.Context, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	n, err := c.client.Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return string(n.UID), nil
}
