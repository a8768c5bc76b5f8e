// Package ctltest has an agent that answers operators with what a test prepared.
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

// Replies are the answers that an [Agent] gives.
type Replies struct {
	State        *weftv1.StateReply
	Attachments  *weftv1.AttachmentsReply
	Events       []*weftv1.EventRecord
	Live         []*weftv1.EventRecord // what follows the others for who follows
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

	Err    error // fails every question
	Silent bool  // no question is answered before its asker gives up
	Leaves bool  // the stream of events ends although it is followed
}

// Agent serves weft.v1.Operations and remembers what it was asked.
type Agent struct {
	weftv1.UnimplementedOperationsServer
	replies Replies

	mu    sync.Mutex
	asked []proto.Message
}

// Serve answers at a unix socket until stop is called.
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
		_ = server.Serve(listener) // ends with Stop
	}()
	return agent, func() { server.Stop(); <-ended }, nil
}

// Asked lists the questions so far.
func (a *Agent) Asked() []proto.Message {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.asked)
}

// hear notes a question; an error is its answer.
func (a *Agent) hear(ctx context.Context, question proto.Message) error {
	a.mu.Lock()
	a.asked = append(a.asked, question)
	a.mu.Unlock()
	if a.replies.Silent {
		<-ctx.Done()
		return ctx.Err()
	}
	return a.replies.Err
}

// State answers.
func (a *Agent) State(ctx context.Context, req *weftv1.StateRequest) (*weftv1.StateReply, error) {
	return a.replies.State, a.hear(ctx, req)
}

// Attachments answers.
func (a *Agent) Attachments(ctx context.Context, req *weftv1.AttachmentsRequest) (*weftv1.AttachmentsReply, error) {
	return a.replies.Attachments, a.hear(ctx, req)
}

// Events streams the events, then the live ones for who follows.
func (a *Agent) Events(req *weftv1.EventsRequest, stream grpc.ServerStreamingServer[weftv1.EventRecord]) error {
	if err := a.hear(stream.Context(), req); err != nil {
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
	if req.Follow && !a.replies.Leaves {
		<-stream.Context().Done()
	}
	return errors.Join(errs...)
}

// Transactions answers.
func (a *Agent) Transactions(ctx context.Context, req *weftv1.TransactionsRequest) (*weftv1.TransactionsReply, error) {
	transactions := a.replies.Transactions
	if n := int(req.Last); n > 0 && len(transactions) > n {
		transactions = transactions[len(transactions)-n:]
	}
	return &weftv1.TransactionsReply{Transactions: transactions}, a.hear(ctx, req)
}

// Objects answers.
func (a *Agent) Objects(ctx context.Context, req *weftv1.ObjectsRequest) (*weftv1.ObjectsReply, error) {
	return a.replies.Objects, a.hear(ctx, req)
}

// Why answers.
func (a *Agent) Why(ctx context.Context, req *weftv1.WhyRequest) (*weftv1.WhyReply, error) {
	return a.replies.Why, a.hear(ctx, req)
}

// Addresses answers.
func (a *Agent) Addresses(ctx context.Context, req *weftv1.AddressesRequest) (*weftv1.AddressesReply, error) {
	return a.replies.Addresses, a.hear(ctx, req)
}

// Devices answers.
func (a *Agent) Devices(ctx context.Context, req *weftv1.DevicesRequest) (*weftv1.DevicesReply, error) {
	return a.replies.Devices, a.hear(ctx, req)
}

// Counters answers.
func (a *Agent) Counters(ctx context.Context, req *weftv1.CountersRequest) (*weftv1.CountersReply, error) {
	return a.replies.Counters, a.hear(ctx, req)
}

// Settings answers.
func (a *Agent) Settings(ctx context.Context, req *weftv1.SettingsRequest) (*weftv1.SettingsReply, error) {
	return a.replies.Settings, a.hear(ctx, req)
}

// Configure answers.
func (a *Agent) Configure(ctx context.Context, req *weftv1.ConfigureRequest) (*weftv1.ConfigureReply, error) {
	return a.replies.Configure, a.hear(ctx, req)
}

// Resync answers.
func (a *Agent) Resync(ctx context.Context, req *weftv1.ResyncRequest) (*weftv1.ResyncReply, error) {
	return a.replies.Resync, a.hear(ctx, req)
}

// CollectGarbage answers.
func (a *Agent) CollectGarbage(ctx context.Context, req *weftv1.CollectGarbageRequest) (*weftv1.CollectGarbageReply, error) {
	return a.replies.Garbage, a.hear(ctx, req)
}
