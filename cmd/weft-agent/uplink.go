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
		Short: "Return the dataplane's network card to this node's kernel; the agent must be stopped",
		Long: "release-uplink restores the addresses, routes and settings of a network card (dataplane.uplink) in the node's kernel. Use\n" +
			"it on a node whose dataplane cannot run. Pods cannot reach other nodes until the agent starts; it takes the card again\n" +
			"unless dataplane.uplink is removed.",
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
