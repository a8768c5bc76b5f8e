package controller

import (
	"context"
	"log/slog"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/client"
)

// collection frees blocks and loans of deleted nodes.
type collection struct {
	client      *client.Client
	overview    *overview
	observation observation
	collector   blocks.Collector
	interval    time.Duration
	log         *slog.Logger
}

func newCollection(c *Config, o *overview) *collection {
	l := &collection{
		client:      c.Client,
		overview:    o,
		observation: observation{c.Observer},
		interval:    c.Collect,
		log:         c.Log,
	}
	l.collector = blocks.Collector{
		Store:   c.Client.BlockStore(),
		Pools:   l.claimSources,
		NodeUID: l.nodeUID,
		Grace:   c.Grace,
		Now:     time.Now,
		Log:     c.Log,
	}
	return l
}

// run frees blocks and loans of deleted nodes periodically. Each leader restarts the grace period.
func (c *collection) run(ctx context.Context) error {
	wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) {
		if len(c.overview.Missing()) > 0 {
			return
		}
		err := c.observation.reconciled("IPBlock", func() error {
			freed, err := c.collector.Collect(ctx)
			c.observation.collected(freed)
			return err
		})
		if err != nil && ctx.Err() == nil {
			c.log.Warn("addresses of deleted nodes not collected, retrying", "after", c.interval,
				"err", err)
		}
	}, c.interval)
	return ctx.Err()
}

// claimSources lists all pools and networks that own blocks, including deleted ones.
func (c *collection) claimSources() []blocks.PoolCIDR {
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
func (c *collection) nodeUID(ctx context.Context, name string) (string, error) {
	n, err := client.Bounded(ctx, c.client.Nodes().Get, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", err
	}
	return string(n.UID), nil
}
