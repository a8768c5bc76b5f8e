// Package cnitest has a fake agent that records requests and can fail.
package cnitest

import (
	"context"
	"net"
	"os"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Behaviour determines the reply of an [Agent].
type Behaviour string

// The behaviours.
const (
	Serve       Behaviour = "serve"
	Starting    Behaviour = "starting"    // code 11 with these details
	Unavailable Behaviour = "unavailable" // starting, as a gRPC status
	Hang        Behaviour = "hang"        // until the caller's context ends
	Restoring   Behaviour = "restoring"   // code 50 with these details, of a STATUS during the first resync
	Deny        Behaviour = "deny"        // as for a caller that is not root
	Refuse      Behaviour = "refuse"      // with Agent.Error
	Nonsense    Behaviour = "nonsense"    // an ADD that succeeds with an invalid address
	Old         Behaviour = "old"         // an agent of an earlier release, without Find and Address
)

// Agent is a server of weft.v1.RemoteCNI.
type Agent struct {
	weftv1.UnimplementedRemoteCNIServer

	// Answer is the reply of Add and Address; nil is an empty reply. Error is the error of Refuse.
	Answer *weftv1.AddReply
	Error  *weftv1.Error
	Had    *weftv1.AddReply // the reply of Find

	mu        sync.Mutex
	behaviour []Behaviour // the last one is kept
	requests  []proto.Message
}

// Listen serves at socket until the test ends, or until stop is called.
func (a *Agent) Listen(t testing.TB, socket string) (stop func()) {
	t.Helper()
	_ = os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	weftv1.RegisterRemoteCNIServer(server, a)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	stop = sync.OnceFunc(func() {
		server.Stop()
		serving.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// Behave sets the behaviours of the next calls, one each. The last one applies to all later calls.
func (a *Agent) Behave(behaviour ...Behaviour) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.behaviour = behaviour
}

// Requests returns the requests since its last call.
func (a *Agent) Requests() []proto.Message {
	a.mu.Lock()
	defer a.mu.Unlock()
	requests := a.requests
	a.requests = nil
	return requests
}

// take records a request and returns the behaviour for it.
func (a *Agent) take(ctx context.Context, req proto.Message) (Behaviour, *weftv1.Error, error) {
	behaviour := a.next(req)
	switch behaviour {
	case Restoring:
		return behaviour, &weftv1.Error{
			Code:    50,
			Msg:     "agent is starting: the first resync has not ended",
			Details: "restoring",
		}, nil
	case Starting:
		return behaviour, &weftv1.Error{Code: 11, Msg: "agent is starting: resync under way", Details: "starting"}, nil
	case Unavailable:
		return behaviour, nil, status.Error(codes.Unavailable, "not serving yet")
	case Deny:
		return behaviour, nil, status.Error(codes.PermissionDenied,
			"user 1000 may not use the agent's socket: only root may")
	case Hang:
		<-ctx.Done()
		return behaviour, nil, ctx.Err()
	case Refuse:
		return behaviour, a.Error, nil
	}
	return behaviour, nil, nil
}

func (a *Agent) next(req proto.Message) Behaviour {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = append(a.requests, req)
	if len(a.behaviour) == 0 {
		return Serve
	}
	b := a.behaviour[0]
	if len(a.behaviour) > 1 {
		a.behaviour = a.behaviour[1:]
	}
	return b
}

// Add returns Answer.
func (a *Agent) Add(ctx context.Context, req *weftv1.AddRequest) (*weftv1.AddReply, error) {
	return a.answer(a.take(ctx, req))
}

func (a *Agent) answer(behaviour Behaviour, refusal *weftv1.Error, err error) (*weftv1.AddReply, error) {
	switch {
	case err != nil:
		return nil, err
	case behaviour == Nonsense:
		return &weftv1.AddReply{Ips: []*weftv1.IP{{Address: "10.1.1.300/32"}}}, nil
	case refusal != nil || a.Answer == nil:
		return &weftv1.AddReply{Error: refusal}, nil
	}
	return a.Answer, nil
}

// Address returns Answer.
func (a *Agent) Address(ctx context.Context, req *weftv1.AddRequest) (*weftv1.AddReply, error) {
	behaviour, refusal, err := a.take(ctx, req)
	if behaviour == Old {
		return nil, status.Error(codes.Unimplemented, "unknown method Address")
	}
	return a.answer(behaviour, refusal, err)
}

// Find returns Had.
func (a *Agent) Find(ctx context.Context, req *weftv1.FindRequest) (*weftv1.FindReply, error) {
	behaviour, refusal, err := a.take(ctx, req)
	if behaviour == Old {
		return nil, status.Error(codes.Unimplemented, "unknown method Find")
	}
	return &weftv1.FindReply{Error: refusal, Found: a.Had}, err
}

// Delete succeeds.
func (a *Agent) Delete(ctx context.Context, req *weftv1.DeleteRequest) (*weftv1.DeleteReply, error) {
	_, refusal, err := a.take(ctx, req)
	return &weftv1.DeleteReply{Error: refusal}, err
}

// Check succeeds.
func (a *Agent) Check(ctx context.Context, req *weftv1.CheckRequest) (*weftv1.CheckReply, error) {
	_, refusal, err := a.take(ctx, req)
	return &weftv1.CheckReply{Error: refusal}, err
}

// Status succeeds.
func (a *Agent) Status(ctx context.Context, req *weftv1.StatusRequest) (*weftv1.StatusReply, error) {
	_, refusal, err := a.take(ctx, req)
	return &weftv1.StatusReply{Error: refusal}, err
}

// Collect does not remove attachments.
func (a *Agent) Collect(ctx context.Context, req *weftv1.CollectRequest) (*weftv1.CollectReply, error) {
	_, refusal, err := a.take(ctx, req)
	return &weftv1.CollectReply{Error: refusal}, err
}
