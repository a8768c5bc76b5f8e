package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func (c *client) configureCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "configure SOURCE [FILE]",
		Short: "Replaces the values that an external source has on this node",
		Long: `Replaces the values that an external source has on this node by those of FILE (YAML or JSON, "-" is standard input).

Each key is that of an object, as weftctl objects shows it. Where Weft has that object the value is a merge patch over it
(RFC 7396), else it is an object of its own. Without FILE the source's values are taken away. Values that are wrong are
left out and named, values that fail or wait for another object are named too; no pod fails because of them. The values last until the agent stops: what is to last belongs into
the agent's directory of external configuration.`,
		Example: "  weftctl configure lab routes.yaml\n  weftctl configure lab",
		Args:    usage(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			var document []byte
			if len(args) == 2 {
				var err error
				if document, err = readDocument(cmd.InOrStdin(), args[1]); err != nil {
					return err
				}
			}
			return c.askFor(cmd.Context(), resyncPatience, func(ctx context.Context, agent weftv1.OperationsClient) error {
				return c.configure(ctx, agent, &weftv1.ConfigureRequest{Source: args[0], Document: document})
			})
		},
	}
}

func readDocument(in io.Reader, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(in)
	}
	return os.ReadFile(name)
}

func (c *client) configure(ctx context.Context, agent weftv1.OperationsClient, req *weftv1.ConfigureRequest) error {
	reply, err := agent.Configure(ctx, req)
	if err != nil {
		return err
	}
	err = c.show(reply, func() {
		for _, dropped := range reply.Dropped {
			c.printf("left out: %s\n", oneLine(dropped))
		}
		for _, failed := range reply.Failed {
			c.printf("failed, and tried again: %s\n", oneLine(failed))
		}
		for _, waiting := range reply.Waiting {
			c.printf("waiting: %s\n", oneLine(waiting))
		}
		if reply.Error == "" {
			c.printf("values of %s replaced until the agent stops (event #%d)\n", oneLine(req.Source), reply.Event)
		}
	})
	switch {
	case err != nil:
		return err
	case reply.Error != "":
		return errors.New(oneLine(reply.Error))
	case len(reply.Dropped) > 0:
		return fmt.Errorf("left out: %s", counted(len(reply.Dropped), "value"))
	case len(reply.Failed) > 0:
		return fmt.Errorf("failed: %s", counted(len(reply.Failed), "value"))
	}
	return nil
}
