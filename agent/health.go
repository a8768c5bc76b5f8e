package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/google/renameio/v2"
	grpchealth "google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weftnet/weft/pod"
)

// The conditions that must hold for ADD to be served.
const (
	conditionStarted   = "started"
	conditionDataplane = "dataplane"
	conditionNetwork   = "network"   // the host link, and what all pods of a network need
	conditionAddresses = "addresses" // only where they are of the cluster's pools
	conditionGates     = "gates"     // only where there are readiness gates
	conditionAnnounced = "announced" // only on a node that others did not know of
)

// conditionUplink is one without which pods are served, though what leads to other nodes is at fault.
const conditionUplink = "uplink"

// conditionQuarantine is one without which pods are served: some are withheld from the dataplane.
const conditionQuarantine = "quarantine"

// conditionSandboxes is advisory: attachments without network namespaces are kept (see [vanished]).
const conditionSandboxes = "sandboxes"

// conditionState is one without which DELs are served: the state file can be written. ADD and STATUS fail with the reason if it cannot.
const conditionState = "state"

// conditionAnnouncements is one without which pods are served: parts of other nodes' announcements are not used.
const conditionAnnouncements = "announcements"

// conditionPolicies is advisory: the cluster has NetworkPolicies, and pods' main interfaces are Weft's, which enforces none.
const conditionPolicies = "policies"

// conditionStats is one without which pods are served, though without their counters.
const conditionStats = "stats"

// firstResync is what an agent that has been assembled waits for.
const firstResync = "starting: the first resync has not ended"

// health keeps what the agent says of itself: by gRPC, by a file, and to weftctl status.
type health struct {
	Server *grpchealth.Server // service "" of grpc.health.v1
	file   string             // exists while ready; "" = none
	log    *slog.Logger
	served func() // is called when readiness begins, before anybody sees it; nil: nobody wants to know

	mu         sync.Mutex
	conditions []condition
	ready      bool
	watchers   map[string][]func(ok bool)
}

type condition struct {
	name     string
	ok       bool
	message  string // why not, or what is there
	advisory bool   // without it ADD is served, and the operator told
}

func newHealth(file string, log *slog.Logger) *health {
	h := &health{Server: grpchealth.NewServer(), file: file, log: log, conditions: []condition{
		{name: conditionStarted, message: firstResync},
		{name: conditionDataplane, message: "not connected"},
		{name: conditionNetwork, ok: true},
	}}
	h.publish(false)
	return h
}

// set changes one condition and tells the world if readiness changed with it.
func (h *health) set(name string, ok bool, message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ready, changed := true, false
	for i := range h.conditions {
		c := &h.conditions[i]
		if c.name == name {
			changed = c.ok != ok
			c.ok, c.message = ok, message
		}
		ready = ready && (c.ok || c.advisory)
	}
	if ready != h.ready {
		h.ready = ready
		h.publish(ready)
		if ready {
			h.log.Info("agent ready")
		} else {
			h.log.Warn("agent not ready", "condition", name, "reason", message)
		}
	}
	if changed {
		for _, tell := range h.watchers[name] {
			tell(ok)
		}
	}
}

// require adds a condition without which ADD is not served; why says so until it is set.
func (h *health) require(name, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conditions = append(h.conditions, condition{name: name, message: why})
}

// advise adds a condition without which ADD is served, and the operator told.
func (h *health) advise(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conditions = append(h.conditions, condition{name: name, ok: true, advisory: true})
}

// watch has tell called whenever a condition begins or ceases to hold. It must not wait.
func (h *health) watch(name string, tell func(ok bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watchers == nil {
		h.watchers = make(map[string][]func(bool))
	}
	h.watchers[name] = append(h.watchers[name], tell)
}

// await returns when a condition holds.
func (h *health) await(ctx context.Context, name string) error {
	held := make(chan struct{}, 1)
	h.watch(name, func(ok bool) {
		if ok {
			select {
			case held <- struct{}{}:
			default: // it is known already
			}
		}
	})
	if h.holds(name) {
		return nil
	}
	select {
	case <-held:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// snapshot copies the conditions.
func (h *health) snapshot() (ready bool, conditions []condition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ready, append(conditions, h.conditions...)
}

// holds reports whether one condition holds.
func (h *health) holds(name string) bool {
	_, conditions := h.snapshot()
	return slices.ContainsFunc(conditions, func(c condition) bool { return c.name == name && c.ok })
}

// failure is the message of a condition that does not hold; "" if it holds.
func (h *health) failure(name string) string {
	_, conditions := h.snapshot()
	for _, c := range conditions {
		if c.name == name && !c.ok {
			return c.message
		}
	}
	return ""
}

// requires reports whether there is a condition of that name.
func (h *health) requires(name string) bool {
	_, conditions := h.snapshot()
	return slices.ContainsFunc(conditions, func(c condition) bool { return c.name == name && !c.advisory })
}

// missing says in one line why ADD cannot be served; nil if it can. It has the code of limited connectivity if an agent that has
// started lacks the dataplane, or what all pods of a network need: then pods that run may lack it too. A node that has no
// addresses yet has no pods.
func (h *health) missing() error {
	err := h.missingBut("")
	hadAddresses := !h.requires(conditionAddresses) || h.holds(conditionAddresses)
	if err != nil && hadAddresses && h.holds(conditionStarted) && (!h.holds(conditionDataplane) || !h.holds(conditionNetwork)) {
		return pod.Errorf(pod.CodeLimited, "%w", err)
	}
	return err
}

// missingBut says why ADD could not be served if one condition held; nil if it could.
func (h *health) missingBut(name string) error {
	_, conditions := h.snapshot()
	var reasons []string
	for _, c := range conditions {
		if !c.ok && !c.advisory && c.name != name {
			reasons = append(reasons, c.name+": "+c.message)
		}
	}
	if len(reasons) == 0 {
		return nil
	}
	return fmt.Errorf("weft-agent is not ready (%s)", strings.Join(reasons, "; "))
}

func (h *health) publish(ready bool) {
	status := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if ready {
		status = grpc_health_v1.HealthCheckResponse_SERVING
		if h.served != nil {
			h.served()
		}
	}
	h.Server.SetServingStatus("", status)
	if err := h.mark(ready); err != nil {
		h.log.Warn("health file not written", "file", h.file, "err", err)
	}
}

func (h *health) mark(ready bool) error {
	if h.file == "" {
		return nil
	}
	if ready {
		return renameio.WriteFile(h.file, []byte("ready\n"), 0o644)
	}
	if err := os.Remove(h.file); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}
