// Package operations implements the gRPC service Operations for weftctl, and the calls of weft-agent's commands to a
// running agent.
package operations

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/drift"
	"github.com/weftnet/weft/agent/external"
	"github.com/weftnet/weft/agent/garbage"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/owners"
	"github.com/weftnet/weft/agent/recovery"
	"github.com/weftnet/weft/agent/southbound"
	"github.com/weftnet/weft/dataplane/splice"
	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/devicemanager"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/version"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
	"github.com/weftnet/weft/wire"
)

// Config has the components that a Server reads and controls.
type Config struct {
	Loop       *eventloop.Loop
	Scheduler  *kvscheduler.Scheduler
	Pods       *podmanager.Manager
	Network    *ipnet.Network
	Devices    *devicemanager.Manager // nil: no device plugin
	Health     *health.Conditions
	Replayer   *recovery.Replayer
	Quarantine *recovery.Quarantine
	Garbage    *garbage.Collector
	Dataplane  *vpp.Client
	Counters   *southbound.Counters
	External   *external.Files
	Drift      *drift.Monitor
	Unread     *drift.Unread
	Owners     *owners.Index
	LogLevel   *LogLevel
	Splices    *splice.Splices
	Policies   Explainer                           // nil: policies are not enforced
	Settings   func() config.Config                // the effective configuration
	Paused     func() (reason string, paused bool) // whether ADDs are paused
	Stopping   <-chan struct{}                     // closed when the agent stops
}

// Server implements Operations. Only Resync, Audit, Configure, Release, CollectGarbage and Counters wait for the
// dataplane; the other methods return snapshots.
type Server struct {
	operatorv1.UnimplementedOperationsServer

	config  Config
	started time.Time
}

// New returns a server for operatorv1.RegisterOperationsServer.
func New(c Config) *Server {
	return &Server{config: c, started: time.Now()}
}

// State returns the state of the agent and the dataplane.
func (o *Server) State(context.Context, *operatorv1.StateRequest) (*operatorv1.StateReply, error) {
	ready, conditions := o.config.Health.Snapshot()
	stats := o.config.Loop.Stats()
	reply := &operatorv1.StateReply{
		Version: version.String(), Started: stamp(o.started), Ready: ready,
		Attachments: uint32(len(o.config.Pods.Attachments())), Events: stats.Handled, Queue: uint32(stats.Queue),
		Running: stats.Running, Dataplane: o.config.Dataplane.Version(), Objects: o.phases(), Node: o.nodeName(),
	}
	down := o.config.Dataplane.Health()
	if down != nil && reply.Dataplane != "" {
		reply.Dataplane += " (not connected)"
	}
	for _, c := range conditions {
		reply.Conditions = append(reply.Conditions, &operatorv1.Condition{Name: c.Name, Ok: c.OK, Message: c.Message})
	}
	reason, paused := o.config.Paused()
	if paused {
		reply.Ready = false
	}
	reply.Conditions = append(reply.Conditions, &operatorv1.Condition{Name: "new-pods", Ok: !paused, Message: reason},
		o.config.External.Condition(stats.Drops), repaired(o.namedKeys(stats.Degraded), reply.Objects, down))
	if o.config.Devices != nil {
		reply.Conditions = append(reply.Conditions, registration(o.config.Devices.Stats()))
	}
	return reply, nil
}

