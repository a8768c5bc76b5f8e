package ctl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// maxReply limits the size of a reply: a node with 1,000 pods has about 20,000 objects of 1 to 2 KiB.
const maxReply = 256 << 20

// request calls the agent.
type request func(ctx context.Context, agent weftv1.OperationsClient) error

// ask runs a request with the timeout of --timeout.
func (c *client) ask(ctx context.Context, r request) error {
	return c.askFor(ctx, c.timeout, r)
}

// askFor runs a request with a timeout; 0 is no timeout.
func (c *client) askFor(ctx context.Context, timeout time.Duration, r request) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	d := &dialer{socket: c.socket}
	conn, err := grpc.NewClient("passthrough:///weft-agent", grpc.WithContextDialer(d.dial), grpc.WithNoProxy(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)))
	if err != nil {
		return fmt.Errorf("agent at %s: %w", c.socket, err)
	}
	defer conn.Close()
	err = r(ctx, weftv1.NewOperationsClient(conn))
	return c.explain(err, d.failure(), timeout)
}

// explain converts a gRPC error into one line that says what to do.
func (c *client) explain(err, dialing error, timeout time.Duration) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	switch s.Code() {
	case codes.Unavailable:
		reason := "connection closed: " + s.Message()
		if dialing != nil {
			reason = dialing.Error()
		}
		return fmt.Errorf("no agent answers at %s: %s; is weft-agent running? (needs root)", c.socket, reason)
	case codes.DeadlineExceeded:
		return fmt.Errorf("the agent at %s did not answer within %s; set a longer --timeout", c.socket, timeout)
	case codes.Unimplemented:
		return fmt.Errorf("the agent at %s does not implement this command: compare its version (weftctl status) with weftctl --version", c.socket)
	}
	return fmt.Errorf("the agent at %s: %s", c.socket, s.Message())
}

// dialer connects to the agent's socket and keeps the last error, which gRPC reports only as text.
type dialer struct {
	socket string

	mu  sync.Mutex
	err error
}

func (d *dialer) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", d.socket)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
	return conn, err
}

// failure returns the last error, reduced to the errno.
func (d *dialer) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if errno, ok := errors.AsType[syscall.Errno](d.err); ok {
		return errno
	}
	return d.err
}
