package tracing

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/weftnet/weft/agent/tracing/tracingtest"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	caller  = "b7ad6b7169203331"
)

// run runs a tracer until the returned function is called.
func run(t *testing.T, c Config) (*Tracer, func()) {
	t.Helper()
	c.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	tracer, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- tracer.Run(ctx) }()
	return tracer, func() {
		t.Helper()
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the tracer does not end")
		}
	}
}

// call makes a call of weft-cni with the header; the handler handles one event.
func call(t *testing.T, tracer *Tracer, header string, handle func(ctx context.Context) *weftv1.AddReply) {
	t.Helper()
	ctx := t.Context()
	if header != "" {
		ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("traceparent", header))
	}
	req := &weftv1.AddRequest{
		Attachment: &weftv1.Attachment{ContainerId: "c1", IfName: "eth0"},
		Pod:        &weftv1.Pod{Namespace: "shop", Name: "cart"},
	}
	info := &grpc.UnaryServerInfo{FullMethod: weftv1.RemoteCNI_Add_FullMethodName}
	if _, err := tracer.Request(ctx, req, info, func(ctx context.Context, _ any) (any, error) {
		return handle(ctx), nil
	}); err != nil {
		t.Error(err)
	}
}

// failedAdd returns the records of an ADD with a rollback.
func failedAdd(now time.Time) (eventloop.Record, *kvscheduler.Record) {
	ev := eventloop.Record{
		Seq:     7,
		Event:   "add pod shop/cart",
		Type:    "pod.AddPod",
		Arrived: now,
		Course: eventloop.Course{
			Kind:    "update",
			Started: now.Add(3 * time.Millisecond),
			Queued:  3 * time.Millisecond,
			Took:    20 * time.Millisecond,
			Steps: []eventloop.Step{
				{Number: 1, Name: "validate", Took: time.Millisecond}, {Number: 2, Name: "kind"},
				{Number: 7, Name: "run handlers", Took: 2 * time.Millisecond},
				{Number: 9, Name: "commit", Took: 9 * time.Millisecond, Err: "commit: vpp.route/r: refused"},
				{Number: 9, Name: "save"}, {Number: 10, Name: "undo", Took: time.Millisecond},
			},
			Handlers: []eventloop.HandlerRun{
				{Name: "podmanager", Took: time.Millisecond}, {Name: "ipnet", Took: time.Millisecond},
			},
		},
		Effect:  eventloop.Effect{Transactions: []uint64{4}},
		Failure: eventloop.Failure{Err: "commit: vpp.route/r: refused", Undone: true},
	}
	txn := &kvscheduler.Record{
		Seq:      4,
		Event:    7,
		Origin:   "txn",
		Label:    "add pod shop/cart",
		Start:    now.Add(6 * time.Millisecond),
		PlanTook: 100 * time.Microsecond,
		Took:     8 * time.Millisecond, Rollback: true, Undone: true, Err: "refused",
		Ops: []kvscheduler.OpRecord{
			{
				Ref:     "vpp.interface/a",
				Verb:    "create",
				Why:     "desired",
				Batch:   1,
				At:      time.Millisecond,
				Took:    time.Millisecond,
				Outcome: "applied",
			},
			{
				Ref:     "vpp.interface/b",
				Verb:    "create",
				Why:     "desired",
				Batch:   1,
				At:      time.Millisecond,
				Took:    time.Millisecond,
				Outcome: "applied",
			},
			{
				Ref:     "vpp.route/r",
				Verb:    "create",
				Why:     "desired",
				Batch:   2,
				At:      2 * time.Millisecond,
				Took:    time.Millisecond,
				Err:     "refused",
				Outcome: "not applied",
			},
			{Ref: "vpp.route/s", Verb: "create", Why: "desired", Outcome: "skipped"},
			{
				Ref:     "vpp.interface/b",
				Verb:    "delete",
				Why:     "undo",
				Batch:   3,
				At:      4 * time.Millisecond,
				Took:    time.Millisecond,
				Outcome: "applied",
			},
		},
	}
	return ev, txn
}

