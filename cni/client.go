package cni

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/internal/line"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// retryEvery is the pause between two attempts to reach an agent that restarts.
const retryEvery = 50 * time.Millisecond

// starting, in the details of a reply, says that the agent is there but does not serve yet.
const starting = "starting"

// restoring, in the details of a STATUS, says that the agent has just been started.
const restoring = "restoring"

// patience is for how long a call is tried again: since its beginning, while nobody
// listens; since an agent first said that it is starting, or went away during the
// call, while it restarts.
type patience struct{ silent, starting time.Duration }

type reply interface{ GetError() *weftv1.Error }

// ask makes one call of the agent. Its error is an unreachableError or a gRPC status.
func ask[R reply](ctx context.Context, socket string, p patience, call func(context.Context, weftv1.RemoteCNIClient) (R, error)) (R, error) {
	began, limit := time.Now(), p.silent
	for {
		answer, err := askOnce(ctx, socket, call)
		if err == nil && !isStarting(answer) {
			return answer, nil
		}
		if isRestarting(err) && limit < p.starting {
			began, limit = time.Now(), p.starting
		}
		if !worthRetrying(err) || time.Since(began)+2*retryEvery > limit || !pause(ctx, retryEvery) {
			return answer, err
		}
	}
}

// isRestarting is true if there was an agent; no error means that it says so itself.
func isRestarting(err error) bool { return err == nil || status.Code(err) == codes.Unavailable }

// worthRetrying is true for an agent that is away or starting, not for one that answered.
func worthRetrying(err error) bool {
	_, away := errors.AsType[*unreachableError](err)
	return away || isRestarting(err)
}

func isStarting(answer reply) bool {
	e := answer.GetError()
	return e.GetCode() == 11 && e.GetDetails() == starting
}

// pause waits, and is false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func askOnce[R reply](ctx context.Context, socket string, call func(context.Context, weftv1.RemoteCNIClient) (R, error)) (R, error) {
	var none R
	conn, err := dial(ctx, socket)
	if err != nil {
		return none, err
	}
	defer func() { _ = conn.Close() }()
	return call(ctx, weftv1.NewRemoteCNIClient(conn))
}

// dial connects at once, so that an agent that is away is known by the kernel's own
// error, and gives the connection to gRPC. That resolves nothing and asks no proxy.
func dial(ctx context.Context, socket string) (*grpc.ClientConn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, &unreachableError{socket, err}
	}
	var used atomic.Bool
	client, err := grpc.NewClient("passthrough:///weft-agent",
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if used.Swap(true) {
				return nil, errors.New("the agent closed the connection")
			}
			return conn, nil
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
	)
	if err != nil {
		_ = conn.Close()
		return nil, &unreachableError{socket, err}
	}
	return client, nil
}

// unreachableError says that no process listens at the socket.
type unreachableError struct {
	socket string
	err    error
}

// Error leaves out what the kernel's error repeats.
func (e *unreachableError) Error() string {
	err := e.err
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	return "agent not reachable at " + e.socket + ": " + err.Error()
}

// Unwrap gives the error of the connection.
func (e *unreachableError) Unwrap() error { return e.err }

// Weft's own codes that do not come from the agent.
const (
	errTimeout         uint = 106
	errVersionMismatch uint = 107
)

// failed makes the runtime's error of a call that the agent did not serve, or that it refused.
func failed(what string, err error, answer *weftv1.Error) error {
	if err == nil {
		return types.NewError(uint(answer.GetCode()), answer.GetMsg(), answer.GetDetails())
	}
	if _, ok := errors.AsType[*unreachableError](err); ok {
		return types.NewError(types.ErrTryAgainLater, err.Error(), "is weft-agent running?")
	}
	s := status.Convert(err)
	return types.NewError(codeOf(s.Code()), fmt.Sprintf("%s: %s", what, describe(s)), "gRPC "+s.Code().String())
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

func describe(s *status.Status) string {
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

// Runtimes take these words in an error of a DEL for success.
var (
	notFound   = regexp.MustCompile(`(?i)not[\s_-]*found`)
	noSuchFile = regexp.MustCompile(`(?i)no such file or directory`)
)

// presentable makes an error one line of bounded length, and safe for the verb that it answers.
func presentable(command string, e *types.Error) *types.Error {
	msg, rest, _ := strings.Cut(strings.TrimSpace(e.Msg), "\n")
	details := e.Details
	if details == "" {
		details = rest
	}
	msg, details = line.Of(msg, line.Error), line.Of(details, line.Error)
	if command == "DEL" {
		msg, details = safe(msg), safe(details)
	}
	return types.NewError(e.Code, msg, details)
}

func safe(text string) string {
	return noSuchFile.ReplaceAllString(notFound.ReplaceAllString(text, "missing"), "file is missing")
}
