package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// watchShared updates the condition network: a node is not ready while an object that all pods need is missing.
func (a *Agent) watchShared(ctx context.Context) error {
	for ref, status := range a.scheduler.Watch(ctx) {
		if desired.IsShared(ref.String()) && (status.IsLacking() || !a.health.Holds(health.Network)) {
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
			case !desired.IsShared(key) || !status.IsLacking():
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

// exhausted returns the pools of a family that have no address for another pod, if the configuration says that the node is unavailable
// then. A cooling address counts as free.
func (a *Agent) exhausted() string {
	if !a.config.Addresses.ExhaustedIsUnavailable {
		return ""
	}
	byFamily := make(map[wire.Family][]ipam.Stats)
	for _, s := range a.network.Networks.Allocator("").Stats() {
		if !s.Disabled {
			family := wire.FamilyOf(s.Prefix.Addr())
			byFamily[family] = append(byFamily[family], s)
		}
	}
	for _, family := range []wire.Family{wire.IP4, wire.IP6} {
		stats := byFamily[family]
		if len(stats) > 0 && !slices.ContainsFunc(stats, a.hasMore) {
			return "pool exhausted: " + heldOf(stats) + "; delete pods, or add a pool"
		}
	}
	return ""
}

// hasMore reports whether a pool has, or can soon get, an address for another pod.
func (a *Agent) hasMore(s ipam.Stats) bool {
	return s.Free+s.Cooling > 0 || a.member != nil && a.member.Blocks.CanGrow(s)
}

// occupiedOf says how many addresses of a pool nodes have; "" if they have none.
func occupiedOf(s ipam.Stats) string {
	if s.Occupied == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d more are skipped because a node has them)", s.Occupied)
}

func heldOf(stats []ipam.Stats) string {
	var texts []string
	for _, s := range stats {
		texts = append(texts, fmt.Sprintf("all %d addresses that this node has of pool %s (%s) are held", s.Used+s.Leased, s.Name, s.Prefix)+occupiedOf(s))
	}
	return strings.Join(texts, ", ")
}
