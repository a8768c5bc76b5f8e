package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// sharedObjects keeps the condition network: a node is not ready while an object that all pods need is missing.
type sharedObjects struct {
	scheduler *kvscheduler.Scheduler
	health    *health.Conditions
	refused   atomic.Pointer[string] // why the scheduler refused all desired values; nil if it did not
}

// watch updates the condition until ctx ends.
func (s *sharedObjects) watch(ctx context.Context) error {
	for ref, status := range s.scheduler.Watch(ctx) {
		if desired.IsShared(ref.String()) && (status.IsLacking() || !s.health.Holds(health.Network)) {
			s.report()
		}
	}
	return ctx.Err()
}

// report sets the condition by the state of all shared objects. Objects that wait are reported only if
// none has failed: they wait for those that have.
func (s *sharedObjects) report() {
	var failed, waiting []string
	view := s.scheduler.View()
	for _, kind := range wire.Kinds() {
		for name, status := range view.All(kvscheduler.Kind(kind)) {
			key := wire.Key(kind, name)
			switch {
			case !desired.IsShared(key) || !status.IsLacking():
			case status.Err != nil:
				failed = append(failed, fmt.Sprintf("%s: %v", key, status.Err))
			default:
				waiting = append(waiting, fmt.Sprintf("%s waits for %s", key, strings.Join(status.Missing, ", ")))
			}
		}
	}
	if refused := s.refused.Load(); refused != nil {
		failed = append(failed, *refused)
	}
	lacking := failed
	if len(failed) == 0 {
		lacking = waiting
	}
	slices.Sort(lacking)
	s.health.Set(health.Network, len(lacking) == 0, strings.Join(lacking, "; "))
}

// noteRefusal keeps the agent from being ready while all that it desires is refused as a whole: then there is no object
// that could be lacking.
func (s *sharedObjects) noteRefusal(err error) {
	if err == nil {
		s.refused.Store(nil)
		return
	}
	text := "nothing is desired: " + err.Error()
	s.refused.Store(&text)
	s.health.Set(health.Network, false, text)
}
