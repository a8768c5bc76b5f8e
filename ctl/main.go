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

// client is one run of weftctl.
type client struct {
	env     Env
	socket  string
	timeout time.Duration
	format  string
	colour  bool
}

// Main runs the command in args until ctx ends, and returns the exit code: 0 success, 1 failure, 2 invalid usage.
func Main(ctx context.Context, env Env, args []string) int {
	if env.Now == nil {
		env.Now = time.Now
	}
	c := &client{env: env, colour: wantsColour(env.Out)}
	root := c.command()
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

func (c *client) command() *cobra.Command {
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
		PersistentPreRunE: func(*cobra.Command, []string) error { return c.checkFlags() },
	}
	root.SuggestionsMinimumDistance = 2
	root.SetOut(c.env.Out)
	root.SetErr(c.env.Err)
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	flags := root.PersistentFlags()
	flags.StringVar(&c.socket, "socket", cmp.Or(os.Getenv("WEFT_SOCKET"), defaultSocket), "socket of the agent (env WEFT_SOCKET)")
	flags.DurationVar(&c.timeout, "timeout", 10*time.Second, "timeout of a request")
	flags.StringVarP(&c.format, "output", "o", "table", "output format: "+formats)
	root.AddCommand(c.statusCommand(), c.attachmentsCommand(), c.eventsCommand(), c.transactionsCommand(),
		c.objectsCommand(), c.whyCommand(), c.addressesCommand(), c.devicesCommand(), c.countersCommand(), c.settingsCommand(), c.resyncCommand(),
		c.configureCommand(), c.quarantineCommand(), c.garbageCommand(), c.lintCommand())
	return root
}

func (c *client) checkFlags() error {
	if c.timeout <= 0 {
		return usageError{fmt.Errorf("--timeout %s: must be positive", c.timeout)}
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
