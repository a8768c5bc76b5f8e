package operations

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/agent/external"
	"github.com/weftnet/weft/agent/owners"
	"github.com/weftnet/weft/agent/shown"
	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/devicemanager"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/version"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/podmanager"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// process is the agent itself: its state, its configuration and the level of its log.
type process struct {
	config    Process
	started   time.Time
	loop      *eventloop.Loop
	pods      *podmanager.Manager
	devices   *devicemanager.Manager // nil: no device plugin
	external  *external.Files
	dataplane *vpp.Client
	objects   *objects
	owners    *owners.Index
}

// State returns the state of the agent and the dataplane.
func (p *process) State(context.Context, *operatorv1.StateRequest) (*operatorv1.StateReply, error) {
	ready, conditions := p.config.Health.Snapshot()
	stats := p.loop.Stats()
	reply := &operatorv1.StateReply{
		Version: version.String(), Started: stamp(p.started), Ready: ready,
		Attachments: uint32(len(p.pods.Attachments())), Events: stats.Handled, Queue: uint32(stats.Queue),
		Running: stats.Running, Dataplane: p.dataplane.Version(), Objects: p.objects.phases(), Node: p.nodeName(),
	}
	down := p.dataplane.Health()
	if down != nil && reply.Dataplane != "" {
		reply.Dataplane += " (not connected)"
	}
	for _, c := range conditions {
		reply.Conditions = append(reply.Conditions, &operatorv1.Condition{Name: c.Name, Ok: c.OK, Message: c.Message})
	}
	reason, paused := p.config.Paused()
	if paused {
		reply.Ready = false
	}
	reply.Conditions = append(reply.Conditions, &operatorv1.Condition{Name: "new-pods", Ok: !paused, Message: reason},
		p.external.Condition(stats.Drops), repaired(p.namedKeys(stats.Degraded), reply.Objects, down))
	if p.devices != nil {
		reply.Conditions = append(reply.Conditions, registration(p.devices.Stats()))
	}
	return reply, nil
}

// nodeName returns the node's name in the cluster, or else the host name.
func (p *process) nodeName() string {
	if name := p.config.Settings().Kubernetes.Node; name != "" {
		return name
	}
	name, _ := os.Hostname() // without it the node has no name
	return name
}

// registration returns the advisory condition that kubelet has the devices, with kubelet's words if it refuses them.
func registration(s devicemanager.Stats) *operatorv1.Condition {
	c := &operatorv1.Condition{Name: "kubelet", Ok: s.Registered, Message: s.NotRegistered}
	if !c.Ok && c.Message == "" {
		c.Message = "memif devices are not registered yet"
	}
	return c
}

// repaired returns the advisory condition that all objects are as desired. down is the reason why the dataplane is not
// connected.
func repaired(degraded []string, objects map[string]uint32, down error) *operatorv1.Condition {
	c := &operatorv1.Condition{Name: "repaired", Ok: true}
	if down != nil {
		c.Ok = false
		c.Message = fmt.Sprintf("%d %s: the dataplane is not connected", objects[shown.PhaseUnknown], shown.PhaseUnknown)
		return c
	}
	if len(degraded) > 0 {
		c.Ok = false
		c.Message = "could not be undone or applied: " + strings.Join(degraded, ", ")
		return c
	}
	var parts []string
	for _, phase := range []kvscheduler.Phase{
		kvscheduler.Failed, kvscheduler.Pending, kvscheduler.Drifted, kvscheduler.Removing, kvscheduler.Invalid,
	} {
		if n := objects[phase.String()]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, phase))
		}
	}
	if len(parts) > 0 {
		c.Ok = false
		c.Message = "objects not as desired: " + strings.Join(parts, ", ") + "; weftctl objects lists them"
	}
	return c
}

// namedKeys adds their owners to keys. It computes no owners for none.
func (p *process) namedKeys(keys []string) []string {
	if len(keys) == 0 {
		return nil
	}
	of := p.owners.Now()
	names := make([]string, 0, len(keys))
	for _, key := range keys {
		names = append(names, of.Of(key).Named(key))
	}
	return names
}

// Settings returns the effective configuration.
func (p *process) Settings(context.Context, *operatorv1.SettingsRequest) (*operatorv1.SettingsReply, error) {
	return &operatorv1.SettingsReply{Yaml: p.config.Settings().String()}, nil
}

// LogLevel returns the level of the agent's log, after a change if the request has a level.
func (p *process) LogLevel(_ context.Context, req *operatorv1.LogLevelRequest) (*operatorv1.LogLevelReply, error) {
	l := p.config.LogLevel
	if req.Level != "" {
		var level slog.Level
		if err := level.UnmarshalText([]byte(req.Level)); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "invalid log level %q: must be debug, info, warn or error",
				req.Level)
		}
		if req.For.AsDuration() < 0 {
			return nil, status.Error(codes.InvalidArgument, "the duration is negative")
		}
		l.Change(level, req.For.AsDuration())
	}
	return &operatorv1.LogLevelReply{
		Level:      levelName(l.Level()),
		Configured: levelName(l.configured),
		Until:      stamp(l.Until()),
	}, nil
}
