package ctl

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// maxReply limits the size of a reply: a node with 1,000 pods has about 20,000 objects of 1 to 2 KiB.
const maxReply = 256 << 20

// agent is the agent of this node.
type agent struct {
	socket  string
	timeout time.Duration // of a request; 0 is no timeout
}

// method is a method of the agent that returns one reply, for example operatorv1.OperationsClient.State.
type method[Request any, Reply proto.Message] func(
	operatorv1.OperationsClient, context.Context, Request, ...grpc.CallOption,
) (Reply, error)

// call calls a method of the agent.
func call[Request any, Reply proto.Message](
	ctx context.Context, a agent, m method[Request, Reply], req Request,
) (reply Reply, err error) {
	err = a.connect(ctx, func(ctx context.Context, api operatorv1.OperationsClient) (err error) {
		reply, err = m(api, ctx, req)
		return err
	})
	return reply, err
}

// query returns the function of a command that calls a method and prints the reply.
func query[Request any, Reply proto.Message](
	c *client, m method[Request, Reply], req Request, table func(*printer, Reply),
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		reply, err := call(cmd.Context(), c.agent, m, req)
		if err != nil {
			return err
		}
		return c.show(reply, func() { table(&c.printer, reply) })
	}
}

// within returns the agent with another timeout, unless the command line has one.
func (a agent) within(cmd *cobra.Command, timeout time.Duration) agent {
	if !cmd.Flags().Changed("timeout") {
		a.timeout = timeout
	}
	return a
}

// connect calls use with a client of the service Operations. The timeout includes use.
func (a agent) connect(ctx context.Context, use func(context.Context, operatorv1.OperationsClient) error) error {
	return a.dial(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		return use(ctx, operatorv1.NewOperationsClient(conn))
	})
}

// dial calls use with a connection to the agent. The timeout includes use.
func (a agent) dial(ctx context.Context, use func(context.Context, grpc.ClientConnInterface) error) error {
	if deadline, has := ctx.Deadline(); has && !time.Now().Before(deadline) {
		<-ctx.Done() // its timer may be late, as the timer of the previous request
	}
	if ctx.Err() != nil {
		return fmt.Errorf("not asked: %w", context.Cause(ctx))
	}
	if a.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.timeout)
		defer cancel()
	}
	conn, err := weftv1.Connect(ctx, a.socket, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)))
	if err != nil {
		if errno, ok := errors.AsType[syscall.Errno](err); ok {
			err = errno
		}
		return a.unreachable(err.Error())
	}
	defer conn.Close()
	return a.explain(use(ctx, conn))
}

func (a agent) unreachable(reason string) error {
	if !filepath.IsAbs(a.socket) {
		reason += " (" + placeOf(a.socket) + ")"
	}
	return fmt.Errorf("no agent answers at %s: %s; is weft-agent running? (needs root)", a.socket, reason)
}

// explain converts a gRPC error into one line that says what to do.
func (a agent) explain(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	switch s.Code() {
	case codes.Unavailable:
		return a.unreachable("connection closed: " + s.Message())
	case codes.DeadlineExceeded:
		return fmt.Errorf("the agent at %s did not answer within %s; set a longer --timeout", a.socket, a.timeout)
	case codes.Unimplemented:
		return fmt.Errorf(
			"the agent at %s does not implement this command: compare its version (weftctl status) with weftctl --version",
			a.socket)
	}
	return fmt.Errorf("the agent at %s: %s", a.socket, s.Message())
}
