package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/devicemanager"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/version"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// operations answers operators from snapshots: none of its answers waits for the dataplane, but Resync's and
// Counters'.
type operations struct {
	weftv1.UnimplementedOperationsServer

	loop      *eventloop.Loop
	scheduler *kvscheduler.Scheduler
	pods      *podmanager.Manager
	network   *ipnet.Network
	devices   *devicemanager.Manager // nil: the node has none
	health    *health.Conditions
	replayer  *replayer
	vanished  *vanished
	dataplane *vpp.Client
	counters  *counters
	settings  func() config.Config
	external  *externalFiles
	paused    func() (reason string, paused bool)
	started   time.Time
	stopping  <-chan struct{} // closed when the agent stops
}

// State says how the agent and the dataplane are.
func (o *operations) State(context.Context, *weftv1.StateRequest) (*weftv1.StateReply, error) {
	ready, conditions := o.health.Snapshot()
	stats := o.loop.Stats()
	reply := &weftv1.StateReply{
		Version: version.String(), Started: stamp(o.started), Ready: ready,
		Attachments: uint32(len(o.pods.Attachments())), Events: stats.Handled, Queue: uint32(stats.Queue),
		Running: stats.Running, Dataplane: o.dataplane.Version(), Objects: o.phases(),
	}
	down := o.dataplane.Health()
	if down != nil && reply.Dataplane != "" {
		reply.Dataplane += " (not connected)"
	}
	for _, c := range conditions {
		reply.Conditions = append(reply.Conditions, &weftv1.Condition{Name: c.Name, Ok: c.OK, Message: c.Message})
	}
	reason, paused := o.paused()
	if paused {
		reply.Ready = false
	}
	reply.Conditions = append(reply.Conditions, &weftv1.Condition{Name: "new-pods", Ok: !paused, Message: reason},
		o.external.condition(stats.Drops), repaired(stats.Degraded, reply.Objects, down))
	return reply, nil
}

// repaired reports whether the machine is as desired; pods are served while it is not. down is why the dataplane is not connected.
func repaired(degraded []string, objects map[string]uint32, down error) *weftv1.Condition {
	c := &weftv1.Condition{Name: "repaired", Ok: true}
	if down != nil {
		c.Ok, c.Message = false, fmt.Sprintf("%d %s: the dataplane is not connected", objects[phaseUnknown], phaseUnknown)
		return c
	}
	if len(degraded) > 0 {
		c.Ok, c.Message = false, "could not be undone or applied: "+strings.Join(degraded, ", ")
		return c
	}
	var faults []string
	for _, phase := range []kvscheduler.Phase{kvscheduler.Failed, kvscheduler.Pending, kvscheduler.Drifted, kvscheduler.Removing, kvscheduler.Invalid} {
		if n := objects[phase.String()]; n > 0 {
			faults = append(faults, fmt.Sprintf("%d %s", n, phase))
		}
	}
	if len(faults) > 0 {
		c.Ok, c.Message = false, "objects not as desired: "+strings.Join(faults, ", ")+"; weftctl objects lists them"
	}
	return c
}

// Attachments lists the wired pods.
func (o *operations) Attachments(context.Context, *weftv1.AttachmentsRequest) (*weftv1.AttachmentsReply, error) {
	reply := &weftv1.AttachmentsReply{}
	for _, a := range o.pods.Attachments() {
		reply.Attachments = append(reply.Attachments, attachmentInfo(a))
	}
	return reply, nil
}

func attachmentInfo(a pod.Attachment) *weftv1.AttachmentInfo {
	info := &weftv1.AttachmentInfo{
		Attachment: &weftv1.Attachment{Network: a.Key.Network, ContainerId: a.Key.ContainerID, IfName: a.Key.IfName},
		Pod:        &weftv1.Pod{Namespace: a.Pod.Namespace, Name: a.Pod.Name, Uid: a.Pod.UID},
		Netns:      a.Netns.Path,
		Created:    timestamppb.New(a.Created),

		AnnotationsFrom: a.AnnotationsFrom,
	}
	for _, i := range a.Interfaces {
		row := &weftv1.InterfaceInfo{Name: i.Name, Type: i.Type, Network: i.Network, Object: i.Object, Mac: i.MAC, Mtu: uint32(i.MTU)}
		for _, p := range i.Addresses {
			row.Addresses = append(row.Addresses, p.String())
		}
		info.Interfaces = append(info.Interfaces, row)
	}
	return info
}

