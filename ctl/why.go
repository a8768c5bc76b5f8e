package ctl

import (
	"context"

	"github.com/spf13/cobra"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func (c *client) whyCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "why REF",
		Short:             "Explains an object: missing dependencies, last error, next retry",
		Example:           "  weftctl why vpp.unnumbered/weft-host",
		Args:              usage(cobra.ExactArgs(1)),
		ValidArgsFunction: c.completeRefs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.ask(cmd.Context(), func(ctx context.Context, agent weftv1.OperationsClient) error {
				return c.why(ctx, agent, args[0])
			})
		},
	}
}

func (c *client) why(ctx context.Context, agent weftv1.OperationsClient, ref string) error {
	reply, err := agent.Why(ctx, &weftv1.WhyRequest{Ref: ref})
	if err != nil {
		return err
	}
	return c.show(reply, func() {
		for _, line := range reply.Lines {
			c.printf("%s\n", printable(line))
		}
	})
}