// nodeName returns the node's name in the cluster, or else the host name.
func (o *Server) nodeName() string {
	if name := o.config.Settings().Kubernetes.Node; name != "" {
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
		c.Message = fmt.Sprintf("%d %s: the dataplane is not connected", objects[phaseUnknown], phaseUnknown)
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

// Attachments lists the attachments, of one pod or of all.
func (o *Server) Attachments(
	_ context.Context, req *operatorv1.AttachmentsRequest,
) (*operatorv1.AttachmentsReply, error) {
	reply := &operatorv1.AttachmentsReply{}
	for _, a := range o.config.Pods.Attachments() {
		if req.Pod != "" && a.Pod.String() != req.Pod {
			continue
		}
		info := attachmentInfo(a)
		info.NotChecked = o.config.Unread.ReasonOf(&a)
		for at, i := range a.Interfaces {
			info.Interfaces[at].Peer = o.peerOf(&a, i)
			info.Interfaces[at].Moving = o.config.Network.Pods.MovingOf(a.Pod, i).Texts()
		}
		reply.Attachments = append(reply.Attachments, info)
	}
	return reply, nil
}

func attachmentOf(k pod.Key) *weftv1.Attachment {
	return &weftv1.Attachment{Network: k.Network, ContainerId: k.ContainerID, IfName: k.IfName}
}

func podOf(p pod.ID) *weftv1.Pod {
	return &weftv1.Pod{Namespace: p.Namespace, Name: p.Name, Uid: p.UID}
}

func attachmentInfo(a pod.Attachment) *operatorv1.AttachmentInfo {
	info := &operatorv1.AttachmentInfo{
		Attachment:      attachmentOf(a.Key),
		Pod:             podOf(a.Pod),
		Netns:           a.Netns.Path,
		Created:         timestamppb.New(a.Created),
		AnnotationsFrom: a.AnnotationsFrom,
		Annotations:     pod.ShownAnnotations(a.Annotations),
	}
	for _, i := range a.Interfaces {
		row := &operatorv1.InterfaceInfo{
			Name:    i.Name,
			Type:    i.Type,
			Network: i.Network,
			Object:  i.Object,
			Mac:     i.MAC.String(),
			Mtu:     uint32(i.MTU),
			Limits:  i.Limits.String(),
		}
		for _, p := range i.Addresses {
			row.Addresses = append(row.Addresses, p.String())
		}
		info.Interfaces = append(info.Interfaces, row)
	}
	return info
}

// Addresses lists pools, and the addresses in use with their pods.
func (o *Server) Addresses(_ context.Context, req *operatorv1.AddressesRequest) (*operatorv1.AddressesReply, error) {
	var only netip.Addr
	if req.Address != "" {
		var err error
		if only, err = netip.ParseAddr(req.Address); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "invalid address %q", req.Address)
		}
	}
	pools, leases := o.config.Network.Networks.Addresses()
	reply := &operatorv1.AddressesReply{}
	for _, p := range pools {
		if !only.IsValid() || p.Prefix.Contains(only) {
			reply.Pools = append(reply.Pools, &operatorv1.Pool{
				Name: p.Name, Prefix: p.Prefix.String(),
				Free: p.Free, Leased: p.Leased, Used: p.Used, Cooling: p.Cooling,
			})
		}
	}
	owners := o.holders()
	for _, l := range leases {
		if only.IsValid() && l.Address != only {
			continue
		}
		lease := &operatorv1.Lease{
			Pool: l.Pool, Address: l.Address.String(), State: string(l.State), Holder: l.Holder,
			Since: stamp(l.Since), FreeAt: stamp(l.FreeAt),
		}
		if owner, ok := owners[l.Holder]; ok {
			lease.Pod = podOf(owner.pod)
			lease.Interface = owner.iface
			lease.Claim = owner.claim
		} else if l.Pod != "" { // it cools down: the attachment is gone
			lease.Pod = podOf(pod.ID{Namespace: l.Namespace, Name: l.Pod})
			lease.Interface = path.Base(l.Holder)
		}
		if claim, is := strings.CutPrefix(l.Holder, pod.IPAMClaimKind); is { // its pod is away
			lease.Claim = claim
		}
		reply.Leases = append(reply.Leases, lease)
	}
	return reply, nil
}

// holder is the interface of a pod that holds an address.
type holder struct {
	pod   pod.ID
	iface string
	claim string // IPAMClaim of the interface, namespace/name; "": none
}

// holders returns the interfaces of pods by the names under which they hold addresses.
func (o *Server) holders() map[string]holder {
	all := map[string]holder{}
	for _, a := range o.config.Pods.Attachments() {
		for _, i := range a.Interfaces {
			h := holder{pod: a.Pod, iface: i.Name}
			if i.IPAMClaim != "" {
				h.claim = a.Pod.Namespace + "/" + i.IPAMClaim
			}
			all[desired.HolderOf(a.Key, i.Name)] = h
		}
	}
	return all
}

// Settings returns the effective configuration.
func (o *Server) Settings(context.Context, *operatorv1.SettingsRequest) (*operatorv1.SettingsReply, error) {
	return &operatorv1.SettingsReply{Yaml: o.config.Settings().String()}, nil
}

