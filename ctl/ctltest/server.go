// Package ctltest provides a fake agent for tests of weftctl.
package ctltest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Replies are the replies of an [Agent].
type Replies struct {
	State        *weftv1.StateReply
	Attachments  *weftv1.AttachmentsReply
	Events       []*weftv1.EventRecord
	Live         []*weftv1.EventRecord // sent after Events to clients that follow
	Transactions []*weftv1.TransactionRecord
	Objects      *weftv1.ObjectsReply
	Why          *weftv1.WhyReply
	Addresses    *weftv1.AddressesReply
	Devices      *weftv1.DevicesReply
	Counters     *weftv1.CountersReply
	Settings     *weftv1.SettingsReply
	Resync       *weftv1.ResyncReply
	Configure    *weftv1.ConfigureReply
	Garbage      *weftv1.CollectGarbageReply

	Err    error // fails every request
	Silent bool  // requests block until the client gives up
	Stops  bool  // ends a followed stream of events
}

// Agent serves weft.v1.Operations and records the requests.
type Agent struct {
	weftv1.UnimplementedOperationsServer
	replies Replies

	mu       sync.Mutex
	requests []proto.Message
}

// Serve starts an Agent at a Unix socket. It runs until stop is called.
func Serve(socket string, replies Replies) (agent *Agent, stop func(), err error) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, nil, fmt.Errorf("fake agent: %w", err)
	}
	agent = &Agent{replies: replies}
	server := grpc.NewServer()
	weftv1.RegisterOperationsServer(server, agent)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // returns after Stop
	}()
	return agent, func() { server.Stop(); <-ended }, nil
}

// Requests returns the requests so far.
func (a *Agent) Requests() []proto.Message {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.requests)
}

// record records a request, and returns the error of the reply.
func (a *Agent) record(ctx context.Context, req proto.Message) error {
	a.mu.Lock()
	a.requests = append(a.requests, req)
	a.mu.Unlock()
	if a.replies.Silent {
		<-ctx.Done()
		return ctx.Err()
	}
	return a.replies.Err
}

// State returns the prepared reply.
func (a *Agent) State(ctx context.Context, req *weftv1.StateRequest) (*weftv1.StateReply, error) {
	return a.replies.State, a.record(ctx, req)
}

// Attachments returns the prepared reply.
func (a *Agent) Attachments(ctx context.Context, req *weftv1.AttachmentsRequest) (*weftv1.AttachmentsReply, error) {
	return a.replies.Attachments, a.record(ctx, req)
}

// Events streams the recorded events, then the live ones if the client follows.
func (a *Agent) Events(req *weftv1.EventsRequest, stream grpc.ServerStreamingServer[weftv1.EventRecord]) error {
	if err := a.record(stream.Context(), req); err != nil {
		return err
	}
	events := a.replies.Events
	if n := int(req.Last); n > 0 && len(events) > n {
		events = events[len(events)-n:]
	}
	if req.Follow {
		events = slices.Concat(events, a.replies.Live)
	}
	var errs []error
	for _, e := range events {
		errs = append(errs, stream.Send(e))
	}
	if req.Follow && !a.replies.Stops {
		<-stream.Context().Done()
	}
	return errors.Join(errs...)
}

// Transactions returns the prepared reply.
func (a *Agent) Transactions(ctx context.Context, req *weftv1.TransactionsRequest) (*weftv1.TransactionsReply, error) {
	transactions := a.replies.Transactions
	if n := int(req.Last); n > 0 && len(transactions) > n {
		transactions = transactions[len(transactions)-n:]
	}
	return &weftv1.TransactionsReply{Transactions: transactions}, a.record(ctx, req)
}

// Objects returns the prepared reply.
func (a *Agent) Objects(ctx context.Context, req *weftv1.ObjectsRequest) (*weftv1.ObjectsReply, error) {
	return a.replies.Objects, a.record(ctx, req)
}

// Why returns the prepared reply.
func (a *Agent) Why(ctx context.Context, req *weftv1.WhyRequest) (*weftv1.WhyReply, error) {
	return a.replies.Why, a.record(ctx, req)
}

// Addresses returns the prepared reply.
func (a *Agent) Addresses(ctx context.Context, req *weftv1.AddressesRequest) (*weftv1.AddressesReply, error) {
	return a.replies.Addresses, a.record(ctx, req)
}

// Devices returns the prepared reply.
func (a *Agent) Devices(ctx context.Context, req *weftv1.DevicesRequest) (*weftv1.DevicesReply, error) {
	return a.replies.Devices, a.record(ctx, req)
}

// Counters returns the prepared reply.
func (a *Agent) Counters(ctx context.Context, req *weftv1.CountersRequest) (*weftv1.CountersReply, error) {
	return a.replies.Counters, a.record(ctx, req)
}

// Settings returns the prepared reply.
func (a *Agent) Settings(ctx context.Context, req *weftv1.SettingsRequest) (*weftv1.SettingsReply, error) {
	return a.replies.Settings, a.record(ctx, req)
}

// Configure returns the prepared reply.
func (a *Agent) Configure(ctx context.Context, req *weftv1.ConfigureRequest) (*weftv1.ConfigureReply, error) {
	return a.replies.Configure, a.record(ctx, req)
}

// Resync returns the prepared reply.
func (a *Agent) Resync(ctx context.Context, req *weftv1.ResyncRequest) (*weftv1.ResyncReply, error) {
	return a.replies.Resync, a.record(ctx, req)
}

// CollectGarbage returns the prepared reply.
func (a *Agent) CollectGarbage(ctx context.Context, req *weftv1.CollectGarbageRequest) (*weftv1.CollectGarbageReply, error) {
	return a.replies.Garbage, a.record(ctx, req)
}
