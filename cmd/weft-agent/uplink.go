package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weftnet/weft/agent"
	"github.com/weftnet/weft/agent/config"
)

func releaseUplinkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "release-uplink",
		Short: "Give the network card that the dataplane owned back to this node's kernel; the agent must not run",
		Long: "release-uplink gives the node's kernel the addresses, routes and settings back that a network card had before the\n" +
			"dataplane took it (dataplane.uplink): for a node whose dataplane cannot run any more. Packets of pods to other nodes\n" +
			"wait until the agent starts again, which takes the card again unless its configuration says otherwise.",
		Example: "  systemctl stop weft-agent; weft-agent release-uplink --config /etc/weft/agent.yaml",
	}
	return configured(cmd, func(cmd *cobra.Command, c config.Config) error {
		links, err := agent.ReleaseUplink(c)
		for _, link := range links {
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "gave %s back to the kernel\n", link) // output is best effort
		}
		if err == nil && len(links) == 0 {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "no network card is the dataplane's")
		}
		return err
	})
}
