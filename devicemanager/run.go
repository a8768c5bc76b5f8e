package devicemanager

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// Run keeps kubelet knowing the devices, and collects what pods left, until ctx ends. It is to be called once the loop
// has done its first resync: kubelet asks at once.
func (m *Manager) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return m.presence.run(ctx) })
	group.Go(func() error { return newCollection(m).run(ctx) })
	return group.Wait()
}

func newCollection(m *Manager) *collection {
	return &collection{manager: m, missing: make(map[string]time.Time)}
}
