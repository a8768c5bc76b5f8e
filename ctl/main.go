// Package ctl implements weftctl: it queries the agent of this node or the cluster's API server, and prints the
// replies.
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
	In       io.Reader // default os.Stdin
	Out, Err io.Writer
	Now      func() time.Time // default time.Now
	Width    int              // of tables, in columns; default the width of the terminal Out, or any
	Plugin   bool             // whether kubectl started the program as its plugin
}

// usageError marks an invalid command line: Main returns exitUsage.
type usageError struct{ error }

// client has what all commands of a run share: the connection to the agent and the output.
type client struct {
	printer
	agent  agent
	fleet  fleetFlags
	plugin bool // of kubectl: there is no agent of this node
	err    io.Writer

	namespace string // of pods that are named without one
}

// name returns how the operator started the program.
func (c *client) name() string {
	if c.plugin {
		return pluginName
	}
	return "weftctl"
}

// Main runs the command in args until ctx ends, and returns the exit code: 0 success, 1 failure, 2 invalid usage.
func Main(ctx context.Context, env Env, args []string) int {
	if env.Now == nil {
		env.Now = time.Now
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	out := &checkedWriter{Writer: env.Out, failed: end}
	c := &client{
		printer: printer{
			out:    out,
			now:    env.Now,
			colour: wantsColour(env.Out),
			width:  cmp.Or(env.Width, widthOf(env.Out)),
		},
		plugin: env.Plugin, err: env.Err,
	}
	root := rootCommand(c)
	root.SetIn(env.In)
	root.SetOut(out)
	root.SetErr(env.Err)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if out.err != nil { // it ended the command
		err = fmt.Errorf("the output is incomplete: %w", out.err)
	}
	if err == nil {
		return 0
	}
	fmt.Fprintf(env.Err, "%s: %s\n", c.name(), printable(located(err).Error()))
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailed
}

// commands make the commands in the order of the help.
var commands = []func(*client) *cobra.Command{
	statusCommand,
	attachmentsCommand,
	podCommand,
	eventsCommand,
	eventCommand,
	transactionsCommand,
	transactionCommand,
	objectsCommand,
	whyCommand,
	diffCommand,
	graphCommand,
	planCommand,
	addressesCommand,
	devicesCommand,
	policyCommand,
	countersCommand,
	dataplaneCommand,
	profileCommand,
	captureCommand,
	traceCommand,
	settingsCommand,
	resyncCommand,
	auditCommand,
	logLevelCommand,
	configureCommand,
	quarantineCommand,
	upgradeCommand,
	garbageCommand,
	bundleCommand,
	lintCommand,
	installCommand,
	uiCommand,
	checkCommand,
	schemaCommand,
	probeCommand,
}

func rootCommand(c *client) *cobra.Command {
	root := &cobra.Command{
		Use:   "weftctl",
		Short: "Inspects and controls the Weft agent of this node",
		Example: `  weftctl status                     readiness of the agent and the dataplane
  weftctl events -f                  follow the events of the agent
  weftctl pod NS/NAME                the story of a pod: request, steps, interfaces, problems
  weftctl transactions 1             the operations of the last transaction
  weftctl objects vpp.route          the routes of the dataplane, with their phases
  weftctl counters --pod NS/NAME     the counters of a pod's interfaces
  weftctl why vpp.interface/weft-    why objects with this prefix are not in sync`,
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs, // RunE reports unknown commands
		RunE:          unknownCommand,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			endWithInput(cmd, c.fleet.endWithInput)
			return checkFlags(c)
		},
	}
	root.SuggestionsMinimumDistance = 2
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	flags := root.PersistentFlags()
	flags.StringVar(&c.agent.socket, "socket", cmp.Or(os.Getenv("WEFT_SOCKET"), defaultSocket),
		"socket of the agent (env WEFT_SOCKET)")
	flags.DurationVar(&c.agent.timeout, "timeout", 10*time.Second, "timeout of a request")
	flags.StringVarP(&c.format, "output", "o", "table", "output format: "+formats)
	flags.BoolVar(&c.wide, "wide", false, "show all columns of tables, of any width (same as -o wide)")
	flags.StringVarP(&c.namespace, "namespace", "n", "", "namespace of the pod that the command names")
	c.fleet.register(flags)
	for _, command := range commands {
		root.AddCommand(command(c))
	}
	c.route(root)
	c.inNamespace(root)
	completeFlags(c, root)
	completeArguments(root)
	if c.plugin {
		asPlugin(root)
	}
	return root
}

func checkFlags(c *client) error {
	if c.agent.timeout <= 0 {
		return usageError{fmt.Errorf("--timeout %s: must be positive", c.agent.timeout)}
	}
	if err := checkFormat(c.format); err != nil {
		return err
	}
	if c.format == "wide" {
		c.format = "table"
		c.wide = true
	}
	return nil
}

func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	err := fmt.Errorf("unknown command %q; %s --help lists them", args[0], cmd.Root().DisplayName())
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
