package agent

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/weftnet/weft/kvscheduler"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
	"github.com/weftnet/weft/wire"
)

// markers is a scheduler with a kind that has no backend, whose objects exist when they are desired, and a kind that
// needs one of those.
func markers(t *testing.T) (*kvscheduler.Scheduler, kvscheduler.KindOf[string], kvscheduler.KindOf[string]) {
	s := kvscheduler.New(kvscheduler.Config{})
	equal := func(a, b string) bool { return a == b }
	vrfs, err := kvscheduler.Register(s, kvscheduler.Descriptor[string, struct{}]{Name: wire.KindVRF, Equal: equal})
	routes, err2 := kvscheduler.Register(s, kvscheduler.Descriptor[string, struct{}]{
		Name: wire.KindRoute, Equal: equal,
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

func TestWhySaysThatObjectsAreInSync(t *testing.T) {
	s, vrfs, routes := markers(t)
	set := []kvscheduler.Object{vrfs.Put("a", ""), vrfs.Put("b", ""), routes.Put("fine", "a"), routes.Put("far", "c")}
	if _, err := s.Commit(t.Context(), kvscheduler.Txn{Source: ownSource, Set: set}); err != nil {
		t.Fatal(err)
	}
	waits := []string{"vpp.route/far waits for vpp.vrf/c: no object of that name was seen or is desired"}
	for asked, want := range map[string][]string{
		"vpp.vrf/a":      {"vpp.vrf/a is in sync"},
		"vpp.vrf":        {"all 2 objects are in sync"},
		"vpp.route/fine": {"vpp.route/fine is in sync"},
		"vpp.route/far":  waits,
		"vpp.route/f":    waits, // and nothing of the other
		"vpp.route/x":    {"vpp.route/x: no object of that name was seen or is desired"},
		"x":              {`no object has a key that begins with "x"; weftctl objects lists them`},
	} {
		reply, err := (&operations{scheduler: s}).Why(t.Context(), &weftv1.WhyRequest{Ref: asked})
		if err != nil || !slices.Equal(reply.GetLines(), want) {
			t.Errorf("%s: %q, %v, want %q", asked, reply.GetLines(), err, want)
		}
	}
}
