package ctl

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weftnet/weft/internal/probe"
)

// probeCommand is the program of the pods of check.
func probeCommand(c *client) *cobra.Command {
	cmd := &cobra.Command{
		Use:    "probe",
		Short:  "Runs in the probe pods of weftctl check",
		Hidden: true,
		Args:   usage(cobra.NoArgs),
	}
	var port uint16
	serve := &cobra.Command{
		Use: "serve", Short: "Echoes TCP and UDP, and answers pings on memifs", Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return probe.Serve(cmd.Context(), port, c.out) },
	}
	serve.Flags().Uint16Var(&port, "port", probe.Port, "port of TCP and UDP")
	cmd.AddCommand(serve, &cobra.Command{
		Use: "tap", Short: "Makes a tap of each memif of the container", Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return probe.Tap(cmd.Context(), c.out) },
	}, &cobra.Command{
		Use: "interfaces", Short: "Prints the interfaces of the pod as JSON", Args: usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			found, err := probe.Interfaces()
			if err != nil {
				return err
			}
			return (&printer{out: c.out, format: "json"}).document(found)
		},
	}, &cobra.Command{
		Use:   "send PROBES",
		Short: "Sends probes, a JSON list, and prints a line for each outcome",
		Args:  usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			var probes []probe.Probe
			if err := json.Unmarshal([]byte(args[0]), &probes); err != nil {
				return usageError{fmt.Errorf("probe send: %w", err)}
			}
			p := printer{out: c.out, format: "json"}
			probe.Send(cmd.Context(), probes, func(o probe.Outcome) { _ = p.streamed(o) }) // the reader may be gone
			return nil
		},
	})
	return cmd
}
