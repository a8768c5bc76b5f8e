package operations

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weftnet/weft/agent/owners"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// journal lists the events of the event loop and the transactions of the scheduler.
type journal struct {
	loop      *eventloop.Loop
	scheduler *kvscheduler.Scheduler
	owners    *owners.Index
	stopping  <-chan struct{}
}

// Events streams the selected events of the event loop.
func (j *journal) Events(
	req *operatorv1.EventsRequest, stream grpc.ServerStreamingServer[operatorv1.EventRecord],
) error {
	next := max(req.Since, 1) - 1 // the number before the first requested event
	recorded := j.loop.History(next)
	of := j.concerned()
	selected := slices.DeleteFunc(slices.Clone(recorded), func(r eventloop.Record) bool { return !of.selects(req, &r) })
	for _, r := range last(selected, req.Last) {
		if err := stream.Send(of.record(&r)); err != nil {
			return err
		}
	}
	if len(recorded) > 0 {
		next = recorded[len(recorded)-1].Seq
	}
	if !req.Follow {
		return nil
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	go func() {
		defer cancel()
		select {
		case <-j.stopping:
		case <-ctx.Done():
		}
	}()
	for r := range j.loop.Watch(ctx, next) {
		of := j.concerned()
		if !of.selects(req, &r) {
			continue
		}
		if err := stream.Send(of.record(&r)); err != nil {
			return err
		}
	}
	return nil
}

func (j *journal) concerned() *concerned {
	c := &concerned{owners: j.owners.Now(), log: make(map[uint64]*kvscheduler.Record)}
	for r := range j.scheduler.Log(0) {
		c.log[r.Seq] = r
	}
	return c
}

// selects reports whether a request selects an event. An event is of a pod if its text names the pod, or if it changed
// objects of the pod.
func (c *concerned) selects(req *operatorv1.EventsRequest, r *eventloop.Record) bool {
	switch {
	case req.Through != 0 && r.Seq > req.Through,
		req.After != nil && r.Arrived.Before(req.After.AsTime()),
		req.Before != nil && !r.Arrived.Before(req.Before.AsTime()),
		req.Failed && r.Err == "" && !r.Undone && len(r.Stuck) == 0:
		return false
	}
	return req.Pod == "" || isOf(r.Event, req.Pod) || isOwned(c.by(r), req.Pod)
}

// isOf reports whether the text of an event names a pod, as a word of its own.
func isOf(event, pod string) bool {
	return slices.Contains(strings.FieldsFunc(event, func(r rune) bool { return strings.ContainsRune(" ,;:()", r) }),
		pod)
}

func (c *concerned) record(r *eventloop.Record) *operatorv1.EventRecord {
	all := c.by(r)
	e := &operatorv1.EventRecord{
		Seq:       r.Seq,
		Event:     r.Event,
		Type:      r.Type,
		Kind:      r.Kind,
		Direction: r.Direction,
		Atomic:    r.Atomic,
		Order:     r.Order, LeftOut: r.LeftOut,
		Arrived: timestamppb.New(r.Arrived), Started: stamp(r.Started), Queued: took(r.Queued), Took: took(r.Took),
		Changes: uint32(r.Changes), External: uint32(r.External),
		Operations:   uint32(r.Operations),
		Transactions: r.Transactions,
		Pending:      r.Pending,
		TakenDown:    r.TakenDown,
		Undone:       r.Undone,
		Stuck:        r.Stuck,
		Error:        r.Err,
		Refused:      r.Started.IsZero(),
		Repeats:      uint32(r.Repeats),
		Last:         stamp(r.Last),
		CancelledBy:  r.CancelledBy,
		Verify:       r.Verify,
		Stack:        r.Stack,
		Request:      r.Request, Owners: ownersOf(all[:min(len(all), mostOwners)]), SharedWith: r.SharedWith,
		OwnerNames: c.namesAt(slices.Concat(r.Pending, r.Stuck), r.Started.Add(r.Took)),
	}
	for _, s := range r.Steps {
		e.Steps = append(e.Steps, &operatorv1.EventStep{
			Number: uint32(s.Number),
			Name:   s.Name,
			Took:   took(s.Took),
			Error:  s.Err,
		})
	}
	for _, h := range r.Handlers {
		e.Handlers = append(e.Handlers, &operatorv1.EventHandler{
			Name:    h.Name,
			Took:    took(h.Took),
			Error:   h.Err,
			Changes: h.Changes,
		})
	}
	for _, d := range r.Drops {
		e.Drops = append(e.Drops, &operatorv1.EventDrop{Key: d.Key, Source: d.Source, Reason: d.Reason})
	}
	return e
}

// Transactions lists the scheduler's log.
func (j *journal) Transactions(
	_ context.Context, req *operatorv1.TransactionsRequest,
) (*operatorv1.TransactionsReply, error) {
	reply := &operatorv1.TransactionsReply{}
	of := j.owners.Now()
	for r := range j.scheduler.Log(max(req.Since, 1) - 1) {
		if req.Through == 0 || r.Seq <= req.Through {
			reply.Transactions = append(reply.Transactions, transactionRecord(r, of))
		}
	}
	reply.Transactions = last(reply.Transactions, req.Last)
	return reply, nil
}

func transactionRecord(r *kvscheduler.Record, of *owners.Snapshot) *operatorv1.TransactionRecord {
	end := r.Start.Add(r.Took)
	t := &operatorv1.TransactionRecord{
		Seq:    r.Seq,
		Event:  r.Event,
		Origin: r.Origin,
		Source: r.Source,
		Label:  r.Label,
		Merged: r.Merged,
		Start:  timestamppb.New(r.Start),
		Queued: took(r.Queued), PlanTook: took(r.PlanTook), Took: took(r.Took), Changed: uint32(r.Changed),
		Undone: r.Undone, Rollback: r.Rollback, Error: r.Err,
	}
	for _, op := range r.Ops {
		t.Operations = append(t.Operations, &operatorv1.Operation{
			Ref:     op.Ref,
			Verb:    op.Verb,
			Why:     op.Why,
			Level:   uint32(op.Level),
			Batch:   uint32(op.Batch),
			At:      took(op.At),
			Took:    took(op.Took),
			Attempt: uint32(op.Attempt),
			Old:     valueDocument(op.Old),
			New:     valueDocument(op.New),
			Outcome: op.Outcome,
			Error:   op.Err,
			Owners:  ownersOf(of.At(op.Ref, end)),
		})
	}
	for _, w := range r.Pending {
		t.Waiting = append(t.Waiting, &operatorv1.Waiting{
			Ref:     w.Ref,
			Missing: w.Missing,
			Lost:    w.Lost,
			Owners:  ownersOf(of.At(w.Ref, end)),
		})
	}
	return t
}

// valueDocument returns a redacted value as JSON; nil stays nil.
func valueDocument(v any) []byte {
	if v == nil {
		return nil
	}
	return document(v)
}

// last returns the last n records; 0 is all.
func last[R any](records []R, n uint32) []R {
	if n == 0 {
		return records
	}
	return records[max(0, len(records)-int(n)):]
}
