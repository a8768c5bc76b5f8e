package tracing

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/weftnet/weft/kvscheduler"
)

// pendingMax is the number of events that are remembered, and of events with waiting transactions.
const pendingMax = 256

// pending matches transactions with their events: their records arrive in any order.
//
//	transaction --its event is unknown--> early --event--> built
//	transaction --its event is known----> built
type pending struct {
	events map[uint64]parents
	order  []uint64 // of events

	early      map[uint64][]*kvscheduler.Record
	earlyOrder []uint64
}

// parents are the contexts of the steps of an event; nil: the event is not sampled.
type parents struct{ commit, undo context.Context }

func newPending() pending {
	return pending{events: make(map[uint64]parents), early: make(map[uint64][]*kvscheduler.Record)}
}

// event remembers an event, and builds its transactions that came before it.
func (p *pending) event(seq uint64, of parents, build func(context.Context, *kvscheduler.Record)) {
	p.events[seq] = of
	p.order = append(p.order, seq)
	if len(p.order) > pendingMax {
		delete(p.events, p.order[0])
		p.order = p.order[1:]
	}
	for _, rec := range p.early[seq] {
		of.build(rec, build)
	}
	delete(p.early, seq)
}

// transaction builds a transaction, now or when its event is known.
func (p *pending) transaction(rec *kvscheduler.Record, build func(context.Context, *kvscheduler.Record)) {
	if rec.Event == 0 {
		build(context.Background(), rec) // a retry or a repair
		return
	}
	if of, known := p.events[rec.Event]; known {
		of.build(rec, build)
		return
	}
	if p.early[rec.Event] == nil {
		p.earlyOrder = append(p.earlyOrder, rec.Event)
	}
	p.early[rec.Event] = append(p.early[rec.Event], rec)
	if len(p.earlyOrder) > pendingMax {
		delete(p.early, p.earlyOrder[0]) // its event was dropped
		p.earlyOrder = p.earlyOrder[1:]
	}
}

func (of parents) build(rec *kvscheduler.Record, build func(context.Context, *kvscheduler.Record)) {
	ctx := of.commit
	if strings.HasPrefix(rec.Label, "undo ") {
		ctx = of.undo
	}
	if ctx == nil || trace.SpanContextFromContext(ctx).IsValid() && !trace.SpanContextFromContext(ctx).IsSampled() {
		return
	}
	build(ctx, rec)
}
