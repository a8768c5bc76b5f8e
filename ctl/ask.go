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

// maxReply bounds an answer: a node with a thousand pods has some 20,000 objects of a kilobyte or two.
const maxReply = 256 << 20

// question is what one command wants of the agent.
type question func(ctx context.Context, agent weftv1.OperationsClient) error

// ask puts a question that is answered at once.
func (c *client) ask(ctx context.Context, q question) error {
	return c.askFor(ctx, c.timeout, q)
}

// askFor puts a question that may take as long as patience; 0 is for ever.
func (c *client) askFor(ctx context.Context, patience time.Duration, q question) error {
	if patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
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
	err = q(ctx, weftv1.NewOperationsClient(conn))
	return c.explain(err, d.failure(), patience)
}

// explain makes an error of gRPC one line that says what to do.
func (c *client) explain(err, dialing error, patience time.Duration) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	switch s.Code() {
	case codes.Unavailable:
		reason := "it hung up: " + s.Message()
		if dialing != nil {
			reason = dialing.Error()
		}
		return fmt.Errorf("no agent answers at %s: %s; is weft-agent running? (needs root)", c.socket, reason)
	case codes.DeadlineExceeded:
		return fmt.Errorf("the agent at %s gave no answer within %s; --timeout waits longer", c.socket, patience)
	case codes.Unimplemented:
		return fmt.Errorf("the agent at %s does not know this command: is it of another version? weftctl status shows it", c.socket)
	}
	return fmt.Errorf("the agent at %s: %s", c.socket, s.Message())
}

// dialer connects to the agent's socket and remembers why it could not.
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

// failure is the reason alone, as the kernel puts it.
func (d *dialer) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if errno, ok := errors.AsType[syscall.Errno](d.err); ok {
		return errno
	}
	return d.err
}
