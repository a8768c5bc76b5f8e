package measure

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/weftnet/weft/agent/tracing"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/metrics"
)

// BenchmarkObservedAdd measures what metrics and traces add to the handling of an ADD: everything else is done by other
// goroutines.
func BenchmarkObservedAdd(b *testing.B) {
	m := metrics.New(metrics.Config{
		Read: func(context.Context) metrics.State { return metrics.State{} },
		Log:  slog.New(slog.DiscardHandler),
	})
	recorder := Recorder{m}
	tracer, err := tracing.New(b.Context(), tracing.Config{
		Endpoint: "http://127.0.0.1:1",
		Protocol: tracing.GRPC,
		Sampling: 1,
		Log:      slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	ev := eventloop.Record{Seq: 1, Type: "pod.AddPod", Arrived: time.Now()}
	ev.Started = time.Now()
	ev.Took = time.Millisecond
	for n, name := range []string{
		"validate", "kind", "order", "leave out", "open record", "announce", "run handlers", "merge external", "commit",
		"save", "undo", "close record", "heal",
	} {
		ev.Steps = append(ev.Steps, eventloop.Step{Number: n + 1, Name: name, Took: time.Microsecond})
	}
	for _, name := range []string{"podmanager", "devicemanager", "ipnet"} {
		ev.Handlers = append(ev.Handlers, eventloop.HandlerRun{Name: name, Took: time.Microsecond})
	}
	txn := &kvscheduler.Record{Seq: 1, Event: 1, Origin: "txn", Start: time.Now()}
	for range 20 {
		txn.Ops = append(txn.Ops, kvscheduler.OpRecord{
			Ref:     "vpp.route/r",
			Verb:    "create",
			Outcome: "applied",
			Batch:   1,
		})
	}
	for _, tt := range []struct {
		name   string
		tracer *tracing.Tracer
	}{{"metrics", nil}, {"metrics and traces", tracer}} {
		b.Run(tt.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				recorder.Event(ev)
				tt.tracer.Event(b.Context(), ev)
				recorder.Transaction(txn)
				tt.tracer.Transaction(txn)
			}
		})
	}
}
