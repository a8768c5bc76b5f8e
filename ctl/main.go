// Package ctl implements weftctl: it queries the agent of this node or the cluster's API server, and prints the replies.
package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/weftnet/weft/internal/version"
)

// Exit codes, the same for all programs of Weft.
const (
	exitFailed = 1
	exitUsage  = 2
)

// defaultSocket is the default of the agent's setting socket.
const defaultSocket = "/run/weft/agent.sock"

// Env is the environment of a run.
type Env struct {
	Out, Err io.Writer
	Now      func() time.Time // default time.Now
}

// usageError marks an invalid command line: Main returns exitUsage.
type usageError struct{ error }

// client has what all commands of a run share: the connection to the agent and the output.
type client struct {
	printer
	agent agent
}

// Main runs the command in args until ctx ends, and returns the exit code: 0 success, 1 failure, 2 invalid usage.
func Main(ctx context.Context, env Env, args []string) int {
	if env.Now == nil {
		env.Now = time.Now
	}
	root := rootCommand(&client{printer: printer{out: env.Out, now: env.Now, colour: wantsColour(env.Out)}})
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(env.Err, "weftctl:", err)
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailed
}

func rootCommand(c *client) *cobra.Command {
	root := &cobra.Command{
		Use:   "weftctl",
		Short: "Inspects and controls the Weft agent of this node",
		Example: `  weftctl status                     readiness of the agent and the dataplane
  weftctl events -f                  follow the events of the agent
  weftctl transactions 1             the operations of the last transaction
  weftctl objects vpp.route          the routes of the dataplane, with their phases
  weftctl counters --pod NS/NAME     the counters of a pod's interfaces
  weftctl why vpp.interface/weft-    why objects with this prefix are not in sync`,
		Version:           version.String(),
		SilenceUsage:      true,
		SilenceErrors:     true,
		Args:              cobra.ArbitraryArgs, // RunE reports unknown commands
		RunE:              unknownCommand,
		PersistentPreRunE: func(*cobra.Command, []string) error { return checkFlags(c) },
	}
	root.SuggestionsMinimumDistance = 2
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	flags := root.PersistentFlags()
	flags.StringVar(&c.agent.socket, "socket", cmp.Or(os.Getenv("WEFT_SOCKET"), defaultSocket), "socket of the agent (env WEFT_SOCKET)")
	flags.DurationVar(&c.agent.timeout, "timeout", 10*time.Second, "timeout of a request")
	flags.StringVarP(&c.format, "output", "o", "table", "output format: "+formats)
	for _, command := range []func(*client) *cobra.Command{
		statusCommand,
		attachmentsCommand,
		eventsCommand,
		transactionsCommand,
		objectsCommand,
		whyCommand,
		addressesCommand,
		devicesCommand,
		countersCommand,
		settingsCommand,
		resyncCommand,
		configureCommand,
		quarantineCommand,
		garbageCommand,
		lintCommand,
		uiCommand,
	} {
		root.AddCommand(command(c))
	}
	return root
}

func checkFlags(c *client) error {
	if c.agent.timeout <= 0 {
		return usageError{fmt.Errorf("--timeout %s: must be positive", c.agent.timeout)}
	}
	return checkFormat(c.format)
}

func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	err := fmt.Errorf("unknown command %q; weftctl --help lists them", args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		err = fmt.Errorf("unknown command %q; did you mean %q?", args[0], near[0])
	}
	return usageError{err}
}

// usage makes the errors of check usage errors.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{fmt.Errorf("%s: %w", cmd.Name(), err)}
		}
		return nil
	}
}
