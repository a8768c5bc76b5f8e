package agent

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// watchShared keeps the condition network: an object that all pods need must not be missing on a node that is ready.
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

// exhausted says which pools of one family have no address for another pod, where that is to make the node unavailable. An
// address that cools down will be free soon.
func (a *Agent) exhausted() string {
	if !a.config.ExhaustedIsUnavailable {
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
	if s.Free+s.Cooling > 0 {
		return true
	}
	return s.Blocks && !slices.ContainsFunc(a.claimedFrom(), func(p blocks.Pool) bool {
		return nameOfPool(p) == s.Name && p.Prefix == s.Prefix && a.keeper.Exhausted(p)
	})
}

func heldOf(stats []ipam.Stats) string {
	var texts []string
	for _, s := range stats {
		texts = append(texts, fmt.Sprintf("all %d addresses that this node has of pool %s (%s) are held", s.Used+s.Leased, s.Name, s.Prefix))
	}
	return strings.Join(texts, ", ")
}

// policiesPoll is the time between two counts of the cluster's NetworkPolicies. A count is one small request of each node.
const policiesPoll = 10 * time.Minute

// mainInterface is how container runtimes name the interface that NetworkPolicies are about.
const mainInterface = "eth0"

// policies keeps the condition that no NetworkPolicy is left unenforced. Weft enforces none, which matters where Weft makes pods' main
// interface: another CNI may enforce them on its own.
type policies struct {
	count       func(ctx context.Context) (int, error) // asks the API server
	attachments func() []pod.Attachment
	health      *health.Conditions
	log         *slog.Logger
}

// run polls until ctx ends.
func (p *policies) run(ctx context.Context) error {
	for {
		p.poll(ctx)
		// Agents that start at the same time spread their requests.
		timer := time.NewTimer(policiesPoll + rand.N(policiesPoll/10))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// poll sets the condition. While the API server does not answer, the condition stays.
func (p *policies) poll(ctx context.Context) {
	if !slices.ContainsFunc(p.attachments(), isMain) {
		p.health.Set(health.Policies, true, "")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, oneQuestion)
	defer cancel()
	n, err := p.count(ctx)
	if err != nil {
		p.log.Debug("network policies not counted", "err", err)
		return
	}
	message := ""
	if n > 0 {
		message = fmt.Sprintf("network policies: %d are not enforced (Weft enforces none); kubernetes.reportNetworkPolicies: false where another component does", n)
	}
	p.health.Set(health.Policies, n == 0, message)
}

// isMain reports whether Weft made the main interface of a pod.
func isMain(a pod.Attachment) bool {
	return !a.Pod.IsZero() && (a.Mode == "" || a.Mode == pod.ModePrimary) && a.Key.IfName == mainInterface
}
