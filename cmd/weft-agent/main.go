// Command weft-agent connects the pods of one node.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weftnet/weft/agent"
	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/operations"
	"github.com/weftnet/weft/dataplane/splice"
	"github.com/weftnet/weft/internal/version"
	"github.com/weftnet/weft/vswitch/confine"
)

// Exit codes, the same for all programs of Weft.
const (
	exitFailed = 1
	exitUsage  = 2
)

// usageError marks an invalid command line or configuration: the exit code is exitUsage.
type usageError struct{ error }

func main() {
	if len(os.Args) == 2 && os.Args[1] == splice.BrokerArgument {
		serveBroker()
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := command().ExecuteContext(ctx)
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "weft-agent:", err)
	code := exitFailed
	if errors.As(err, new(usageError)) {
		code = exitUsage
	}
	stop()
	os.Exit(code) //nolint:gocritic // nothing is left to stop
}

// serveBroker is the process that holds the control sockets of direct memifs. If the kernel refuses to confine it, it
// only warns: pods need their network.
func serveBroker() {
	err := splice.ServeBroker(func() {
		if err := confine.Broker(); err != nil {
			fmt.Fprintln(os.Stderr, "weft-agent: memif broker is not fully confined:", err)
		}
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "weft-agent:", err)
		os.Exit(exitFailed)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "weft-agent",
		Short:         "Connects the pods of one node",
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(runCommand(), checkConfigCommand(), healthCommand(), controllerCommand(), installCommand(),
		uninstallCommand(), vppConfigCommand(), releaseUplinkCommand())
	return root
}

// noArgs rejects arguments and unknown commands.
func noArgs(cmd *cobra.Command, args []string) error {
	if err := cobra.NoArgs(cmd, args); err != nil {
		return usageError{err}
	}
	return nil
}

// configured adds the flags of the configuration to a command, which runs with the configuration.
func configured(cmd *cobra.Command, run func(cmd *cobra.Command, c config.Config) error) *cobra.Command {
	var help config.Config // only for the help text
	var file string
	cmd.Args = noArgs
	cmd.Flags().StringVarP(&file, "config", "c", "",
		"configuration file (YAML); every key is also a flag and an environment variable WEFT_...")
	help.Flags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if file == "" {
			file = os.Getenv("WEFT_CONFIG")
		}
		read := func() (config.Config, error) { return config.Read(cmd.Flags(), file, os.Environ()) }
		c, err := read()
		if err != nil {
			return usageError{err}
		}
		c.Reload = read
		c.Parse = func(content []byte) (config.Config, error) {
			return config.Parse(cmd.Flags(), cmp.Or(file, "of the plan"), content, os.Environ())
		}
		return run(cmd, c)
	}
	return cmd
}

func runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "run",
		Short:   "Run the agent until SIGTERM; the dataplane continues to forward",
		Example: "  weft-agent run --config /etc/weft/agent.yaml\n  weft-agent run --pools pods=10.1.0.0/24",
	}
	return configured(cmd, func(cmd *cobra.Command, c config.Config) error {
		return agent.Main(cmd.Context(), c, cmd.ErrOrStderr())
	})
}

func checkConfigCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "check-config", Short: "Check the configuration and print all effective values"}
	return configured(cmd, func(cmd *cobra.Command, c config.Config) error {
		_, err := fmt.Fprint(cmd.OutOrStdout(), c.String())
		return err
	})
}

func healthCommand() *cobra.Command {
	var socket string
	var alive bool
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Check whether a running agent is ready to connect pods (for exec probes); prints unmet advisory conditions to stderr",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if alive {
				return operations.Alive(cmd.Context(), socket)
			}
			if err := operations.Healthy(cmd.Context(), socket); err != nil {
				return err
			}
			unmet, err := operations.UnmetConditions(cmd.Context(), socket)
			if err != nil {
				cmd.PrintErrln(err) // the agent is ready nevertheless
			}
			for _, condition := range unmet {
				cmd.PrintErrln(condition)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "/run/weft/agent.sock", "socket of the agent")
	cmd.Flags().BoolVar(&alive, "alive", false, "check only whether the agent answers (for liveness probes)")
	return cmd
}
