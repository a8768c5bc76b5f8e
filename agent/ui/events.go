package ui

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/proto/document"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// eventStream passes the records of Operations.Events to a function.
type eventStream struct {
	grpc.ServerStream
	ctx  context.Context
	send func(*operatorv1.EventRecord) error
}

// Context returns the context of the request.
func (s *eventStream) Context() context.Context { return s.ctx }

// Send passes a record on.
func (s *eventStream) Send(e *operatorv1.EventRecord) error { return s.send(e) }

func row(e *operatorv1.EventRecord) map[string]any { return document.Of(e.ProtoReflect()) }

// events reads the events of the agent.
type events struct {
	operations operatorv1.OperationsServer
	stopping   <-chan struct{} // closed when the agent stops

	streams atomic.Int32 // that are open
}

// list lists the last events, oldest first.
func (e *events) list(w http.ResponseWriter, r *http.Request) {
	last, err := number(r, "last")
	if err != nil {
		reply(w, nil, err)
		return
	}
	if last == 0 || last > maxEvents {
		last = maxEvents
	}
	rows, err := e.of(r, &operatorv1.EventsRequest{Last: uint32(last), Pod: r.URL.Query().Get("pod")})
	reply(w, map[string]any{"events": rows}, err)
}

// of returns the recorded events of a request, oldest first.
func (e *events) of(r *http.Request, req *operatorv1.EventsRequest) ([]any, error) {
	rows := []any{}
	collect := func(e *operatorv1.EventRecord) error {
		rows = append(rows, row(e))
		return nil
	}
	err := e.operations.Events(req, &eventStream{ctx: r.Context(), send: collect})
	return rows, err
}

// one returns the complete record of one event, and of its transactions.
func (e *events) one(w http.ResponseWriter, r *http.Request) {
	seq, err := number(r, "seq")
	if err != nil {
		reply(w, nil, err)
		return
	}
	var found *operatorv1.EventRecord
	pick := func(e *operatorv1.EventRecord) error {
		if e.Seq == seq {
			found = e
		}
		return nil
	}
	err = e.operations.Events(&operatorv1.EventsRequest{Since: seq}, &eventStream{ctx: r.Context(), send: pick})
	if err == nil && found == nil {
		err = status.Error(codes.NotFound,
			fmt.Sprintf("no recorded event has the number %d; the log holds only the last events", seq))
	}
	if err != nil {
		reply(w, nil, err)
		return
	}
	all, err := e.operations.Transactions(r.Context(), &operatorv1.TransactionsRequest{})
	if err != nil {
		reply(w, nil, err)
		return
	}
	transactions := []any{}
	for _, t := range all.Transactions {
		if isOf(t, found) {
			transactions = append(transactions, document.Of(t.ProtoReflect()))
		}
	}
	reply(w, map[string]any{"event": row(found), "transactions": transactions}, nil)
}

// isOf reports whether an event caused a transaction, or shares it with others.
func isOf(t *operatorv1.TransactionRecord, e *operatorv1.EventRecord) bool {
	if t.Event == e.Seq {
		return true
	}
	for _, seq := range e.Transactions {
		if seq == t.Seq {
			return true
		}
	}
	return false
}

// Times of a stream.
const (
	heartbeat    = 15 * time.Second // keeps proxies from closing an idle stream, and detects clients that are gone
	writeTimeout = 10 * time.Second
	retryAfter   = 30 * time.Second // for a client that got none
)

// maxStreams is the number of streams at one time. A page has one.
const maxStreams = 32

// stream sends new events as server-sent events, until the client leaves or the agent stops.
func (e *events) stream(w http.ResponseWriter, r *http.Request) {
	since, err := number(r, "since")
	if err != nil {
		reply(w, nil, err)
		return
	}
	defer e.streams.Add(-1)
	if e.streams.Add(1) > maxStreams {
		w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
		reply(w, nil, status.Errorf(codes.Unavailable, "%d streams of events are open: close other pages", maxStreams))
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	events := make(chan *operatorv1.EventRecord)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.operations.Events(&operatorv1.EventsRequest{Since: since, Follow: true, Last: maxEvents}, &eventStream{
			ctx: ctx,
			send: func(e *operatorv1.EventRecord) error {
				select {
				case events <- e:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			},
		})
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	e.forward(ctx, w, events, ended)
	cancel()
	<-ended
}

// forward writes events until the client or the agent ends.
func (e *events) forward(
	ctx context.Context, w http.ResponseWriter, events <-chan *operatorv1.EventRecord, ended <-chan struct{},
) {
	out := sse{w: w, control: http.NewResponseController(w)}
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	err := out.comment()
	for err == nil {
		select {
		case e := <-events:
			err = out.event(e)
		case <-tick.C:
			err = out.comment()
		case <-e.stopping:
			return
		case <-ended:
			return
		case <-ctx.Done():
			return
		}
	}
}
