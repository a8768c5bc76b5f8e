package agent

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Events streams the history of the event loop.
func (o *operations) Events(req *weftv1.EventsRequest, stream grpc.ServerStreamingServer[weftv1.EventRecord]) error {
	next := max(req.Since, 1) - 1 // the event before those wanted
	records := o.loop.History(next)
	if n := int(req.Last); n > 0 && len(records) > n {
		records = records[len(records)-n:]
	}
	for _, r := range records {
		if err := stream.Send(eventRecord(r)); err != nil {
			return err
		}
		next = r.Seq
	}
	if !req.Follow {
		return nil
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	go func() {
		defer cancel()
		select {
		case <-o.stopping:
		case <-ctx.Done():
		}
	}()
	for r := range o.loop.Watch(ctx, next) {
		if err := stream.Send(eventRecord(r)); err != nil {
			return err
		}
	}
	return nil
}

func eventRecord(r eventloop.Record) *weftv1.EventRecord {
	return &weftv1.EventRecord{
		Seq: r.Seq, Cause: r.Cause, Event: r.Event, Kind: r.Kind,
		Arrived: timestamppb.New(r.Arrived), Queued: took(r.Queued), Took: took(r.Took),
		Operations: uint32(r.Operations), Transactions: r.Transactions, Undone: r.Undone, Error: r.Err,
		Refused: r.Started.IsZero(), Repeats: uint32(r.Repeats),
		Json: document(r),
	}
}

// Transactions lists the scheduler's log.
func (o *operations) Transactions(_ context.Context, req *weftv1.TransactionsRequest) (*weftv1.TransactionsReply, error) {
	var records []*kvscheduler.Record
	for r := range o.scheduler.Log(max(req.Since, 1) - 1) {
		records = append(records, r)
	}
	if n := int(req.Last); n > 0 && len(records) > n {
		records = records[len(records)-n:]
	}
	reply := &weftv1.TransactionsReply{}
	for _, r := range records {
		reply.Transactions = append(reply.Transactions, transactionRecord(r))
	}
	return reply, nil
}

func transactionRecord(r *kvscheduler.Record) *weftv1.TransactionRecord {
	t := &weftv1.TransactionRecord{
		Seq: r.Seq, Event: r.Event, Origin: r.Origin, Label: r.Label, Start: timestamppb.New(r.Start),
		Queued: took(r.Queued), Took: took(r.Took), Undone: r.Undone, Error: r.Err, Json: document(r),
	}
	for _, op := range r.Ops {
		t.Operations = append(t.Operations, &weftv1.Operation{
			Ref: op.Ref, Verb: op.Verb, Why: op.Why, Level: uint32(op.Level), Batch: uint32(op.Batch),
			At: took(op.At), Took: took(op.Took), Error: op.Err,
		})
	}
	for _, w := range r.Pending {
		t.Waiting = append(t.Waiting, &weftv1.Waiting{Ref: w.Ref, Missing: w.Missing})
	}
	return t
}
