package kvschedulertest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/weftnet/weft/kvscheduler"
)

// Markers runs a scheduler with two kinds that have no backend: an object exists when it is desired. The value of a
// route is the name of the VRF that it needs.
func Markers(t testing.TB) (s *kvscheduler.Scheduler, vrfs, routes KindOf[string]) {
	t.Helper()
	s = kvscheduler.New(kvscheduler.Config{})
	equal := func(a, b string) bool { return a == b }
	vrfs, err := Register(s, kvscheduler.Descriptor[string, struct{}]{Name: "vpp.vrf", Equal: equal})
	routes, err2 := Register(s, kvscheduler.Descriptor[string, struct{}]{
		Name: "vpp.route", Equal: equal,
		Deps: func(_, vrf string) []kvscheduler.Dep { return []kvscheduler.Dep{{On: vrfs.Ref(vrf)}} },
	})
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return s, vrfs, routes
}
