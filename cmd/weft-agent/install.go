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
		Short: "Put the CNI plugin on this node and, once the agent is ready, its configuration",
		Long: "install copies weft-cni (and the link weft-ipam) into the directory of CNI plugins, tries it there, waits until\n" +
			"the agent would wire a pod, and only then writes the configuration, by which the node becomes ready for pods.\n" +
			"Files appear whole or not at all; those that are as they should be are not touched.",
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
		Short: "Take Weft's CNI configuration and then its plugin off this node",
		Long: "uninstall removes the configuration first, so that no more pods are wired by Weft. The programs go when no pod is\n" +
			"left that needs them to be deleted. What is not Weft's, and the agent's state, is left.",
		Example: "  weft-agent uninstall --wait 5m\n" +
			"  weft-agent uninstall --extend /etc/cni/net.d/10-calico.conflist",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return usageError{err}
			}
			pods := func(ctx context.Context) ([]string, error) { return operations.WiredPods(ctx, o.Socket) }
			return install.Uninstall(cmd.Context(), o, pods, cmd.OutOrStdout())
		},
	}
	o.UninstallFlags(cmd.Flags())
	return cmd
}
