package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/weftnet/weft/internal/retry"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/k8s/blocks"
)

// awayWait is the longest wait of an ADD for addresses while the API server does not answer. The runtime retries.
const awayWait = 3 * time.Second

// blockWaits are the waits of ADDs for blocks of addresses.
type blockWaits struct {
	keeper  *blocks.Keeper
	failure func() error // of the watches of the cluster; nil: the API server answers
}

// bounded returns a context that ends after awayWait if the API server does not answer.
func (w blockWaits) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if w.failure() != nil {
		return context.WithTimeout(ctx, awayWait)
	}
	return context.WithCancel(ctx)
}

// need claims a block of one of the pools for an ADD without a free address, and waits for it until ctx ends, or until
// the first cooling address is free. It returns nil if there is an address now. The pods that wait share one claim.
func (w blockWaits) need(ctx context.Context, wanted []blocks.PoolCIDR, exhausted ipam.ErrExhausted) error {
	deadline, isBounded := ctx.Deadline()
	if exhausted.Cooling == 0 || isBounded && exhausted.NextFree.After(deadline) {
		return w.claim(ctx, wanted)
	}
	cooling, cancel := context.WithDeadline(ctx, exhausted.NextFree)
	defer cancel()
	err := w.claim(cooling, wanted)
	if err == nil {
		return nil
	}
	<-cooling.Done() // no block can be claimed: the next address is the one that cools
	if ctx.Err() != nil {
		return err
	}
	return nil
}

// claim repeats a claim of a block of one of the pools until it succeeds, cannot succeed, or ctx ends.
func (w blockWaits) claim(ctx context.Context, wanted []blocks.PoolCIDR) error {
	pauses := retry.Pauses(50*time.Millisecond, time.Second)
	for {
		err := w.keeper.Need(ctx, wanted...)
		if err == nil || w.isExhausted(wanted) || w.isFull(wanted) {
			return err
		}
		if retry.Pause(ctx, pauses.NextBackOff()) != nil {
			return err
		}
	}
}

// isFull reports whether this node may have no further block of the pools: to wait for one is in vain.
func (w blockWaits) isFull(wanted []blocks.PoolCIDR) bool {
	return !slices.ContainsFunc(wanted, func(p blocks.PoolCIDR) bool { return !w.keeper.IsFull(p) })
}

// isExhausted reports whether no block of the pools is left for this node.
func (w blockWaits) isExhausted(wanted []blocks.PoolCIDR) bool {
	return !slices.ContainsFunc(wanted, func(p blocks.PoolCIDR) bool { return !w.keeper.Exhausted(p) })
}
