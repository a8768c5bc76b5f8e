package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weftnet/weft/proto/document"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

func traceCommand(c *client) *cobra.Command {
	req := &operatorv1.TraceRequest{}
	var duration time.Duration
	var brief bool
	cmd := &cobra.Command{
		Use:   "trace NAMESPACE/POD [INTERFACE]",
		Short: "Traces the packets that a pod sends through the dataplane",
		Long: `Traces the packets that a pod sends: what each node of the dataplane did with them, until they are sent, dropped or handled by the
dataplane itself. The dataplane has one trace; this command clears it.`,
		Example: `  weftctl trace shop/cart --count 3
  weftctl trace shop/cart net1 -o json | jq -r 'select(.dropped) | .outcome'`,
		Args:              usage(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: completeInterfaces(c),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if req.Namespace, req.Name, err = podArgument(args[0]); err != nil {
				return err
			}
			if len(args) == 2 {
				req.Interface = args[1]
			}
			if req.Count == 0 {
				return usageError{errors.New("--count 0: must be positive")}
			}
			req.Duration = durationpb.New(duration)
			return c.trace(cmd, req, brief)
		},
	}
	cmd.Flags().Uint32Var(&req.Count, "count", 10, "end after this number of packets, at most 1000")
	cmd.Flags().DurationVar(&duration, "for", 10*time.Second, "end after this time, at most 5m")
	cmd.Flags().BoolVar(&brief, "brief", false, "print a line for each packet, without its path")
	return cmd
}

// trace prints packets as they arrive. An interrupt is not an error.
func (c *client) trace(cmd *cobra.Command, req *operatorv1.TraceRequest, brief bool) error {
	agent := c.agent
	agent.timeout = 0 // the trace has a limit of its own
	err := agent.dial(cmd.Context(), func(ctx context.Context, conn grpc.ClientConnInterface) error {
		stream, err := operatorv1.NewPacketsClient(conn).Trace(ctx, req)
		if err != nil {
			return err
		}
		for {
			reply, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			switch part := reply.Part.(type) {
			case *operatorv1.TraceReply_Packet:
				if c.format != "table" {
					err = c.streamed(document.Of(part.Packet.ProtoReflect()))
				} else {
					printPath(&c.printer, part.Packet, brief)
				}
			case *operatorv1.TraceReply_End:
				_, err = fmt.Fprintln(cmd.ErrOrStderr(), traceEnd(part.End))
			}
			if err != nil {
				return err
			}
		}
	})
	if cmd.Context().Err() != nil {
		return nil //nolint:nilerr // an interrupt ends a trace
	}
	return err
}

func traceEnd(e *operatorv1.TraceEnd) string {
	text := counted(int(e.Packets), "packet") + " traced: " + e.Reason
	if e.Others > 0 {
		text += fmt.Sprintf(" (%s of other interfaces skipped)", counted(int(e.Others), "packet"))
	}
	return text
}

// printPath prints a packet, and its path as an indented list.
func printPath(p *printer, t *operatorv1.TracedPacket, brief bool) {
	result := p.good(t.Outcome)
	if t.Dropped {
		result = p.bad(t.Outcome)
	}
	p.printf("%s: %s -> %s\n", t.Interface, t.Summary, result)
	if brief {
		return
	}
	for _, s := range t.Steps {
		lines := strings.Split(strings.TrimRight(s.Text, "\n"), "\n")
		for i, line := range lines {
			node := ""
			if i == 0 {
				node = s.Node
			}
			p.printf("  %-22s %s\n", node, strings.TrimSpace(line))
		}
	}
	p.printf("\n")
}