// Resync runs a resync.
func (o *Server) Resync(ctx context.Context, req *operatorv1.ResyncRequest) (*operatorv1.ResyncReply, error) {
	kinds := map[string]eventloop.Resync{
		"": eventloop.Full, "full": eventloop.Full, "upstream": eventloop.Upstream, "downstream": eventloop.Downstream,
	}
	kind, ok := kinds[req.Kind]
	if !ok {
		return &operatorv1.ResyncReply{
			Error: "the kind of a resync must be full, upstream or downstream, not " + req.Kind,
		}, nil
	}
	if !o.config.Health.Holds(health.Started) {
		return &operatorv1.ResyncReply{
			Error: "the agent is starting: its first resync has not ended; see weftctl status",
		}, nil
	}
	reason := cmp.Or(req.Reason, "requested by an operator")
	if req.DryRun {
		return o.dryResync(ctx, req.Force)
	}
	rec, err := o.config.Loop.Do(ctx, eventloop.Resynchronize{
		Kind:   kind,
		Reason: reason,
		Scope:  eventloop.Scope{Force: req.Force},
	})
	reply := &operatorv1.ResyncReply{Error: textOf(err)}
	if rec != nil {
		reply.Event = rec.Seq
	}
	return reply, nil
}

// dryResync lists the operations of a downstream resync.
func (o *Server) dryResync(ctx context.Context, force bool) (*operatorv1.ResyncReply, error) {
	rec, err := o.config.Scheduler.Resync(ctx, kvscheduler.ResyncOpt{DryRun: true, Force: force})
	reply := &operatorv1.ResyncReply{Error: textOf(err)}
	if rec != nil {
		of := o.config.Owners.Now()
		for _, op := range rec.Ops {
			reply.Operations = append(reply.Operations, op.Verb+" "+of.Of(op.Ref).Named(op.Ref)+" ("+op.Why+")")
		}
		for _, w := range rec.Pending {
			if missing := strings.Join(w.Missing, ", "); strings.HasPrefix(missing, "prune: ") {
				reply.Operations = append(reply.Operations, "keep "+of.Of(w.Ref).Named(w.Ref)+" ("+missing+")")
			}
		}
	}
	return reply, nil
}

// Configure replaces the external configuration of a source.
func (o *Server) Configure(ctx context.Context, req *operatorv1.ConfigureRequest) (*operatorv1.ConfigureReply, error) {
	if req.Source == "" {
		return &operatorv1.ConfigureReply{Error: "the name of the source is empty"}, nil
	}
	values, err := external.Parse(req.Document)
	if err != nil {
		return &operatorv1.ConfigureReply{Error: err.Error()}, nil //nolint:nilerr // an error of the request, not of the call
	}
	rec, err := o.config.Loop.SetExternal(ctx, req.Source, values)
	reply := &operatorv1.ConfigureReply{Error: textOf(err)}
	if rec != nil {
		reply.Event = rec.Seq
		reply.Dropped = droppedOf(rec, req.Source)
		o.addUnsettled(reply, values)
	}
	return reply, nil
}

// addUnsettled adds the pending and failed values to a reply.
func (o *Server) addUnsettled(reply *operatorv1.ConfigureReply, values map[string][]byte) {
	view := o.config.Scheduler.View()
	of := o.config.Owners.Now()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		ref, err := kvscheduler.ParseRef(key)
		if err != nil {
			continue // listed in Dropped
		}
		switch status, _ := view.Status(ref); {
		case status.Err != nil:
			reply.Failed = append(reply.Failed, of.Of(key).Named(key)+": "+status.Err.Error())
		case status.Phase == kvscheduler.Pending:
			reply.Waiting = append(reply.Waiting,
				of.Of(key).Named(key)+" waits for "+strings.Join(status.Missing, ", "))
		}
	}
}

// droppedOf lists the values of the source that the event dropped.
func droppedOf(rec *eventloop.Record, source string) []string {
	var dropped []string
	for _, d := range rec.Drops {
		if d.Source == source {
			dropped = append(dropped, d.Key+": "+d.Reason)
		}
	}
	return dropped
}

// textOf returns the text of an error, "" for nil.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func took(d time.Duration) *durationpb.Duration { return durationpb.New(d) }

// document returns a record as JSON, for -o json.
func document(record any) []byte {
	raw, err := json.Marshal(record)
	if err != nil {
		raw, _ = json.Marshal(map[string]string{"error": err.Error()})
	}
	return raw
}

