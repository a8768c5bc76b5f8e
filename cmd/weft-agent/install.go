package main

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/weftnet/weft/agent/operations"
	"github.com/weftnet/weft/install"
)

func installCommand() *cobra.Command {
	var o install.Options
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install the CNI plugin on this node, and its configuration when the agent is ready",
		Long: "install copies weft-cni (and the link weft-ipam) into the directory of CNI plugins, tests it there, waits until\n" +
			"the agent is ready to connect pods, and then writes the configuration, which makes the node ready for pods.\n" +
			"Files are replaced atomically. Files with the right content are not changed.",
		Example: "  weft-agent install\n" +
			"  weft-agent install --watch\n" +
			"  weft-agent install --mode chained --extend /etc/cni/net.d/10-calico.conflist",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.ValidateInstall(); err != nil {
				return usageError{err}
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			return install.Install(cmd.Context(), o, log, cmd.OutOrStdout())
		},
	}
	o.InstallFlags(cmd.Flags())
	return cmd
}

func uninstallCommand() *cobra.Command {
	var o install.Options
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove Weft's CNI configuration and its plugin from this node",
		Long: "uninstall removes the configuration first, so Weft connects no new pods. It removes the programs when no pod needs\n" +
			"them for its DEL. It does not remove files of other programs and the agent's state.",
		Example: "  weft-agent uninstall --wait 5m\n" +
			"  weft-agent uninstall --extend /etc/cni/net.d/10-calico.conflist",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return usageError{err}
			}
			pods := func(ctx context.Context) ([]string, error) { return operations.AttachedPods(ctx, o.Socket) }
			return install.Uninstall(cmd.Context(), o, pods, cmd.OutOrStdout())
		},
	}
	o.UninstallFlags(cmd.Flags())
	return cmd
}
