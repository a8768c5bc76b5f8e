// Package tracing exports OpenTelemetry spans of CNI requests, events and transactions, which it builds from their
// records.
//
//	weft-cni --traceparent--> Request --record--+
//	eventloop --record--> Event ----------------+--> queue --> Run: spans --> OTLP
//	kvscheduler --record--> Transaction --------+
//
// The observing methods only queue a record. Spans are made and exported by the goroutine of Run, after the fact and
// with the times of the records, so neither a slow nor a hanging receiver delays a pod. A full queue drops records.
package tracing

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
)

// Protocols of OTLP.
const (
	GRPC = "grpc"
	HTTP = "http"
)

// Config configures a Tracer.
type Config struct {
	Endpoint string  // URL of an OTLP receiver
	Protocol string  // GRPC or HTTP
	Sampling float64 // part of the traces that begin here, 0 to 1; a caller's decision is kept
	Version  string
	Node     string
	Count    func(result string, n int) // counts spans by result; for dropped: records
	Log      *slog.Logger
}

// Results of spans and records, for Config.Count.
const (
	Exported = "exported"
	Failed   = "failed"
	Dropped  = "dropped"
)

// Limits of memory and of time.
const (
	queueMax    = 1024 // records
	batchMax    = 512  // spans of an export
	exportEvery = time.Second
	exportLimit = 10 * time.Second
	stopLimit   = 2 * time.Second
)

// Tracer exports spans. The methods of a nil Tracer do nothing.
type Tracer struct {
	config   Config
	exporter sdk.SpanExporter
	sampler  sdk.Sampler
	tracer   trace.Tracer
	provider *sdk.TracerProvider
	queue    chan item
	spans    *collector
	pending  pending
	failing  string // the error of the last export; "": none
}

// item is a record in the queue: one of the three.
type item struct {
	parent trace.SpanContext // of request and event
	own    trace.SpanContext // of request

	request *request
	event   *eventloop.Record // with Seq only if parent is not sampled
	txn     *kvscheduler.Record
}

// New returns a tracer, which connects when Run exports spans.
func New(ctx context.Context, c Config) (*Tracer, error) {
	exporter, err := newExporter(ctx, c)
	if err != nil {
		return nil, err
	}
	return newTracer(c, exporter), nil
}

func newTracer(c Config, exporter sdk.SpanExporter) *Tracer {
	t := &Tracer{
		config: c, exporter: exporter, queue: make(chan item, queueMax), spans: &collector{}, pending: newPending(),
		sampler: sdk.ParentBased(sdk.TraceIDRatioBased(c.Sampling)),
	}
	if t.config.Count == nil {
		t.config.Count = func(string, int) {}
	}
	t.provider = sdk.NewTracerProvider(
		sdk.WithSampler(t.sampler), sdk.WithIDGenerator(generator{}), sdk.WithSpanProcessor(t.spans),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "weft-agent"), attribute.String("service.version", c.Version),
			attribute.String("k8s.node.name", c.Node),
		)),
	)
	t.tracer = t.provider.Tracer("github.com/weftnet/weft/agent/tracing")
	return t
}

// Event queues the record of an event. ctx is the context of its caller.
func (t *Tracer) Event(ctx context.Context, rec eventloop.Record) {
	if t == nil {
		return
	}
	parent := trace.SpanContextFromContext(ctx)
	if parent.IsValid() && !parent.IsSampled() {
		t.add(item{parent: parent, event: &eventloop.Record{Seq: rec.Seq}})
		return
	}
	kept := eventloop.Record{
		Seq:     rec.Seq,
		Event:   rec.Event,
		Type:    rec.Type,
		Arrived: rec.Arrived,
		Course: eventloop.Course{
			Kind:     rec.Kind,
			Started:  rec.Started,
			Queued:   rec.Queued,
			Took:     rec.Took,
			Steps:    slices.Clone(rec.Steps),
			Handlers: slices.Clone(rec.Handlers),
		},
		Effect: eventloop.Effect{
			Changes: rec.Changes, Operations: rec.Operations, Transactions: slices.Clone(rec.Transactions),
		},
		Failure: eventloop.Failure{
			Undone: rec.Undone, CancelledBy: rec.CancelledBy, Err: rec.Err, Stuck: slices.Clone(rec.Stuck),
		},
	}
	for i := range kept.Handlers {
		kept.Handlers[i].Changes = nil
	}
	t.add(item{parent: parent, event: &kept})
}

// Transaction queues the record of a transaction.
func (t *Tracer) Transaction(rec *kvscheduler.Record) {
	if t == nil || rec.Origin == "report" || rec.Origin == "plan" {
		return
	}
	t.add(item{txn: rec})
}

// add queues an item, or drops it.
func (t *Tracer) add(i item) {
	select {
	case t.queue <- i:
	default:
		t.config.Count(Dropped, 1)
	}
}

// Run builds and exports spans until ctx ends. Then it exports the spans of queued records, for at most stopLimit.
func (t *Tracer) Run(ctx context.Context) error {
	tick := time.NewTicker(exportEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case i := <-t.queue:
			t.build(i)
			if len(t.spans.ended) >= batchMax {
				t.export(ctx)
			}
		case <-tick.C:
			t.export(ctx)
		}
	}
	return t.stop(context.WithoutCancel(ctx))
}

func (t *Tracer) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	for range len(t.queue) {
		t.build(<-t.queue)
	}
	t.export(ctx)
	if err := t.exporter.Shutdown(ctx); err != nil {
		t.config.Log.Debug("trace exporter not closed", "err", err)
	}
	return nil
}

// export sends the ended spans. It drops them if that fails: a receiver that is away must not fill the memory.
func (t *Tracer) export(ctx context.Context) {
	spans := t.spans.take()
	if len(spans) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, exportLimit)
	defer cancel()
	err := t.exporter.ExportSpans(ctx, spans)
	switch {
	case err == nil:
		if t.failing != "" {
			t.config.Log.Info("spans are exported again", "endpoint", t.config.Endpoint)
		}
		t.failing = ""
		t.config.Count(Exported, len(spans))
		return
	case t.failing == "":
		t.config.Log.Warn("spans not exported; pods are not affected: check tracing.endpoint",
			"endpoint", t.config.Endpoint, "err", strings.TrimSpace(err.Error()))
	}
	t.failing = err.Error()
	t.config.Count(Failed, len(spans))
}

// collector keeps ended spans until they are exported. It belongs to the goroutine of Run. The batch processor of the
// SDK would have a second queue, not say how many spans it dropped, and still export after stopLimit.
type collector struct{ ended []sdk.ReadOnlySpan }

// OnStart does nothing.
func (c *collector) OnStart(context.Context, sdk.ReadWriteSpan) {}

// OnEnd keeps a span.
func (c *collector) OnEnd(s sdk.ReadOnlySpan) { c.ended = append(c.ended, s) }

// Shutdown does nothing.
func (c *collector) Shutdown(context.Context) error { return nil }

// ForceFlush does nothing.
func (c *collector) ForceFlush(context.Context) error { return nil }

func (c *collector) take() []sdk.ReadOnlySpan {
	ended := c.ended
	c.ended = nil
	return ended
}
