// Package measure turns the records and counters of the agent's parts into metrics.
package measure

import (
	"context"
	"path"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/agent/cluster"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/recovery"
	"github.com/weftnet/weft/agent/southbound"
	"github.com/weftnet/weft/devicemanager"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/metrics"
	"github.com/weftnet/weft/podmanager"
	"github.com/weftnet/weft/proto/deletequeue"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
	"github.com/weftnet/weft/wire"
)

// Recorder records requests, events and transactions as metrics.
type Recorder struct{ Metrics *metrics.Metrics }

// verbs of CNI, by the gRPC methods that serve them.
var verbs = map[string]string{"Add": "ADD", "Delete": "DEL", "Check": "CHECK", "Status": "STATUS", "Collect": "GC"}

// Request is an interceptor that times requests of the CNI plugin. Callers without permission are not counted;
// podmanager refuses them.
func (r Recorder) Request(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (reply any, err error) {
	service, method := path.Split(info.FullMethod)
	verb, known := verbs[method]
	if !known || service != "/"+weftv1.RemoteCNI_ServiceDesc.ServiceName+"/" {
		return handle(ctx, req)
	}
	began := time.Now()
	code := codes.Internal.String() // of a panic
	defer func() { r.Metrics.Request(verb, code, time.Since(began)) }()
	reply, err = handle(ctx, req)
	code = status.Code(err).String()
	if m, ok := reply.(interface{ GetError() *weftv1.Error }); ok && err == nil {
		code = strconv.FormatUint(uint64(m.GetError().GetCode()), 10)
	}
	return reply, err
}

// phases of an event that may take time, by the names of its steps.
var phases = map[string]string{
	"validate": "load", "run handlers": "handlers", "merge external": "merge", "commit": "commit", "save": "save",
	"undo": "undo", "verify": "verify",
}

// Event records a handled event.
func (r Recorder) Event(rec eventloop.Record) {
	if rec.Started.IsZero() {
		return
	}
	e := metrics.Event{
		Name: rec.Type[strings.LastIndex(rec.Type, ".")+1:], Waited: rec.Queued,
		Phases: map[string]time.Duration{"total": rec.Took}, Handlers: make(map[string]time.Duration),
	}
	for _, s := range rec.Steps {
		if phase, ok := phases[s.Name]; ok {
			e.Phases[phase] = s.Took
		}
	}
	for _, h := range rec.Handlers {
		e.Handlers[h.Name] += h.Took
	}
	r.Metrics.Event(e)
}

// Transaction records a transaction. Only transactions without an event count as drift here; the committer calls Drift
// for resyncs that an event requested.
func (r Recorder) Transaction(rec *kvscheduler.Record) {
	if rec.Origin == "report" {
		return
	}
	for _, op := range rec.Ops {
		r.Metrics.Operation(kindOf(op), op.Verb, resultOf(op))
	}
	switch {
	case rec.Rollback && rec.Undone:
		r.Metrics.Rollback(metrics.RolledBack)
	case rec.Rollback:
		r.Metrics.Rollback(metrics.RollbackIncomplete)
	}
	if rec.Event == 0 {
		r.Drift(rec)
	}
}

// Drift records the repairs of objects that differed from the scheduler's records.
func (r Recorder) Drift(rec *kvscheduler.Record) {
	for _, op := range rec.Ops {
		if op.Why == "drift" {
			r.Metrics.Drift(kindOf(op))
		}
	}
}

func kindOf(op kvscheduler.OpRecord) string {
	kind, _, _ := strings.Cut(op.Ref, "/")
	return kind
}

// resultOf returns the final outcome of an operation.
func resultOf(op kvscheduler.OpRecord) string {
	outcome, found, _ := strings.Cut(op.Outcome, "; read back: ")
	if found != "" {
		outcome = found
	}
	return strings.ReplaceAll(outcome, " ", "_")
}

// Source reads the state of the agent's parts at a scrape.
type Source struct {
	Loop       *eventloop.Loop
	Scheduler  *kvscheduler.Scheduler
	Pods       *podmanager.Manager
	Networks   *networks.Networks
	Dataplane  *southbound.Dataplane
	Counters   *southbound.Counters
	Quarantine *recovery.Quarantine
	Health     *health.Conditions
	Queue      *deletequeue.Queue
	Devices    *devicemanager.Manager // nil without devices
	Member     *cluster.Member        // nil without a cluster
	Policies   *PolicyCounters        // nil: policies are not enforced
}

// Read returns the state.
func (src Source) Read(ctx context.Context) metrics.State {
	s := metrics.State{
		QueueDepth:  src.Loop.Stats().Queue,
		Quarantined: src.Quarantine.Count(),
		Connected:   src.Dataplane.IsConnected(),
		Conditions:  make(map[string]bool),
		Objects:     src.countObjects(),
		Addresses:   make(map[string]metrics.Addresses),
	}
	src.readCounters(ctx, &s)
	var conditions []health.Condition
	s.Ready, conditions = src.Health.Snapshot()
	for _, c := range conditions {
		s.Conditions[c.Name] = c.OK
	}
	if n, err := src.Queue.Len(); err == nil {
		s.DeleteQueue = &n
	}
	if src.Member != nil {
		dropped := src.Member.Events.Writer.Dropped()
		s.EventsDropped = &dropped
		s.Rejections = src.Member.Rejections()
	}
	pools, _ := src.Networks.Addresses()
	for _, p := range pools {
		s.Addresses[p.Name] = metrics.Addresses{Used: p.Used, Leased: p.Leased, Cooling: p.Cooling, Free: p.Free}
	}
	if src.Devices != nil {
		of := src.Devices.Stats()
		s.Devices = of.Devices
		s.Registrations = of.Registrations
	}
	return s
}

// readCounters adds the dataplane's counters, if they can be read.
func (src Source) readCounters(ctx context.Context, s *metrics.State) {
	c, err := src.Counters.Read(ctx)
	if err != nil {
		return // a condition reports the error
	}
	for _, i := range southbound.PodCounters(src.Pods.Attachments(), c) {
		s.Interfaces = append(s.Interfaces, metrics.Interface{
			Namespace: i.At.Pod.Namespace, Pod: i.At.Pod.Name, Name: i.Name, Type: i.Type,
			RxPackets: i.RxPackets, RxBytes: i.RxBytes, RxDrops: i.RxDrops,
			TxPackets: i.TxPackets, TxBytes: i.TxBytes, TxDrops: i.TxDrops, Connected: i.Connected,
		})
	}
	src.addLinks(s, c)
	if src.Policies != nil {
		s.Policies, _ = src.Policies.Read(ctx) // as above
	}
	for _, e := range c.Errors {
		s.Errors = append(s.Errors, metrics.Error{Node: e.Node, Reason: e.Reason, Count: e.Count})
	}
}

// countObjects counts objects by kind and phase. Every kind has every phase, so that a count that falls to 0 is
// reported.
func (src Source) countObjects() map[string]map[string]int {
	counts := make(map[string]map[string]int)
	view := src.Scheduler.View()
	for _, kind := range wire.Kinds() {
		of := make(map[string]int)
		for phase := kvscheduler.Pending; phase <= kvscheduler.Observed; phase++ {
			of[phase.String()] = 0
		}
		for _, status := range view.All(kvscheduler.Kind(kind)) {
			of[status.Phase.String()]++
		}
		counts[kind] = of
	}
	return counts
}
