package devicemanager

import (
	"context"
	"fmt"
	"slices"
	"time"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// emptyFactor multiplies CollectAfter while kubelet lists no pod at all: a kubelet that has just started and cannot reach
// its API server does not know its pods yet.
const emptyFactor = 10

// collector releases allocations without a pod: kubelet must not list the allocation for CollectAfter, in at
// least two polls. It skips young allocations and those that an attachment uses. A poll without an answer does not count.
type collector struct {
	manager *Manager
	missing map[string]time.Time // time of the first poll that missed the allocation, by id
}

func newCollector(m *Manager) *collector {
	return &collector{manager: m, missing: make(map[string]time.Time)}
}

// run collects periodically, and soon after each deleted pod, until ctx ends.
func (c *collector) run(ctx context.Context) error {
	tick := time.NewTicker(max(c.manager.config.CollectAfter/2, 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-c.manager.wake:
		case <-ctx.Done():
			return nil
		}
		if err := c.collect(ctx); err != nil && ctx.Err() == nil {
			c.manager.config.Log.Debug("kubelet did not list the devices of pods", "err", err)
		}
	}
}

// collect polls kubelet once and releases the allocations that were missing for long enough. It does nothing while an
// Allocate request is in progress: a new allocation would count as missing.
func (c *collector) collect(ctx context.Context) error {
	m := c.manager
	if m.unanswered.Load() > 0 {
		return nil
	}
	if len(m.inOrder()) == 0 {
		clear(c.missing)
		return nil
	}
	listed, pods, err := m.listed(ctx)
	if err != nil {
		return err
	}
	after := m.config.CollectAfter
	if pods == 0 {
		after *= emptyFactor
	}
	now := m.config.Now()
	seen := make(map[string]time.Time)
	for _, a := range m.inOrder() {
		if !m.isIdle(a, listed) {
			continue
		}
		since, known := c.missing[a.ID]
		if !known {
			since = now
		}
		seen[a.ID] = since
		if known && now.Sub(since) >= after && now.Sub(a.Created) >= m.config.CollectMinAge {
			if m.release(ctx, a.ID, "kubelet lists no pod that has it") {
				delete(seen, a.ID)
			}
		}
	}
	c.missing = seen
	return nil
}

// isIdle reports whether no pod, attachment or successor needs the allocation. Claims are released by kubelet, and collected by the DRA
// driver, which knows the API server's claims.
func (m *Manager) isIdle(a *allocation, listed map[string]bool) bool {
	if a.Claim != nil {
		return false
	}
	if slices.ContainsFunc(a.Devices, func(d string) bool { return listed[d] }) {
		return false
	}
	if _, used := m.user(a.ID); used {
		return false
	}
	return a.successor == "" || m.find(a.successor) == nil
}

// listed returns the devices that pods have and the number of pods.
func (m *Manager) listed(ctx context.Context) (devices map[string]bool, pods int, err error) {
	devices = make(map[string]bool)
	err = m.query(ctx, func(ctx context.Context, kubelet podresources.PodResourcesListerClient) error {
		all, err := list(ctx, kubelet)
		if err != nil {
			return fmt.Errorf("collect unused allocations: %w", err)
		}
		pods = len(all)
		for _, p := range all {
			for _, o := range devicesIn(p) {
				for _, device := range o.devices {
					devices[device] = true
				}
			}
		}
		return nil
	})
	return devices, pods, err
}

// wakeCollector starts the next collection now.
func (m *Manager) wakeCollector() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}