const treeOfFailedAdd = `CNI ADD !
  event AddPod !
    load
    queue
    handlers
      handler podmanager
      handler ipnet
    commit !
      transaction !
        plan
        create vpp.interface
        create vpp.route !
        rollback
          delete vpp.interface
    undo
`

func TestSpansOfAFailedAddFormATree(t *testing.T) {
	receivers := map[string]func(*testing.T) *tracingtest.Receiver{GRPC: tracingtest.GRPC, HTTP: tracingtest.HTTP}
	for protocol, start := range receivers {
		for _, early := range []bool{true, false} {
			receiver := start(t)
			tracer, stop := run(t, Config{Endpoint: receiver.URL, Protocol: protocol, Version: "weft v1", Node: "n1"})
			began := time.Now()
			ev, txn := failedAdd(began.Add(time.Microsecond))
			call(t, tracer, "00-"+traceID+"-"+caller+"-01", func(ctx context.Context) *weftv1.AddReply {
				if early {
					tracer.Transaction(txn)
				}
				tracer.Event(ctx, ev)
				return &weftv1.AddReply{Error: &weftv1.Error{Code: 105, Msg: "refused"}}
			})
			if !early {
				tracer.Transaction(txn)
			}
			stop()
			tree := receiver.Tree(traceID, caller)
			if tree != treeOfFailedAdd {
				t.Errorf("%s, transaction first %t: %s\nwant:\n%s", protocol, early, tree, treeOfFailedAdd)
			}
			if r := receiver.Resource(); r["service.name"] != "weft-agent" || r["k8s.node.name"] != "n1" {
				t.Errorf("resource %v", r)
			}
		}
	}
}

func TestSpansHaveTheTimesOfTheRecords(t *testing.T) {
	receiver := tracingtest.GRPC(t)
	tracer, stop := run(t, Config{Endpoint: receiver.URL, Protocol: GRPC, Sampling: 1})
	began := time.Now().Add(-time.Hour)
	ev, txn := failedAdd(began)
	tracer.Event(t.Context(), ev)
	tracer.Transaction(txn)
	stop()
	for _, s := range receiver.Spans("") {
		at := time.Duration(s.GetStartTimeUnixNano() - uint64(began.UnixNano())) //nolint:gosec // positive
		took := time.Duration(s.GetEndTimeUnixNano() - s.GetStartTimeUnixNano()) //nolint:gosec // short
		want, known := map[string][2]time.Duration{
			"event AddPod": {0, 23 * time.Millisecond}, "load": {0, time.Millisecond}, "queue": {
				time.Millisecond, 2 * time.Millisecond,
			},
			"handlers": {3 * time.Millisecond, 2 * time.Millisecond}, "commit": {
				5 * time.Millisecond, 9 * time.Millisecond,
			},
			"transaction": {6 * time.Millisecond, 8 * time.Millisecond}, "create vpp.route": {
				8 * time.Millisecond, time.Millisecond,
			},
		}[s.GetName()]
		if known && ([2]time.Duration{at, took} != want) {
			t.Errorf("%s begins at %s and takes %s, want %s", s.GetName(), at, took, want)
		}
	}
}

func TestDecisionOfTheCallerIsKept(t *testing.T) {
	for _, tt := range []struct {
		header   string
		sampling float64
		spans    bool
	}{
		{"00-" + traceID + "-" + caller + "-01", 0, true},
		{"00-" + traceID + "-" + caller + "-00", 1, false},
		{"", 1, true},
		{"", 0, false},
		{"00-zz-" + caller + "-01", 1, true}, // invalid: a trace of its own
		{"00-00000000000000000000000000000000-0000000000000000-01", 0, false},
	} {
		receiver := tracingtest.GRPC(t)
		tracer, stop := run(t, Config{Endpoint: receiver.URL, Protocol: GRPC, Sampling: tt.sampling})
		ev, txn := failedAdd(time.Now())
		call(t, tracer, tt.header, func(ctx context.Context) *weftv1.AddReply {
			tracer.Event(ctx, ev)
			return nil
		})
		tracer.Transaction(txn)
		stop()
		if got := len(receiver.Spans("")); (got > 0) != tt.spans || tt.spans && got < 10 {
			t.Errorf("%q with sampling %v: %d spans", tt.header, tt.sampling, got)
		}
		ids := map[string]bool{}
		for _, s := range receiver.Spans("") {
			ids[string(s.GetTraceId())] = true
		}
		if len(ids) > 1 {
			t.Errorf("%q: spans of %d traces", tt.header, len(ids))
		}
	}
}

