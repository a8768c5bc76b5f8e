package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/uplink"
)

func releaseUplinkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "release-uplink",
		Short: "Return the dataplane's network card to the kernel of this node; the agent must not run",
		Long: "release-uplink restores the addresses, routes and settings that a network card had before the dataplane took it\n" +
			"(dataplane.uplink). Use it on a node whose dataplane can no longer run. Pods do not reach other nodes until the agent\n" +
			"starts again; the agent then takes the card again, unless dataplane.uplink was removed from its configuration.",
		Example: "  systemctl stop weft-agent; weft-agent release-uplink --config /etc/weft/agent.yaml",
	}
	return configured(cmd, func(cmd *cobra.Command, c config.Config) error {
		links, err := uplink.Release(c)
		for _, link := range links {
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "returned %s to the kernel\n", link) // output is best effort
		}
		if err == nil && len(links) == 0 {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "the dataplane owns no network card")
		}
		return err
	})
}
