package devicemanager

import (
	"context"
	"log/slog"
	"slices"
	"time"
)

// emptyFactor multiplies Collect.After while kubelet lists no pod at all: a kubelet that has just started and cannot
// reach its API server does not know its pods yet.
const emptyFactor = 10

// collector recreates lost files of claims, and releases allocations without a pod: kubelet must not list the
// allocation for Collect.After, in at least two polls. It skips young allocations and those that an attachment uses. A
// poll without an answer does not count.
type collector struct {
	config   Collect
	table    *table
	users    *users
	disk     *disk
	requests *requests
	kubelet  *podResources
	now      func() time.Time
	log      *slog.Logger

	wake    chan struct{}        // holds one
	missing map[string]time.Time // time of the first poll that missed the allocation, by id
}

// run collects periodically, and soon after each deleted pod, until ctx ends.
func (c *collector) run(ctx context.Context) error {
	tick := time.NewTicker(max(c.config.After/2, 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-c.wake:
		case <-ctx.Done():
			return nil
		}
		if err := c.collect(ctx); err != nil && ctx.Err() == nil {
			c.log.Debug("kubelet did not list the devices of pods", "err", err)
		}
	}
}

// collect polls kubelet once and releases the allocations that were missing for long enough. It pauses while a request
// for an allocation is in progress: a new allocation, or its files, would count as missing.
func (c *collector) collect(ctx context.Context) error {
	if c.requests.unanswered.Load() > 0 {
		return nil
	}
	if len(c.table.inOrder()) == 0 {
		clear(c.missing)
		return nil
	}
	// a restarting container needs the CDI file, and no other component asks for it
	if err := c.disk.ensure(ctx, c.table.claimed()); err != nil {
		c.log.Warn("files of claims not recreated, retrying", "err", err)
	}
	listed, pods, err := c.kubelet.listed(ctx)
	if err != nil {
		return err
	}
	after := c.config.After
	if pods == 0 {
		after *= emptyFactor
	}
	now := c.now()
	seen := make(map[string]time.Time)
	for _, a := range c.table.inOrder() {
		if !c.isIdle(a, listed) {
			continue
		}
		since, known := c.missing[a.ID]
		if !known {
			since = now
		}
		seen[a.ID] = since
		if known && now.Sub(since) >= after && now.Sub(a.Created) >= c.config.MinAge {
			if c.requests.release(ctx, a.ID, "kubelet lists no pod that has it") {
				delete(seen, a.ID)
			}
		}
	}
	c.missing = seen
	return nil
}

// isIdle reports whether no pod, attachment or successor needs the allocation. Claims are released by kubelet, and
// collected by the DRA driver, which knows the API server's claims.
func (c *collector) isIdle(a *allocation, listed map[string]bool) bool {
	if a.Claim != nil {
		return false
	}
	if slices.ContainsFunc(a.Devices, func(d string) bool { return listed[d] }) {
		return false
	}
	if _, used := c.users.user(a.ID); used {
		return false
	}
	return a.successor == "" || c.table.find(a.successor) == nil
}

// wakeUp starts the next collection now.
func (c *collector) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}
