package ctl

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func (c *client) objectsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "objects [PREFIX]",
		Short: "Lists the scheduler's objects and their phases",
		Example: `  weftctl objects vpp.route            the routes of the dataplane
  weftctl objects vpp.vrf -o yaml      with desired and applied values`,
		Args:              usage(cobra.MaximumNArgs(1)),
		ValidArgsFunction: c.completeRefs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.ask(cmd.Context(), func(ctx context.Context, agent weftv1.OperationsClient) error {
				return c.objects(ctx, agent, strings.Join(args, ""))
			})
		},
	}
}

func (c *client) objects(ctx context.Context, agent weftv1.OperationsClient, prefix string) error {
	reply, err := agent.Objects(ctx, &weftv1.ObjectsRequest{Prefix: prefix})
	if err != nil {
		return err
	}
	return c.show(reply, func() {
		g := newGrid("object", "phase", "since", "detail")
		for _, o := range reply.Objects {
			g.row(o.Ref, o.Phase, c.age(o.Since), c.detail(o))
		}
		empty := "no objects"
		if prefix != "" {
			empty = fmt.Sprintf("no objects with prefix %q", prefix)
		}
		c.printGrid(g, empty)
	})
}

// detail returns an object's error, missing dependencies and next retry, or "".
func (c *client) detail(o *weftv1.Object) string {
	var parts []string
	if o.Error != "" {
		parts = append(parts, c.bad(oneLine(o.Error)))
	}
	if len(o.Missing) > 0 {
		parts = append(parts, "waiting for "+strings.Join(o.Missing, ", "))
	}
	if retry := c.until(o.RetryAt); retry != "" {
		parts = append(parts, fmt.Sprintf("attempt %d, next in %s", o.Attempt, retry))
	}
	return strings.Join(parts, "; ")
}

// completeRefs completes keys of objects.
func (c *client) completeRefs(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var refs []string
	err := c.ask(cmd.Context(), func(ctx context.Context, agent weftv1.OperationsClient) error {
		reply, err := agent.Objects(ctx, &weftv1.ObjectsRequest{Prefix: begun})
		for _, o := range reply.GetObjects() {
			refs = append(refs, o.Ref)
		}
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return refs, cobra.ShellCompDirectiveNoFileComp
}
