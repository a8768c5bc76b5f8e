package cni

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/internal/line"
	"github.com/weftnet/weft/internal/retry"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// retryInterval is the time between two attempts of a call.
const retryInterval = 50 * time.Millisecond

// Details of replies of an agent that does not serve pods yet.
const (
	detailStarting  = "starting"
	detailRestoring = "restoring" // in a STATUS: the first resync runs
)

// endpoint is the agent's socket, and for how long a call is retried.
type endpoint struct {
	socket      string
	unreachable time.Duration // while no process listens: since the first attempt
	starting    time.Duration // while the agent starts: since its first such reply, or since it closed the connection
}

// restartTime limits how long an ADD waits for an agent that starts.
const restartTime = 10 * time.Second

func (c *weftConf) endpoint() endpoint {
	return endpoint{socket: c.Socket, unreachable: time.Duration(c.DialTimeout)}
}

func (c *weftConf) addEndpoint() endpoint {
	e := c.endpoint()
	e.starting = restartTime
	return e
}

type reply interface{ GetError() *weftv1.Error }

// method is a method expression of the gRPC client.
type method[Q any, R reply] func(
	agent weftv1.RemoteCNIClient, ctx context.Context, req Q, opts ...grpc.CallOption,
) (R, error)

// ask calls a method of the agent. The error is an unreachableError or a gRPC status.
func ask[Q any, R reply](ctx context.Context, e endpoint, call method[Q, R], req Q) (R, error) {
	began := time.Now()
	limit := e.unreachable
	for {
		answer, err := askOnce(ctx, e.socket, call, req)
		if err == nil && !isStarting(answer) {
			return answer, nil
		}
		if isRestarting(err) && limit < e.starting {
			began = time.Now()
			limit = e.starting
		}
		if !isRetryable(err) || time.Since(began)+2*retryInterval > limit || retry.Pause(ctx, retryInterval) != nil {
			return answer, err
		}
	}
}

// isRestarting reports whether the agent accepted the connection and does not serve yet. A nil error is a starting
// reply.
func isRestarting(err error) bool { return err == nil || status.Code(err) == codes.Unavailable }

func isRetryable(err error) bool {
	_, unreachable := errors.AsType[*unreachableError](err)
	return unreachable || isRestarting(err)
}

func isStarting(answer reply) bool {
	e := answer.GetError()
	return e.GetCode() == uint32(types.ErrTryAgainLater) && e.GetDetails() == detailStarting
}

func askOnce[Q any, R reply](ctx context.Context, socket string, call method[Q, R], req Q) (R, error) {
	var none R
	conn, err := weftv1.Connect(ctx, socket)
	if err != nil {
		return none, &unreachableError{socket, err}
	}
	defer func() { _ = conn.Close() }()
	return call(weftv1.NewRemoteCNIClient(conn), withTrace(ctx), req)
}

// unreachableError means that no process listens at the socket.
type unreachableError struct {
	socket string
	err    error
}

// Error omits the address that a net.OpError repeats.
func (e *unreachableError) Error() string {
	err := e.err
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	return "agent not reachable at " + e.socket + ": " + err.Error()
}

// Unwrap returns the error of the connection.
func (e *unreachableError) Unwrap() error { return e.err }

// Weft's error codes that the plugin sets itself.
const (
	errTimeout         uint = 106
	errVersionMismatch uint = 107
)

// callError returns the CNI error of a call that failed, or that the agent refused; nil if it succeeded.
func callError(what string, err error, refusal *weftv1.Error) error {
	switch {
	case err == nil && refusal == nil:
		return nil
	case err == nil:
		return types.NewError(uint(refusal.GetCode()), refusal.GetMsg(), refusal.GetDetails())
	}
	if _, ok := errors.AsType[*unreachableError](err); ok {
		return types.NewError(types.ErrTryAgainLater, err.Error(), "is weft-agent running?")
	}
	s := status.Convert(err)
	return types.NewError(codeOf(s.Code()), fmt.Sprintf("%s: %s", what, describeStatus(s)), "gRPC "+s.Code().String())
}

func codeOf(c codes.Code) uint {
	switch c {
	case codes.DeadlineExceeded, codes.Canceled:
		return errTimeout
	case codes.Unavailable, codes.ResourceExhausted:
		return types.ErrTryAgainLater
	case codes.Unimplemented:
		return errVersionMismatch
	}
	return types.ErrInternal
}

func describeStatus(s *status.Status) string {
	switch s.Code() {
	case codes.DeadlineExceeded:
		return "the agent did not answer in time"
	case codes.Unavailable:
		return "the agent went away or does not serve yet: " + s.Message()
	case codes.PermissionDenied:
		return "the agent refuses this caller: " + s.Message()
	case codes.Unimplemented:
		return "the agent does not know this call, it is older than the plugin: " + s.Message()
	}
	return s.Message()
}

// Runtimes treat a DEL as successful if its error contains these words.
var (
	notFound   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)not[\s_-]*found`) })
	noSuchFile = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)no such file or directory`) })
)

// sanitise returns the error on one line of bounded length, for a DEL without words that mean success.
func sanitise(command string, e *types.Error) *types.Error {
	msg, rest, _ := strings.Cut(strings.TrimSpace(e.Msg), "\n")
	details := e.Details
	if details == "" {
		details = rest
	}
	msg = line.Of(msg, line.Error)
	details = line.Of(details, line.Error)
	if command == "DEL" {
		msg = hideNotFound(msg)
		details = hideNotFound(details)
	}
	return types.NewError(e.Code, msg, details)
}

func hideNotFound(text string) string {
	return noSuchFile().ReplaceAllString(notFound().ReplaceAllString(text, "missing"), "file is missing")
}
