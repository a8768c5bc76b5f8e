package tracing

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
)

// Limits of the spans of one transaction: a resync may have a hundred thousand operations.
const (
	maxCalls = 256 // calls of the dataplane
	maxRefs  = 16  // objects of one call
)

// build makes the spans of a record.
func (t *Tracer) build(i item) {
	switch {
	case i.request != nil:
		t.buildRequest(i)
	case i.event != nil:
		t.buildEvent(i)
	default:
		t.pending.transaction(i.txn, t.buildTransaction)
	}
}

// span makes one span and returns the context of its children.
func (t *Tracer) span(
	ctx context.Context, name string, from time.Time, set ...attribute.KeyValue,
) (context.Context, trace.Span) {
	return t.tracer.Start(ctx, name, trace.WithTimestamp(from), trace.WithAttributes(set...))
}

// end ends a span, which failed if there is an error.
func end(s trace.Span, at time.Time, err string) {
	if err != "" {
		s.SetStatus(codes.Error, err)
	}
	s.End(trace.WithTimestamp(at))
}

// verbs of CNI by method.
var verbs = map[string]string{"Add": "ADD", "Delete": "DEL", "Check": "CHECK", "Status": "STATUS", "Collect": "GC"}

func (t *Tracer) buildRequest(i item) {
	r := i.request
	name := verbs[r.method]
	if name == "" {
		name = r.method
	}
	ctx := trace.ContextWithRemoteSpanContext(withIDs(context.Background(), i.own), i.parent)
	_, s := t.tracer.Start(ctx, "CNI "+name, trace.WithTimestamp(r.began), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(
			attribute.String("k8s.namespace.name", r.pod.GetNamespace()),
			attribute.String("k8s.pod.name", r.pod.GetName()),
			attribute.String("container.id", r.attachment.GetContainerId()),
			attribute.String("weft.interface", r.attachment.GetIfName()),
			attribute.String("weft.network", r.attachment.GetNetwork()), attribute.String("weft.code", r.code),
		))
	end(s, r.ended, r.err)
}

// phases are the steps of an event that may take time. The others are not shown.
var phases = map[string]string{
	"run handlers": "handlers", "merge external": "merge external configuration", "commit": "commit", "save": "save",
	"undo": "undo", "verify": "verify",
}

func (t *Tracer) buildEvent(i item) {
	rec := i.event
	if i.parent.IsValid() && !i.parent.IsSampled() {
		t.pending.event(rec.Seq, parents{}, t.buildTransaction)
		return
	}
	ctx := context.Background()
	if i.parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, i.parent)
	}
	started := rec.Arrived.Add(rec.Queued)
	finish := started.Add(rec.Took)
	ctx, s := t.span(ctx, "event "+rec.Type[strings.LastIndex(rec.Type, ".")+1:], rec.Arrived,
		attribute.Int64("weft.event", int64(rec.Seq)), attribute.String("weft.event.name", rec.Event),
		attribute.String("weft.event.kind", rec.Kind),
		attribute.Int("weft.changes", rec.Changes),
		attribute.Int("weft.operations", rec.Operations),
		attribute.Bool("weft.undone", rec.Undone),
		attribute.StringSlice("weft.stuck", rec.Stuck[:min(len(rec.Stuck), maxRefs)]),
	)
	of := parents{commit: ctx, undo: ctx}
	if !rec.Started.IsZero() {
		t.buildSteps(ctx, rec, started, &of)
	}
	end(s, finish, rec.Err)
	t.pending.event(rec.Seq, of, t.buildTransaction)
}

// buildSteps makes the spans of the wait and of the phases, which follow each other. A record has no time of their
// start; the steps that are not shown take microseconds.
func (t *Tracer) buildSteps(ctx context.Context, rec *eventloop.Record, started time.Time, of *parents) {
	at := started
	for _, step := range rec.Steps {
		if step.Number == 1 {
			admitted := rec.Arrived.Add(step.Took)
			_, s := t.span(ctx, "load", rec.Arrived)
			end(s, admitted, step.Err)
			_, s = t.span(ctx, "queue", admitted)
			end(s, started, "")
			continue
		}
		from := at
		at = at.Add(step.Took)
		name, shown := phases[step.Name]
		if !shown || step.Took == 0 && step.Err == "" || name == "undo" && !rec.Undone && rec.Err == "" {
			continue
		}
		inner, s := t.span(ctx, name, from)
		switch name {
		case "handlers":
			t.buildHandlers(inner, rec.Handlers, from)
		case "commit":
			of.commit = inner
		case "undo":
			of.undo = inner
		}
		end(s, at, step.Err)
	}
}

