package agent

import (
	"context"
	"path"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/agent/southbound"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/metrics"
	"github.com/weftnet/weft/podmanager"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
	"github.com/weftnet/weft/wire"
)

// verbs are those of CNI, by the methods that serve them.
var verbs = map[string]string{"Add": "ADD", "Delete": "DEL", "Check": "CHECK", "Status": "STATUS", "Collect": "GC"}

// measureRequest times what the CNI plugin asks for. Who may not ask is not counted: that is the business of podmanager.
func (a *Agent) measureRequest(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (reply any, err error) {
	service, method := path.Split(info.FullMethod)
	verb, known := verbs[method]
	if !known || service != "/"+weftv1.RemoteCNI_ServiceDesc.ServiceName+"/" {
		return handle(ctx, req)
	}
	began, code := time.Now(), codes.Internal.String() // of a panic
	defer func() { a.metrics.Request(verb, code, time.Since(began)) }()
	reply, err = handle(ctx, req)
	code = status.Code(err).String()
	if r, ok := reply.(interface{ GetError() *weftv1.Error }); ok && err == nil {
		code = strconv.FormatUint(uint64(r.GetError().GetCode()), 10)
	}
	return reply, err
}

// phases are those of an event that may take time, by the names of its steps.
var phases = map[string]string{
	"validate": "load", "run handlers": "handlers", "merge external": "merge", "commit": "commit", "save": "save", "undo": "undo", "verify": "verify",
}

// measureEvent takes an event in that was handled.
func (a *Agent) measureEvent(rec eventloop.Record) {
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
	a.metrics.Event(e)
}

// measureTransaction takes in what the scheduler did. What it found other than it had left it is drift, where nobody had
// asked for a change: a resync that an event asked for is measured where it is known what for.
func (a *Agent) measureTransaction(rec *kvscheduler.Record) {
	if rec.Origin == "report" {
		return
	}
	for _, op := range rec.Ops {
		a.metrics.Operation(kindOf(op), op.Verb, resultOf(op))
	}
	switch {
	case rec.Rollback && rec.Undone:
		a.metrics.Rollback(metrics.RolledBack)
	case rec.Rollback:
		a.metrics.Rollback(metrics.RollbackIncomplete)
	}
	if rec.Event == 0 {
		a.measureDrift(rec)
	}
}

func (a *Agent) measureDrift(rec *kvscheduler.Record) {
	for _, op := range rec.Ops {
		if op.Why == "drift" {
			a.metrics.Drift(kindOf(op))
		}
	}
}

func kindOf(op kvscheduler.OpRecord) string {
	kind, _, _ := strings.Cut(op.Ref, "/")
	return kind
}

// resultOf is the outcome of an operation, as far as it is known in the end.
func resultOf(op kvscheduler.OpRecord) string {
	outcome, found, _ := strings.Cut(op.Outcome, "; read back: ")
	if found != "" {
		outcome = found
	}
	return strings.ReplaceAll(outcome, " ", "_")
}

// read asks for what is as it is at a scrape.
func (a *Agent) read(ctx context.Context) metrics.State {
	s := metrics.State{
		QueueDepth:  a.loop.Stats().Queue,
		Quarantined: a.quarantine.Count(),
		Connected:   a.dataplane.IsConnected(),
		Conditions:  make(map[string]bool),
		Objects:     a.countObjects(),
		Addresses:   make(map[string]metrics.Addresses),
	}
	a.readCounters(ctx, &s)
	_, conditions := a.health.Snapshot()
	for _, c := range conditions {
		s.Conditions[c.Name] = c.OK
	}
	if n, err := a.queue.Len(); err == nil {
		s.DeleteQueue = &n
	}
	if a.member != nil {
		dropped := a.member.Events.Writer.Dropped()
		s.EventsDropped, s.Rejections = &dropped, a.member.Rejections()
	}
	pools, _ := a.network.Networks.Addresses()
	for _, p := range pools {
		s.Addresses[p.Name] = metrics.Addresses{Used: p.Used, Leased: p.Leased, Cooling: p.Cooling, Free: p.Free}
	}
	if a.devices != nil {
		of := a.devices.Stats()
		s.Devices, s.Registrations = of.Devices, of.Registrations
	}
	return s
}

// readCounters adds the dataplane's counters; none while it does not tell them.
func (a *Agent) readCounters(ctx context.Context, s *metrics.State) {
	c, err := a.counters.Read(ctx)
	if err != nil {
		return // a condition says so
	}
	for _, i := range southbound.PodCounters(a.pods.Attachments(), c) {
		s.Interfaces = append(s.Interfaces, metrics.Interface{
			Namespace: i.At.Pod.Namespace, Pod: i.At.Pod.Name, Name: i.Name, Type: i.Type,
			RxPackets: i.RxPackets, RxBytes: i.RxBytes, RxDrops: i.RxDrops,
			TxPackets: i.TxPackets, TxBytes: i.TxBytes, TxDrops: i.TxDrops, Connected: i.Connected,
		})
	}
	for _, e := range c.Errors {
		s.Errors = append(s.Errors, metrics.Error{Node: e.Node, Reason: e.Reason, Count: e.Count})
	}
}

// countObjects counts by kind and phase. Every kind has every phase, so that a number that falls to 0 is one.
func (a *Agent) countObjects() map[string]map[string]int {
	counts := make(map[string]map[string]int)
	view := a.scheduler.View()
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

// observe hands what happens to attachments to all who want to know. None of them may wait, and they are appended before
// Run.
func (a *Agent) observe(o podmanager.Outcome) {
	for _, tell := range a.observers {
		tell(o)
	}
}
