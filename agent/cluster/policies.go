package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/pod"
)

// policiesPoll is the interval of counts of the cluster's NetworkPolicies. A count is one small request of each node.
const policiesPoll = 10 * time.Minute

// mainInterface is how container runtimes name the interface that NetworkPolicies are about.
const mainInterface = "eth0"

// UnenforcedPolicies sets the condition that no NetworkPolicy is left unenforced, for agents that enforce none. The
// condition matters only if Weft makes the main interfaces of pods: otherwise another CNI plugin may enforce them.
type UnenforcedPolicies struct {
	Count       func(ctx context.Context) (int, error) // asks the API server
	Attachments func() []pod.Attachment
	Health      *health.Conditions
	Log         *slog.Logger
}

// Run polls until ctx ends.
func (p *UnenforcedPolicies) Run(ctx context.Context) error {
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
func (p *UnenforcedPolicies) poll(ctx context.Context) {
	if !slices.ContainsFunc(p.Attachments(), isMain) {
		p.Health.Set(health.Policies, true, "")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, oneQuestion)
	defer cancel()
	n, err := p.Count(ctx)
	if err != nil {
		p.Log.Debug("network policies not counted", "err", err)
		return
	}
	message := ""
	if n > 0 {
		message = fmt.Sprintf(
			"network policies: %d are not enforced; set kubernetes.enforcePolicies: true, or kubernetes.reportNetworkPolicies: false where another component enforces them",
			n)
	}
	p.Health.Set(health.Policies, n == 0, message)
}

// isMain reports whether Weft made the main interface of a pod.
func isMain(a pod.Attachment) bool {
	return !a.Pod.IsZero() && pod.HasMain(a.Mode) && a.Key.IfName == mainInterface
}
