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

// defaultSocket is where an agent listens that was not told otherwise.
const defaultSocket = "/run/weft/agent.sock"

// Env is the process around the client.
type Env struct {
	Out, Err io.Writer
	Now      func() time.Time // default time.Now
}

// usageError marks what the caller got wrong on the command line.
type usageError struct{ error }

// client is one run of the program.
type client struct {
	env     Env
	socket  string
	timeout time.Duration
	format  string
	colour  bool
}

// Main does what args say until ctx ends, and returns the exit code: 0 done, 1 failed, 2 wrong usage.
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
		Short: "Shows what the agent of this node did and why, and asks it to resync",
		Example: `  weftctl status                     is all well?
  weftctl events -f                  what happens, as it happens
  weftctl transactions 1             the last transaction, operation by operation
  weftctl objects vpp.route          the routes of the dataplane and how they stand
  weftctl counters --pod NS/NAME     what passed through a pod's interfaces
  weftctl why vpp.interface/weft-    what one object, or several, wait for`,
		Version:           version.String(),
		SilenceUsage:      true,
		SilenceErrors:     true,
		Args:              cobra.ArbitraryArgs, // so that RunE names an unknown command
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
	flags.DurationVar(&c.timeout, "timeout", 10*time.Second, "how long to wait for the agent")
	flags.StringVarP(&c.format, "output", "o", "table", "format of the output: "+formats)
	root.AddCommand(c.statusCommand(), c.attachmentsCommand(), c.eventsCommand(), c.transactionsCommand(),
		c.objectsCommand(), c.whyCommand(), c.addressesCommand(), c.devicesCommand(), c.countersCommand(), c.settingsCommand(), c.resyncCommand(),
		c.configureCommand(), c.quarantineCommand(), c.garbageCommand(), c.lintCommand())
	return root
}

func (c *client) checkFlags() error {
	if c.timeout <= 0 {
		return usageError{fmt.Errorf("--timeout %s: must be more than nothing", c.timeout)}
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

// usage makes a wrong number of arguments, or a wrong argument, an error of usage.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{fmt.Errorf("%s: %w", cmd.Name(), err)}
		}
		return nil
	}
}
