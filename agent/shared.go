package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// watchShared keeps the condition network: an object that all pods need must not be missing on a node that is ready.
func (a *Agent) watchShared(ctx context.Context) error {
	for ref, status := range a.scheduler.Watch(ctx) {
		if ipnet.IsShared(ref.String()) && (isLacking(status) || !a.health.Holds(health.Network)) {
			a.reportShared()
		}
	}
	return ctx.Err()
}

// reportShared sets the condition network by what the scheduler says of all shared objects. Objects that wait are reported only
// if none has failed: they wait for those that have.
func (a *Agent) reportShared() {
	var failed, waiting []string
	view := a.scheduler.View()
	for _, kind := range wire.Kinds() {
		for name, status := range view.All(kvscheduler.Kind(kind)) {
			key := wire.Key(kind, name)
			switch {
			case !ipnet.IsShared(key) || !isLacking(status):
			case status.Err != nil:
				failed = append(failed, fmt.Sprintf("%s: %v", key, status.Err))
			default:
				waiting = append(waiting, fmt.Sprintf("%s waits for %s", key, strings.Join(status.Missing, ", ")))
			}
		}
	}
	if refused := a.rebuildErr.Load(); refused != nil {
		failed = append(failed, *refused)
	}
	lacking := failed
	if len(failed) == 0 {
		lacking = waiting
	}
	slices.Sort(lacking)
	a.health.Set(health.Network, len(lacking) == 0, strings.Join(lacking, "; "))
}

// noteRefusedRebuild keeps the agent from being ready while what it desires is refused as a whole: then there is no object at all that
// could be lacking.
func (a *Agent) noteRefusedRebuild(err error) {
	if err == nil {
		a.rebuildErr.Store(nil)
		return
	}
	text := "nothing is desired: " + err.Error()
	a.rebuildErr.Store(&text)
	a.health.Set(health.Network, false, text)
}

// isLacking reports whether an object is desired and not there.
func isLacking(s kvscheduler.Status) bool {
	return s.Phase == kvscheduler.Failed || s.Phase == kvscheduler.Invalid || s.Phase == kvscheduler.Pending
}