// Addresses lists the pools, and the addresses that are not free.
func (o *operations) Addresses(context.Context, *weftv1.AddressesRequest) (*weftv1.AddressesReply, error) {
	pools, leases := o.network.Addresses()
	reply := &weftv1.AddressesReply{}
	for _, p := range pools {
		reply.Pools = append(reply.Pools, &weftv1.Pool{
			Name: p.Name, Prefix: p.Prefix.String(),
			Free: p.Free, Leased: p.Leased, Used: p.Used, Cooling: p.Cooling,
		})
	}
	for _, l := range leases {
		reply.Leases = append(reply.Leases, &weftv1.Lease{
			Pool: l.Pool, Address: l.Address.String(), State: string(l.State), Holder: l.Holder,
			Since: stamp(l.Since), FreeAt: stamp(l.FreeAt),
		})
	}
	return reply, nil
}

// Settings gives the configuration in force.
func (o *operations) Settings(context.Context, *weftv1.SettingsRequest) (*weftv1.SettingsReply, error) {
	return &weftv1.SettingsReply{Yaml: o.settings().String()}, nil
}

// Resync asks for a resync and waits for it.
func (o *operations) Resync(ctx context.Context, req *weftv1.ResyncRequest) (*weftv1.ResyncReply, error) {
	kinds := map[string]eventloop.Resync{
		"": eventloop.Full, "full": eventloop.Full, "upstream": eventloop.Upstream, "downstream": eventloop.Downstream,
	}
	kind, ok := kinds[req.Kind]
	if !ok {
		return &weftv1.ResyncReply{Error: "resync is full, upstream or downstream, not " + req.Kind}, nil
	}
	if !o.health.Holds(health.Started) {
		return &weftv1.ResyncReply{Error: "the agent is starting: its first resync has not ended; weftctl status says why"}, nil
	}
	reason := req.Reason
	if reason == "" {
		reason = "asked for by an operator"
	}
	if req.DryRun {
		return o.dryResync(ctx, req.Force)
	}
	rec, err := o.loop.Do(ctx, eventloop.Resynchronize{Kind: kind, Reason: reason, Scope: eventloop.Scope{Force: req.Force}})
	reply := &weftv1.ResyncReply{}
	if rec != nil {
		reply.Event = rec.Seq
	}
	if err != nil {
		reply.Error = err.Error()
	}
	return reply, nil
}

// dryResync reports what a downstream resync would do.
func (o *operations) dryResync(ctx context.Context, force bool) (*weftv1.ResyncReply, error) {
	rec, err := o.scheduler.Resync(ctx, kvscheduler.ResyncOpt{DryRun: true, Force: force})
	reply := &weftv1.ResyncReply{}
	if rec != nil {
		for _, op := range rec.Ops {
			reply.Operations = append(reply.Operations, op.Verb+" "+op.Ref+" ("+op.Why+")")
		}
		for _, w := range rec.Pending {
			if missing := strings.Join(w.Missing, ", "); strings.HasPrefix(missing, "prune: ") {
				reply.Operations = append(reply.Operations, "keep "+w.Ref+" ("+missing+")")
			}
		}
	}
	if err != nil {
		reply.Error = err.Error()
	}
	return reply, nil
}

// Configure replaces the values of an external source.
func (o *operations) Configure(ctx context.Context, req *weftv1.ConfigureRequest) (*weftv1.ConfigureReply, error) {
	if req.Source == "" {
		return &weftv1.ConfigureReply{Error: "a source needs a name"}, nil
	}
	values, err := parseExternal(req.Document)
	if err != nil {
		return &weftv1.ConfigureReply{Error: err.Error()}, nil //nolint:nilerr // it is the caller's to see, not the call's
	}
	rec, err := o.loop.SetExternal(ctx, req.Source, values)
	reply := &weftv1.ConfigureReply{}
	if rec != nil {
		reply.Event, reply.Dropped = rec.Seq, droppedOf(rec, req.Source)
		o.addUnsettled(reply, values)
	}
	if err != nil {
		reply.Error = err.Error()
	}
	return reply, nil
}

// addUnsettled adds the values that wait or failed to a reply.
func (o *operations) addUnsettled(reply *weftv1.ConfigureReply, values map[string][]byte) {
	view := o.scheduler.View()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		ref, err := kvscheduler.ParseRef(key)
		if err != nil {
			continue // it was dropped
		}
		switch status, _ := view.Status(ref); {
		case status.Err != nil:
			reply.Failed = append(reply.Failed, key+": "+status.Err.Error())
		case status.Phase == kvscheduler.Pending:
			reply.Waiting = append(reply.Waiting, key+" waits for "+strings.Join(status.Missing, ", "))
		}
	}
}

// droppedOf are the source's own values that the event left out: what others said of the same keys is not its fault.
func droppedOf(rec *eventloop.Record, source string) []string {
	var dropped []string
	for _, d := range rec.Drops {
		if d.Source == source {
			dropped = append(dropped, d.Key+": "+d.Reason)
		}
	}
	return dropped
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func took(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

// document is the whole record as JSON, for -o json and for people who look closer.
func document(record any) []byte {
	raw, err := json.Marshal(record)
	if err != nil {
		raw, _ = json.Marshal(map[string]string{"error": err.Error()})
	}
	return raw
}