// A receiver that hangs, or is away, delays neither the observed calls nor the end, and memory is bounded.
func TestReceiverThatHangsDelaysNothing(t *testing.T) {
	for name, url := range map[string]string{"hangs": tracingtest.Hanging(t), "away": "http://127.0.0.1:1"} {
		for _, protocol := range []string{GRPC, HTTP} {
			var dropped atomic.Int64
			count := func(result string, n int) {
				if result == Dropped {
					dropped.Add(int64(n))
				}
			}
			tracer, stop := run(t, Config{Endpoint: url, Protocol: protocol, Sampling: 1, Count: count})
			ev, txn := failedAdd(time.Now())
			began := time.Now()
			for range 4 * queueMax {
				call(t, tracer, "", func(ctx context.Context) *weftv1.AddReply { tracer.Event(ctx, ev); return nil })
				tracer.Transaction(txn)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("%s, %s: %d calls took %s", name, protocol, 4*queueMax, took)
			}
			if name == "hangs" && dropped.Load() == 0 {
				t.Errorf("%s, %s: no record is dropped", name, protocol)
			}
			began = time.Now()
			stop()
			if took := time.Since(began); took > stopLimit+exportLimit {
				t.Errorf("%s, %s: the end took %s", name, protocol, took)
			}
		}
	}
}

func TestExportsContinueAfterAFailure(t *testing.T) {
	receiver := tracingtest.GRPC(t)
	var failed atomic.Int64
	count := func(result string, n int) {
		if result == Failed {
			failed.Add(int64(n))
		}
	}
	receiver.Refuse(errors.New("no disk"))
	tracer, stop := run(t, Config{Endpoint: receiver.URL, Protocol: GRPC, Sampling: 1, Count: count})
	ev, _ := failedAdd(time.Now())
	tracer.Event(t.Context(), ev)
	eventually(t, func() bool { return failed.Load() > 0 })
	receiver.Refuse(nil)
	tracer.Event(t.Context(), ev)
	eventually(t, func() bool { return len(receiver.Spans("")) > 0 })
	stop()
}

func eventually(t *testing.T, is func() bool) {
	t.Helper()
	ok := func(context.Context) (bool, error) { return is(), nil }
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 30*time.Second, true, ok); err != nil {
		t.Fatal(err)
	}
}

func TestTracerThatIsOffCostsNothing(t *testing.T) {
	var off *Tracer
	ev, txn := failedAdd(time.Now())
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { off.Event(ctx, ev); off.Transaction(txn) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestManyCallsAndTransactionsAreBounded(t *testing.T) {
	receiver := tracingtest.GRPC(t)
	tracer, stop := run(t, Config{Endpoint: receiver.URL, Protocol: GRPC, Sampling: 1})
	txn := &kvscheduler.Record{Seq: 1, Origin: "resync", Start: time.Now()}
	for n := range 5000 {
		txn.Ops = append(txn.Ops, kvscheduler.OpRecord{Ref: "vpp.route/r", Verb: "create", Batch: n + 1})
	}
	tracer.Transaction(txn)
	stop()
	if n := len(receiver.Spans("")); n != maxCalls+1 {
		t.Errorf("%d spans", n)
	}
	p := newPending()
	for n := range uint64(10 * pendingMax) {
		p.transaction(&kvscheduler.Record{Event: n + 1}, nil)
		p.event(10*pendingMax+n+1, parents{}, nil)
	}
	if len(p.early) > pendingMax || len(p.earlyOrder) > pendingMax || len(p.events) > pendingMax ||
		len(p.order) > pendingMax {
		t.Errorf("%d early, %d events", len(p.early), len(p.events))
	}
}
