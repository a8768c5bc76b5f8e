// Package health stores the conditions of the agent's readiness. It publishes readiness over gRPC and as a file.
package health

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

// Required conditions: ADD and STATUS fail while one of them does not hold. The last three exist only after
// [Conditions.Require].
const (
	Started   = "started"
	Dataplane = "dataplane"
	Network   = "network"   // the host link, and the objects that all pods of a network need
	Addresses = "addresses" // the node has a block of the cluster's pools
	Gates     = "gates"     // the readiness gates are open
	Announced = "announced" // the other nodes know of this one
)

// Advisory conditions: the agent is ready without them.
const (
	Uplink        = "uplink"         // the link to other nodes works
	Quarantine    = "quarantine"     // no attachment is quarantined
	Sandboxes     = "sandboxes"      // no attachment without a network namespace
	Namespaces    = "namespaces"     // no network namespace of a pod has more objects than the agent reads
	State         = "state"          // the state file can be written; ADD and STATUS fail if not, DEL does not
	Announcements = "announcements"  // all parts of other nodes' announcements are granted
	TunnelPort    = "tunnel-port"    // no VXLAN device of the kernel takes packets of the tunnels, or loses its own
	NodeAddresses = "node-addresses" // no pod has an address of the node's links
	PathMTU       = "path-mtu"       // the paths to other nodes carry the longest tunnel packets
	Policies      = "policies"       // no NetworkPolicy is ignored
	Stats         = "stats"          // the dataplane's counters can be read
	APIServer     = "api-server"     // the API server answers the node's watches
)

// FirstResync is the message of Started until the first resync has ended.
const FirstResync = "the first resync has not ended"

// Conditions are the conditions of an agent. Its methods are safe for concurrent use.
type Conditions struct {
	Server *grpchealth.Server // service "" of grpc.health.v1
	Served func()             // called before readiness is published; may be nil

	file string // exists while ready; "": none
	log  *slog.Logger

	mu         sync.Mutex
	conditions []Condition
	ready      bool
	watchers   map[string][]func(ok bool)
}

// Condition is a condition of the agent.
type Condition struct {
	Name     string
	OK       bool
	Message  string // the reason if it does not hold, else a detail
	Advisory bool
}

// New returns the conditions of a starting agent. The file exists while the agent is ready; "": no file.
func New(file string, log *slog.Logger) *Conditions {
	c := &Conditions{Server: grpchealth.NewServer(), file: file, log: log, conditions: []Condition{
		{Name: Started, Message: FirstResync},
		{Name: Dataplane, Message: "not connected"},
		{Name: Network, OK: true},
	}}
	c.publish(false)
	return c
}

// Set changes one condition, and publishes readiness if it changes.
func (c *Conditions) Set(name string, ok bool, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ready := true
	changed := false
	for i := range c.conditions {
		condition := &c.conditions[i]
		if condition.Name == name {
			changed = condition.OK != ok
			condition.OK = ok
			condition.Message = message
		}
		ready = ready && (condition.OK || condition.Advisory)
	}
	if ready != c.ready {
		c.ready = ready
		c.publish(ready)
		if ready {
			c.log.Info("agent ready")
		} else {
			c.log.Warn("agent not ready", "condition", name, "reason", message)
		}
	}
	if changed {
		for _, notify := range c.watchers[name] {
			notify(ok)
		}
	}
}

// SetErr returns a function that sets a condition from an error: the condition holds if the error is nil.
func (c *Conditions) SetErr(name string) func(err error) {
	return func(err error) {
		if err == nil {
			c.Set(name, true, "")
			return
		}
		c.Set(name, false, err.Error())
	}
}

// Require adds a required condition that does not hold, with the reason.
func (c *Conditions) Require(name, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conditions = append(c.conditions, Condition{Name: name, Message: reason})
}

// Advise adds an advisory condition that holds.
func (c *Conditions) Advise(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conditions = append(c.conditions, Condition{Name: name, OK: true, Advisory: true})
}

// Watch calls notify whenever a condition changes. notify must not block.
func (c *Conditions) Watch(name string, notify func(ok bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watchers == nil {
		c.watchers = make(map[string][]func(bool))
	}
	c.watchers[name] = append(c.watchers[name], notify)
}

// Await waits until a condition holds.
func (c *Conditions) Await(ctx context.Context, name string) error {
	holds := make(chan struct{}, 1)
	c.Watch(name, func(ok bool) {
		if ok {
			select {
			case holds <- struct{}{}:
			default: // it has a token
			}
		}
	})
	if c.Holds(name) {
		return nil
	}
	select {
	case <-holds:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Snapshot returns a copy of the conditions.
func (c *Conditions) Snapshot() (ready bool, conditions []Condition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready, slices.Clone(c.conditions)
}

// find returns a condition; ok is false if it does not exist.
func (c *Conditions) find(name string) (found Condition, ok bool) {
	_, conditions := c.Snapshot()
	i := slices.IndexFunc(conditions, func(condition Condition) bool { return condition.Name == name })
	if i < 0 {
		return Condition{}, false
	}
	return conditions[i], true
}

// Holds reports whether a condition exists and holds.
func (c *Conditions) Holds(name string) bool {
	condition, _ := c.find(name)
	return condition.OK
}

// Failure returns the message of a condition that does not hold; "" if it holds or does not exist.
func (c *Conditions) Failure(name string) string {
	if condition, exists := c.find(name); exists && !condition.OK {
		return condition.Message
	}
	return ""
}

// Requires reports whether a required condition of that name exists.
func (c *Conditions) Requires(name string) bool {
	condition, exists := c.find(name)
	return exists && !condition.Advisory
}

// Missing returns an error with the required conditions that do not hold, nil if ADD can be served. The error has the
// CNI code for limited connectivity if the conditions Dataplane or Network of a started agent do not hold: running pods
// may be affected, too. A node without addresses has no pods yet.
func (c *Conditions) Missing() error {
	err := c.MissingBut("")
	hadAddresses := !c.Requires(Addresses) || c.Holds(Addresses)
	if err != nil && hadAddresses && c.Holds(Started) && (!c.Holds(Dataplane) || !c.Holds(Network)) {
		return pod.Errorf(pod.CodeLimited, "%w", err)
	}
	return err
}

// MissingBut is like Missing, but ignores one condition.
func (c *Conditions) MissingBut(name string) error {
	_, conditions := c.Snapshot()
	var reasons []string
	for _, condition := range conditions {
		if !condition.OK && !condition.Advisory && condition.Name != name {
			reasons = append(reasons, condition.Name+": "+condition.Message)
		}
	}
	if len(reasons) == 0 {
		return nil
	}
	return fmt.Errorf("weft-agent is not ready (%s)", strings.Join(reasons, "; "))
}

func (c *Conditions) publish(ready bool) {
	status := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if ready {
		status = grpc_health_v1.HealthCheckResponse_SERVING
		if c.Served != nil {
			c.Served()
		}
	}
	c.Server.SetServingStatus("", status)
	if err := c.writeFile(ready); err != nil {
		c.log.Warn("health file not written", "file", c.file, "err", err)
	}
}

func (c *Conditions) writeFile(ready bool) error {
	if c.file == "" {
		return nil
	}
	if ready {
		return renameio.WriteFile(c.file, []byte("ready\n"), 0o644)
	}
	if err := os.Remove(c.file); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}
