// Package ctltest provides a fake agent for tests of weftctl.
package ctltest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// Replies are the replies of an [Agent].
type Replies struct {
	State        *operatorv1.StateReply
	Attachments  *operatorv1.AttachmentsReply
	Events       []*operatorv1.EventRecord
	Live         []*operatorv1.EventRecord // sent after Events to clients that follow
	Transactions []*operatorv1.TransactionRecord
	Objects      *operatorv1.ObjectsReply
	Why          *operatorv1.WhyReply
	Addresses    *operatorv1.AddressesReply
	Devices      *operatorv1.DevicesReply
	Policy       *operatorv1.PolicyReply
	Counters     *operatorv1.CountersReply
	Settings     *operatorv1.SettingsReply
	Resync       *operatorv1.ResyncReply
	Configure    *operatorv1.ConfigureReply
	Garbage      *operatorv1.CollectGarbageReply

	Err    error // fails every request
	Empty  bool  // calls without a reply of their own get one without values
	Silent bool  // requests block until the client gives up
	Stops  bool  // ends a followed stream of events

	Packets []*operatorv1.CapturedPacket // of each capture
}

// Agent serves weft.operator.v1.Operations and records the requests.
type Agent struct {
	operatorv1.UnimplementedOperationsServer
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
	server := grpc.NewServer(grpc.UnaryInterceptor(agent.intercept))
	operatorv1.RegisterOperationsServer(server, agent)
	operatorv1.RegisterDataplaneServer(server, operatorv1.UnimplementedDataplaneServer{})
	operatorv1.RegisterPlanningServer(server, operatorv1.UnimplementedPlanningServer{})
	operatorv1.RegisterPacketsServer(server, packets{agent: agent})
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

// intercept replies to all calls with one reply.
func (a *Agent) intercept(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	if err := a.record(ctx, req.(proto.Message)); err != nil {
		return nil, err
	}
	switch req := req.(type) {
	case *operatorv1.StateRequest:
		return a.replies.State, nil
	case *operatorv1.AttachmentsRequest:
		return a.replies.Attachments, nil
	case *operatorv1.TransactionsRequest:
		selected := slices.DeleteFunc(slices.Clone(a.replies.Transactions), func(t *operatorv1.TransactionRecord) bool {
			return t.Seq < req.Since || req.Through != 0 && t.Seq > req.Through
		})
		return &operatorv1.TransactionsReply{Transactions: last(selected, req.Last)}, nil
	case *operatorv1.ObjectsRequest:
		return a.replies.Objects, nil
	case *operatorv1.WhyRequest:
		return a.replies.Why, nil
	case *operatorv1.AddressesRequest:
		return a.replies.Addresses, nil
	case *operatorv1.PolicyRequest:
		return a.replies.Policy, nil
	case *operatorv1.DevicesRequest:
		return a.replies.Devices, nil
	case *operatorv1.CountersRequest:
		return a.replies.Counters, nil
	case *operatorv1.SettingsRequest:
		return a.replies.Settings, nil
	case *operatorv1.ConfigureRequest:
		return a.replies.Configure, nil
	case *operatorv1.ResyncRequest:
		return a.replies.Resync, nil
	case *operatorv1.CollectGarbageRequest:
		return a.replies.Garbage, nil
	}
	if a.replies.Empty {
		return emptyReply(info.FullMethod)
	}
	return handler(ctx, req) // which is not implemented
}

// emptyReply returns a reply of a method, /SERVICE/METHOD, without values.
func emptyReply(method string) (proto.Message, error) {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil, err
	}
	output := found.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(name)).Output()
	reply, err := protoregistry.GlobalTypes.FindMessageByName(output.FullName())
	if err != nil {
		return nil, err
	}
	return reply.New().Interface(), nil
}

// Events streams the recorded events, then the live ones if the client follows.
func (a *Agent) Events(req *operatorv1.EventsRequest, stream grpc.ServerStreamingServer[operatorv1.EventRecord]) error {
	if err := a.record(stream.Context(), req); err != nil {
		return err
	}
	recorded := slices.DeleteFunc(slices.Clone(a.replies.Events), func(e *operatorv1.EventRecord) bool {
		return e.Seq < req.Since
	})
	events := last(recorded, req.Last)
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

// last returns the last n elements; 0 is all.
func last[E any](all []E, n uint32) []E {
	if n == 0 {
		return all
	}
	return all[max(0, len(all)-int(n)):]
}