// Counters reads the counters of the dataplane.
func (o *Server) Counters(ctx context.Context, _ *operatorv1.CountersRequest) (*operatorv1.CountersReply, error) {
	c, err := o.config.Counters.Read(ctx)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	exceeded, err := o.config.Dataplane.Statistics().Violations(ctx)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	reply := &operatorv1.CountersReply{}
	for _, i := range southbound.PodCounters(o.config.Pods.Attachments(), c) {
		reply.Interfaces = append(reply.Interfaces, &operatorv1.InterfaceCounters{
			Attachment: attachmentOf(i.At.Key), Pod: podOf(i.At.Pod), Interface: i.Name, Type: i.Type, Object: i.Object,
			RxPackets: i.RxPackets, RxBytes: i.RxBytes, RxDrops: i.RxDrops,
			TxPackets: i.TxPackets, TxBytes: i.TxBytes, TxDrops: i.TxDrops, Connected: i.Connected,
			RxExceeded: exceeded[wire.PolicerName(i.Object, wire.PoliceOutput)].Packets,
			TxExceeded: exceeded[wire.PolicerName(i.Object, wire.PoliceInput)].Packets,
		})
	}
	for _, e := range slices.Concat(c.Errors, c.Refused) {
		text, statistic := southbound.Explain(e.Node, e.Reason)
		reply.Errors = append(reply.Errors, &operatorv1.ErrorCounter{
			Node:        e.Node,
			Reason:      e.Reason,
			Count:       e.Count,
			Explanation: text,
			Statistic:   statistic,
		})
	}
	return reply, nil
}

// Devices lists the allocations.
func (o *Server) Devices(context.Context, *operatorv1.DevicesRequest) (*operatorv1.DevicesReply, error) {
	if o.config.Devices == nil {
		return &operatorv1.DevicesReply{}, nil
	}
	stats := o.config.Devices.Stats()
	reply := &operatorv1.DevicesReply{Registered: stats.Registered, Free: uint32(stats.Devices["free"])}
	for _, a := range o.config.Devices.Allocations() {
		row := &operatorv1.Allocation{
			Id:        a.ID,
			Socket:    a.Socket,
			Devices:   a.Devices,
			Directory: a.Directory,
			Created:   stamp(a.Created),
			Container: a.Container,
		}
		if !a.Pod.IsZero() {
			row.Pod = podOf(a.Pod)
		}
		reply.Allocations = append(reply.Allocations, row)
	}
	return reply, nil
}

// reasonForced is the reason of deletions that an operator forces.
const reasonForced = "forced by weftctl gc"

// CollectGarbage lists attachments that may have lost their sandboxes, and deletes an attachment if the evidence is
// sufficient.
func (o *Server) CollectGarbage(
	ctx context.Context, req *operatorv1.CollectGarbageRequest,
) (*operatorv1.CollectGarbageReply, error) {
	found, err := o.garbage(ctx, req.Force)
	if err != nil {
		return nil, err
	}
	reply := &operatorv1.CollectGarbageReply{}
	for _, f := range found {
		g := &operatorv1.Garbage{
			Key: f.At.Key.String(), Pod: podOf(f.At.Pod), Netns: f.At.Netns.Path, Reason: f.Reason, Lacks: f.Lacks,
		}
		if f.Lacks == "" && !req.DryRun {
			err := o.config.Garbage.Delete(ctx, f.At, f.Reason)
			g.Error = textOf(err)
			g.Deleted = err == nil
		}
		reply.Garbage = append(reply.Garbage, g)
	}
	return reply, nil
}

// garbage returns the attachments with the given keys, or all candidates without keys.
func (o *Server) garbage(ctx context.Context, keys []string) (found []garbage.Finding, err error) {
	all := o.config.Pods.Attachments()
	if len(keys) == 0 {
		return o.config.Garbage.Look(ctx, all), nil
	}
	for _, key := range keys {
		i := slices.IndexFunc(all, func(at pod.Attachment) bool { return at.Key.String() == key })
		if i < 0 {
			return nil, status.Errorf(codes.NotFound,
				"no attachment has the key %q; to list keys use weftctl gc --dry-run or weftctl attachments -o json",
				key)
		}
		found = append(found, garbage.Finding{At: &all[i], Reason: reasonForced})
	}
	return found, nil
}

// Quarantine lists refused pods, and suspected and quarantined attachments.
func (o *Server) Quarantine(context.Context, *operatorv1.QuarantineRequest) (*operatorv1.QuarantineReply, error) {
	reply := &operatorv1.QuarantineReply{}
	for _, s := range o.config.Quarantine.Listed() {
		reply.Entries = append(reply.Entries, &operatorv1.QuarantineEntry{
			Attachment: attachmentOf(s.Key),
			Pod:        podOf(s.Pod),
			State:      s.State,
			Crashes:    uint32(s.Crashes),
			Since:      stamp(s.Since),
			Reason:     s.Reason,
		})
	}
	return reply, nil
}

// Release ends the quarantine of attachments.
func (o *Server) Release(ctx context.Context, req *operatorv1.ReleaseRequest) (*operatorv1.ReleaseReply, error) {
	n, err := o.config.Replayer.Release(ctx, req.Name)
	return &operatorv1.ReleaseReply{Released: uint32(n), Error: textOf(err)}, nil
}
