package devicemanager

import (
	"context"
	"fmt"
	"time"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// emptyPatience is how much longer a kubelet is asked that lists no pod at all: one that has just started and cannot
// reach its API server does not know its pods yet, though it will give them the devices that they had.
const emptyPatience = 10

// collection releases what no pod has any more. It releases only after two looks, far enough apart, between which kubelet
// never listed the allocation; what is young, or still used by an attachment, is left alone. Where kubelet does not answer
// nothing was seen.
type collection struct {
	manager *Manager
	missing map[string]time.Time // since when no look found the allocation, by id
}

// run looks from time to time until ctx ends, and soon after a pod was deleted.
func (c *collection) run(ctx context.Context) error {
	tick := time.NewTicker(max(c.manager.config.CollectAfter/2, 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-c.manager.nudge:
		case <-ctx.Done():
			return nil
		}
		if err := c.look(ctx); err != nil && ctx.Err() == nil {
			c.manager.config.Log.Debug("kubelet does not say which allocations it knows", "err", err)
		}
	}
}

// look asks kubelet once and releases what it has not known for long enough. While kubelet waits for an answer nothing is
// judged: what is being made would seem to be missing since then.
func (c *collection) look(ctx context.Context) error {
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
	patience := m.config.CollectAfter
	if pods == 0 {
		patience *= emptyPatience
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
		if known && now.Sub(since) >= patience && now.Sub(a.Created) >= m.config.CollectMinAge {
			if m.release(ctx, a.ID, "kubelet gave it to no pod that is there") {
				delete(seen, a.ID)
			}
		}
	}
	c.missing = seen
	return nil
}

// isIdle reports whether nobody has the allocation.
func (m *Manager) isIdle(a *allocation, listed map[string]bool) bool {
	for _, device := range a.Devices {
		if listed[device] {
			return false
		}
	}
	if _, used := m.user(a.ID); used {
		return false
	}
	return a.heir == "" || m.find(a.heir) == nil
}

// listed asks which of our devices pods have, and how many pods there are.
func (m *Manager) listed(ctx context.Context) (devices map[string]bool, pods int, err error) {
	devices = make(map[string]bool)
	err = m.ask(ctx, func(ctx context.Context, kubelet podresources.PodResourcesListerClient) error {
		all, err := list(ctx, kubelet)
		if err != nil {
			return fmt.Errorf("look for unused allocations: %w", err)
		}
		pods = len(all)
		for _, p := range all {
			for _, o := range ownedBy(p) {
				for _, device := range o.devices {
					devices[device] = true
				}
			}
		}
		return nil
	})
	return devices, pods, err
}

// wakeCollection has the collection look soon.
func (m *Manager) wakeCollection() {
	select {
	case m.nudge <- struct{}{}:
	default:
	}
}
