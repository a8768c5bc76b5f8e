package ctl

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func (c *client) settingsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "settings",
		Short:   "Shows the agent's effective configuration as YAML",
		Example: "  weftctl settings | grep coolDown",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.ask(cmd.Context(), c.settings)
		},
	}
}

func (c *client) settings(ctx context.Context, agent weftv1.OperationsClient) error {
	reply, err := agent.Settings(ctx, &weftv1.SettingsRequest{})
	if err != nil {
		return err
	}
	return c.show(reply, func() {
		for line := range strings.Lines(reply.GetYaml()) {
			c.printf("%s\n", printable(strings.TrimSuffix(line, "\n")))
		}
	})
}
