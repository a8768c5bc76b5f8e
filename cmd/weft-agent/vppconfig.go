package main

import (
	"github.com/spf13/cobra"

	"github.com/weftnet/weft/install/vppconf"
)

func vppConfigCommand() *cobra.Command {
	var o vppconf.Options
	cmd := &cobra.Command{
		Use:   "vpp-config",
		Short: "Print a commented startup.conf of VPP for this node",
		Long: "vpp-config reads the available processors, their NUMA nodes, free hugepages and /dev/vhost-net, and prints a startup\n" +
			"configuration of VPP for them: sockets, memory, packet buffers, threads and the plugins that the agent needs. Run it in\n" +
			"the environment of VPP, for example in an init container of the same pod. See docs/vpp.md.",
		Example: "  weft-agent vpp-config\n" +
			"  weft-agent vpp-config --workers 2 --hugepages 2M -o /run/vpp/startup.conf\n" +
			"  weft-agent vpp-config --uplink eth1 --uplink-mode dpdk",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return usageError{err}
			}
			return vppconf.Run(&o, cmd.OutOrStdout())
		},
	}
	o.Flags(cmd.Flags())
	return cmd
}
