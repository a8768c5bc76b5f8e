package ctl

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

func configureCommand(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "configure SOURCE [FILE]",
		Short: "Replaces the external configuration of a source on this node",
		Long: `Replaces the external configuration of SOURCE on this node by the values in FILE (YAML or JSON, "-" is
standard input). Without FILE, the command removes the values of SOURCE.

Each key is the key of an object, as weftctl objects prints it. If Weft has an object with this key, the value
is a merge patch for it (RFC 7396). Otherwise the value is a new object. The agent skips invalid values. The
command lists skipped, failed and pending values; none of them makes a pod fail. The values last until the
agent stops. For permanent values use the agent's directory externalConfig.`,
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
			return configure(cmd, c, &operatorv1.ConfigureRequest{Source: args[0], Document: document})
		},
	}
}

func readDocument(in io.Reader, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(in)
	}
	return os.ReadFile(name)
}

func configure(cmd *cobra.Command, c *client, req *operatorv1.ConfigureRequest) error {
	reply, err := call(cmd.Context(), c.agent.within(cmd, resyncTimeout), operatorv1.OperationsClient.Configure, req)
	if err != nil {
		return err
	}
	err = c.show(reply, func() {
		for _, dropped := range reply.Dropped {
			c.printf("skipped: %s\n", oneLine(dropped))
		}
		for _, failed := range reply.Failed {
			c.printf("failed, retrying: %s\n", oneLine(failed))
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
		return fmt.Errorf("%s skipped", counted(len(reply.Dropped), "value"))
	case len(reply.Failed) > 0:
		return fmt.Errorf("%s failed", counted(len(reply.Failed), "value"))
	}
	return nil
}
