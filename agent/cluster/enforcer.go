package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/line"
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/k8s/events"
	"github.com/weftnet/weft/k8s/policies"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
)

// Enforcer applies changed rules of policies by events, and keeps the condition that says whether policies are
// enforced.
type Enforcer struct {
	Policies    *policies.Policies
	Loop        *eventloop.Loop
	Attachments func() []pod.Attachment
	Health      *health.Conditions
	Tell        func(events.Note) // writes an Event; nil: none
	Log         *slog.Logger

	over map[string]bool // policies and Services over a limit that were reported
}

// enforcerTick is the interval at which the condition is set, and at which a failed event is repeated.
const enforcerTick = 5 * time.Second

// Run applies changes until ctx ends. Changes that arrive during an event are one event.
func (e *Enforcer) Run(ctx context.Context) error {
	tick := time.NewTicker(enforcerTick)
	defer tick.Stop()
	isDue := false
	for {
		e.report()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case <-e.Policies.NotifyChanged():
			isDue = true
		}
		if isDue {
			isDue = e.apply(ctx) != nil
		}
	}
}

// apply applies changed rules by an event. If the loop refuses it, the changes remain for the next event. The scheduler
// repeats operations that failed.
func (e *Enforcer) apply(ctx context.Context) error {
	_, err := e.Loop.Do(ctx, &attach.ChangePolicies{})
	if err != nil && !errors.Is(err, context.Canceled) {
		e.Log.Error("rules of policies are not set completely, what failed is repeated", "err", err)
	}
	return err
}

// report sets the condition.
func (e *Enforcer) report() {
	attachments := e.Attachments()
	hasMain := slices.ContainsFunc(attachments, isMain)
	isChained := slices.ContainsFunc(attachments, func(a pod.Attachment) bool {
		return a.Mode == pod.ModeChained || a.Mode == pod.ModeDelegate
	})
	invalid := e.Policies.Invalid()
	withoutClients := e.Policies.WithoutClients()
	excess := e.Policies.Excess()
	failure := e.Policies.Failure()
	e.tell(excess, attachments)
	switch {
	case !e.Policies.Synced():
		e.Health.Set(health.Policies, false,
			"the API server has not shown all policies: the rules of an earlier run hold, and new pods are closed")
	case failure != nil:
		e.Health.Set(health.Policies, false,
			"policies cannot be watched, so changes may be unknown, and the last known rules hold: "+
				line.Of(failure.Error(), line.Cause))
	case len(invalid) > 0:
		first := line.Of(invalid[0], line.Cause)
		e.Health.Set(health.Policies, false,
			fmt.Sprintf("%d policies have invalid parts, which deny connections: %s", len(invalid), first))
	case len(excess) > 0:
		e.Health.Set(health.Policies, false,
			fmt.Sprintf("%d policies or Services are over a limit of rules: %s", len(excess), excess[0]))
	case !hasMain && isChained:
		e.Health.Set(health.Policies, true,
			"another CNI plugin makes the main interfaces: NetworkPolicies are its task; MultiNetworkPolicies are enforced")
	case len(withoutClients) > 0:
		e.Health.Set(health.Policies, false,
			"ingress policies see the node instead of pods that contact Services; choose other kubernetes.serviceClientRanges: "+
				strings.Join(withoutClients, "; "))
	default:
		e.Health.Set(health.Policies, true, "enforced")
	}
}

// reasonOverLimit is the reason of events on pods to which a policy is not applied completely.
const reasonOverLimit = "WeftPolicyOverLimit"

// maxTold is the number of policies and Services over a limit that get an Event and a line of the log at a time.
const maxTold = 20

// tell writes an Event on a pod for each policy and Service that has come over a limit.
func (e *Enforcer) tell(excess []policy.Excess, attachments []pod.Attachment) {
	over := make(map[string]bool, len(excess))
	told := 0
	for _, x := range excess {
		if e.over[x.Of] {
			over[x.Of] = true
			continue
		}
		if told == maxTold {
			continue // the next report tells
		}
		told++
		over[x.Of] = true
		e.Log.Warn("policy or Service is over a limit of rules and not applied completely", "of", x.Of,
			"pod", x.Pod.String(), "size", x.Size, "limit", x.Limit)
		at := slices.IndexFunc(attachments, func(a pod.Attachment) bool {
			return a.Pod.Namespace == x.Pod.Namespace && a.Pod.Name == x.Pod.Name
		})
		if at >= 0 && e.Tell != nil {
			e.Tell(events.Note{
				Pod:    attachments[at].Pod,
				Type:   events.Warning,
				Reason: reasonOverLimit,
				At:     time.Now(),
				Text:   x.String,
			})
		}
	}
	e.over = over
}

// protectedOf returns what pods may not contact.
func protectedOf(c config.Config) policies.Protected {
	if !c.Kubernetes.ProtectNodes {
		return policies.Protected{}
	}
	protected := policies.Protected{Metadata: true}
	host, port, err := net.SplitHostPort(c.HTTP.Listen)
	if err != nil {
		return protected // HTTP is off
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsLoopback() {
		return protected
	}
	if n, err := strconv.ParseUint(port, 10, 16); err == nil && n > 0 {
		protected.Ports = []uint16{uint16(n)}
	}
	return protected
}
