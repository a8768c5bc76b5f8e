package ctl

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// planningMethod is a method of the agent's service Planning.
type planningMethod[Request any, Reply proto.Message] func(
	operatorv1.PlanningClient, context.Context, Request, ...grpc.CallOption,
) (Reply, error)

// callPlanning calls a method of the service Planning.
func callPlanning[Request any, Reply proto.Message](
	ctx context.Context, a agent, m planningMethod[Request, Reply], req Request,
) (reply Reply, err error) {
	err = a.dial(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) (err error) {
		reply, err = m(operatorv1.NewPlanningClient(conn), ctx, req)
		return err
	})
	return reply, err
}

func diffCommand(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "diff [KEY|PREFIX|NAMESPACE/POD]",
		Short: "Compares objects: desired, applied and on the machine",
		Long: `Compares objects as Weft desires them, as it last knew them on the machine, and as they are on the machine now. It prints only
objects and fields with a difference, and changes nothing. Without an argument it compares all objects of the node.

  desired  what Weft wants, from pods, networks and external configuration
  applied  what Weft last applied or found
  machine  what was read back for this command
  -        the field or the object is absent there
  ?        the machine was not read

A difference between desired and applied waits for an operation (weftctl why KEY). A difference between applied and machine was made by
another program; weftctl resync downstream repairs it. Secrets are redacted: objects that differ only in a secret have no fields.`,
		Example:           "  weftctl diff\n  weftctl diff default/web\n  weftctl diff vpp.route",
		Args:              usage(cobra.MaximumNArgs(1)),
		ValidArgsFunction: completeSelectors(c),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &operatorv1.DiffRequest{Selector: strings.Join(args, "")}
			if len(args) == 1 && req.Selector == "" {
				return usageError{fmt.Errorf("diff: the key is empty; leave it out to compare all objects")}
			}
			reply, err := callPlanning(cmd.Context(), c.agent.within(cmd, readTimeout), operatorv1.PlanningClient.Diff,
				req)
			if err != nil {
				return err
			}
			return c.show(reply, func() { printDiff(&c.printer, reply) })
		},
	}
}

// readTimeout is the default timeout of a command that reads the machine. The agent bounds the reads to 15 seconds.
const readTimeout = 20 * time.Second

func printDiff(p *printer, reply *operatorv1.DiffReply) {
	if len(reply.Objects) > 0 {
		p.printf("desired: what Weft wants; applied: last known; machine: read back now;\n-: absent; ?: not read\n\n")
	}
	for _, o := range reply.Objects {
		p.printf("%s  %s: %s\n", printable(o.Ref), orDash(o.Phase), p.bad(oneLine(o.Reason)))
		g := newGrid("  field", "desired", "applied", "machine")
		for _, f := range o.Fields {
			onMachine := side(f.Machine)
			if o.Unread {
				onMachine = "?"
			}
			path := f.Path
			if path == "" {
				path = "(object)"
			}
			g.row("  "+printable(path), side(f.Desired), side(f.Applied), onMachine)
		}
		if len(g.rows) > 0 {
			p.printGrid(g, "")
		}
		p.printf("\n")
	}
	for _, text := range reply.Unread {
		p.printf("not read: %s\n", p.bad(oneLine(text)))
	}
	if n := len(reply.Moving); n > 0 {
		p.printf("%s changed while the machine was read, not compared: %s\n", counted(n, "object"),
			oneLine(strings.Join(reply.Moving, ", ")))
	}
	p.printf("%s compared, %s\n", counted(int(reply.Compared), "object"), differing(len(reply.Objects)))
}

func differing(n int) string {
	if n == 0 {
		return "no difference"
	}
	return fmt.Sprintf("%d with a difference", n)
}

// side returns a cell with the value of one side of a comparison.
func side(value string) string { return orDash(oneLine(value)) }