func (t *Tracer) buildHandlers(ctx context.Context, handlers []eventloop.HandlerRun, at time.Time) {
	for _, h := range handlers {
		to := at.Add(h.Took)
		_, s := t.span(ctx, "handler "+h.Name, at)
		end(s, to, h.Err)
		at = to
	}
}

// buildTransaction makes the spans of a transaction and of its calls of the dataplane, in the step of its event.
func (t *Tracer) buildTransaction(ctx context.Context, rec *kvscheduler.Record) {
	finish := rec.Start.Add(rec.Took)
	ctx, s := t.span(ctx, "transaction", rec.Start,
		attribute.Int64("weft.transaction", int64(rec.Seq)), attribute.String("weft.origin", rec.Origin),
		attribute.String("weft.label", rec.Label),
		attribute.Int("weft.operations", len(rec.Ops)), attribute.Int("weft.pending", len(rec.Pending)),
		attribute.Bool("weft.undone", rec.Undone), attribute.Bool("weft.rollback", rec.Rollback),
	)
	if rec.PlanTook > 0 {
		_, plan := t.span(ctx, "plan", rec.Start)
		end(plan, rec.Start.Add(rec.PlanTook), "")
	}
	done, undone := callsOf(rec)
	left := t.buildCalls(ctx, done)
	if len(undone) > 0 {
		rollback, r := t.span(ctx, "rollback", undone[0].from)
		left += t.buildCalls(rollback, undone)
		last := undone[0].to
		for _, c := range undone {
			last = later(last, c.to)
		}
		end(r, last, "")
	}
	if left > 0 {
		s.SetAttributes(attribute.Int("weft.calls.omitted", left))
	}
	end(s, finish, rec.Err)
}

// dataplaneCall is one call of a backend: operations with the same number.
type dataplaneCall struct {
	from, to time.Time
	ops      []*kvscheduler.OpRecord
}

// callsOf returns the calls of a transaction and of its rollback, in their order.
func callsOf(rec *kvscheduler.Record) (done, undone []*dataplaneCall) {
	byNumber := make(map[int]*dataplaneCall)
	for i := range rec.Ops {
		op := &rec.Ops[i]
		if op.Batch == 0 {
			continue // not called
		}
		from := rec.Start.Add(op.At)
		c := byNumber[op.Batch]
		if c == nil {
			c = &dataplaneCall{from: from, to: from}
			byNumber[op.Batch] = c
			if op.Why == "undo" {
				undone = append(undone, c)
			} else {
				done = append(done, c)
			}
		}
		if from.Before(c.from) {
			c.from = from
		}
		c.to = later(c.to, from.Add(op.Took))
		c.ops = append(c.ops, op)
	}
	return done, undone
}

// buildCalls makes the spans of calls, and returns the number of those that it left out.
func (t *Tracer) buildCalls(ctx context.Context, calls []*dataplaneCall) (left int) {
	for _, c := range calls[:min(len(calls), maxCalls)] {
		op := c.ops[0]
		kind, _, _ := strings.Cut(op.Ref, "/")
		var refs []string
		var failed []string
		for _, o := range c.ops {
			if len(refs) < maxRefs {
				refs = append(refs, o.Ref)
			}
			if o.Err != "" && len(failed) < maxRefs {
				failed = append(failed, o.Ref+": "+o.Err)
			}
		}
		_, s := t.tracer.Start(ctx, op.Verb+" "+kind, trace.WithTimestamp(c.from),
			trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
				attribute.String("weft.kind", kind), attribute.String("weft.verb", op.Verb),
				attribute.Int("weft.objects", len(c.ops)),
				attribute.StringSlice("weft.refs", refs), attribute.Int("weft.level", op.Level),
				attribute.String("weft.why", op.Why),
			))
		end(s, c.to, strings.Join(failed, "; "))
	}
	return max(len(calls)-maxCalls, 0)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
