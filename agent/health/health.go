// Package health holds the conditions on which the agent's readiness depends. They are served by gRPC, as a file, and to weftctl status.
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

// Required conditions: ADD and STATUS fail while one of them does not hold. The last three exist only where [Conditions.Require] is called.
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
	Uplink        = "uplink"        // the link to other nodes has no fault
	Quarantine    = "quarantine"    // no attachment is withheld from the dataplane
	Sandboxes     = "sandboxes"     // no attachment without a network namespace is kept
	State         = "state"         // the state file can be written; ADD and STATUS fail if not, DEL does not
	Announcements = "announcements" // all parts of other nodes' announcements are granted
	Policies      = "policies"      // no NetworkPolicy is left unenforced
	Stats         = "stats"         // the dataplane's counters can be read
)

// FirstResync is the message of Started until the first resync has ended.
const FirstResync = "starting: the first resync has not ended"

// Conditions keeps the conditions. It is safe for concurrent use.
type Conditions struct {
	Server *grpchealth.Server // service "" of grpc.health.v1
	Served func()             // called when readiness begins, before it is published; may be nil

	file string // exists while ready; "": none
	log  *slog.Logger

	mu         sync.Mutex
	conditions []Condition
	ready      bool
	watchers   map[string][]func(ok bool)
}

// Condition is one fact about the agent.
type Condition struct {
	Name     string
	OK       bool
	Message  string // the reason if it does not hold, else a detail
	Advisory bool
}

// New returns the conditions of an agent that starts. The file exists while the agent is ready; "": no file.
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
	ready, changed := true, false
	for i := range c.conditions {
		one := &c.conditions[i]
		if one.Name == name {
			changed = one.OK != ok
			one.OK, one.Message = ok, message
		}
		ready = ready && (one.OK || one.Advisory)
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

// SetErr returns a function that sets a condition: it holds if the error is nil, whose text is the message otherwise.
func (c *Conditions) SetErr(name string) func(err error) {
	return func(err error) {
		if err == nil {
			c.Set(name, true, "")
			return
		}
		c.Set(name, false, err.Error())
	}
}

// Require adds a required condition that does not hold yet, with the reason.
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

// Watch has notify called whenever a condition begins or ceases to hold. It must not block.
func (c *Conditions) Watch(name string, notify func(ok bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watchers == nil {
		c.watchers = make(map[string][]func(bool))
	}
	c.watchers[name] = append(c.watchers[name], notify)
}

// Await returns when a condition holds.
func (c *Conditions) Await(ctx context.Context, name string) error {
	held := make(chan struct{}, 1)
	c.Watch(name, func(ok bool) {
		if ok {
			select {
			case held <- struct{}{}:
			default: // it has a token already
			}
		}
	})
	if c.Holds(name) {
		return nil
	}
	select {
	case <-held:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Snapshot copies the conditions.
func (c *Conditions) Snapshot() (ready bool, conditions []Condition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready, slices.Clone(c.conditions)
}

// find returns a condition; ok is false if it does not exist.
func (c *Conditions) find(name string) (found Condition, ok bool) {
	_, conditions := c.Snapshot()
	i := slices.IndexFunc(conditions, func(one Condition) bool { return one.Name == name })
	if i < 0 {
		return Condition{}, false
	}
	return conditions[i], true
}

// Holds reports whether a condition exists and holds.
func (c *Conditions) Holds(name string) bool {
	one, _ := c.find(name)
	return one.OK
}

// Failure returns the message of a condition that does not hold; "" if it holds or does not exist.
func (c *Conditions) Failure(name string) string {
	if one, exists := c.find(name); exists && !one.OK {
		return one.Message
	}
	return ""
}

// Requires reports whether there is a required condition of that name.
func (c *Conditions) Requires(name string) bool {
	one, exists := c.find(name)
	return exists && !one.Advisory
}

// Missing returns the reasons why ADD cannot be served; nil if it can. The error has the code of limited connectivity if an agent that has
// started lacks the dataplane, or objects that all pods of a network need: running pods may lack them, too. A node without addresses has
// no pods yet.
func (c *Conditions) Missing() error {
	err := c.MissingBut("")
	hadAddresses := !c.Requires(Addresses) || c.Holds(Addresses)
	if err != nil && hadAddresses && c.Holds(Started) && (!c.Holds(Dataplane) || !c.Holds(Network)) {
		return pod.Errorf(pod.CodeLimited, "%w", err)
	}
	return err
}

// MissingBut is Missing without one condition.
func (c *Conditions) MissingBut(name string) error {
	_, conditions := c.Snapshot()
	var reasons []string
	for _, one := range conditions {
		if !one.OK && !one.Advisory && one.Name != name {
			reasons = append(reasons, one.Name+": "+one.Message)
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
	if err := c.mark(ready); err != nil {
		c.log.Warn("health file not written", "file", c.file, "err", err)
	}
}

func (c *Conditions) mark(ready bool) error {
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
