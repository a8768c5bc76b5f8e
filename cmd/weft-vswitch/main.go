// Command weft-vswitch is the embedded dataplane as a process: flags and signals around package vswitch.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weftnet/weft/internal/version"
	"github.com/weftnet/weft/vswitch"
	"github.com/weftnet/weft/vswitch/confine"
)

// Exit codes: 1 the dataplane failed or could not start, 2 the command line is wrong.
const (
	exitFailed = 1
	exitUsage  = 2
)

// The main goroutine keeps the main thread, so that each worker has a thread that it can name.
func init() { runtime.LockOSThread() } //nolint:gochecknoinits // only initialization runs on the main thread for certain

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// errUsage marks an error of the command line.
var errUsage = errors.New("wrong usage")

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == brokerArgument {
		return exitCode(serveBroker(args[1:], stderr), stderr)
	}
	// A terminal that closes and a log pipe whose reader dies must not end forwarding.
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	cmd := command(stderr)
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	return exitCode(cmd.ExecuteContext(ctx), stderr)
}

func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "weft-vswitch:", err)
	if errors.Is(err, errUsage) {
		return exitUsage
	}
	return exitFailed
}

// options are the flags.
type options struct {
	socket      string
	statsSocket string
	standby     bool
	name        string
	workers     int
	stormLimit  int
	confine     bool
	logFormat   string
	logLevel    string
}

func command(stderr io.Writer) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "weft-vswitch",
		Short: "A userspace dataplane that serves VPP's binary API",
		Long: "weft-vswitch forwards packets between the interfaces that its clients make over VPP's binary API.\n" +
			"It logs to standard error, ends on SIGTERM or SIGINT taking its interfaces with it, and ignores SIGHUP.",
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArguments,
		RunE:          func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), stderr) },
	}
	cmd.SetVersionTemplate("{{.Version}}\n")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	f := cmd.Flags()
	p := cmd.PersistentFlags()
	p.StringVar(&o.socket, "api-socket", "/run/weft/vswitch-api.sock", "where to serve the binary API")
	p.StringVar(&o.name, "name", os.Getenv(nameVariable), "what the lock file calls this process beside its pid, such as its pod; default: $"+nameVariable)
	f.BoolVar(&o.standby, "standby", false, "if another dataplane runs on the API socket wait until it ends, then take its place; default: fail")
	f.StringVar(&o.statsSocket, "stats-socket", "", "where to serve the stats segment; default: beside the API socket, with stats.sock for api.sock")
	f.IntVar(&o.workers, "workers", 1, "forwarding threads")
	f.IntVar(&o.stormLimit, "storm-limit", vswitch.DefaultStormLimit,
		"copies a second that each thread makes of one interface's broadcasts, multicasts and frames to unknown MACs; 0: no limit")
	o.addCommon(f)
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.AddCommand(o.statusCommand())
	return cmd
}

func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%w: unexpected argument %q", errUsage, args[0])
	}
	return nil
}

// nameVariable names the environment variable that has the default of --name.
const nameVariable = "WEFT_VSWITCH_NAME"

func (o *options) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Print which process serves the API socket and which one waits to take over",
		Long: "status prints the process that serves the API socket and the standby that takes over when it ends, each with its pid, in its\n" +
			"own PID namespace, and its name. With --name it fails unless one of them has that name; without, unless the socket is served.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.status(cmd) },
	}
}

func (o *options) status(cmd *cobra.Command) error {
	s := vswitch.StatusOf(cmd.Context(), o.socket)
	found := o.name == "" && s.Active != nil
	for _, process := range []struct {
		role string
		is   *vswitch.Holder
	}{{"active", s.Active}, {"standby", s.Standby}} {
		if process.is != nil {
			fmt.Fprintf(cmd.OutOrStdout(), "%-7s %s\n", process.role, process.is)
			found = found || o.name != "" && process.is.Name == o.name
		}
	}
	if !found {
		return fmt.Errorf("%s is neither served nor waited for by %s", o.socket, cmp.Or(o.name, "a dataplane"))
	}
	return nil
}

// addCommon adds the flags that the broker process has too.
func (o *options) addCommon(f *pflag.FlagSet) {
	f.BoolVar(&o.confine, "confine", true, "give up the capabilities and system calls that it does not need; what the kernel refuses is a warning")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
}

// brokerArgument makes the program the process that holds the sockets of memif clients.
const brokerArgument = "memif-broker"

func (o *options) run(ctx context.Context, stderr io.Writer) error {
	log, err := o.logger(stderr)
	if err != nil {
		return err
	}
	if o.workers < 1 || o.socket == "" {
		return fmt.Errorf("%w: --workers must be at least 1 and --api-socket a path", errUsage)
	}
	if o.stormLimit < 0 {
		return fmt.Errorf("%w: --storm-limit %d is below 0", errUsage, o.stormLimit)
	}
	if o.stormLimit == 0 {
		o.stormLimit = -1 // no limit; the zero value is the default
	}
	vswitch.TuneMemory()
	vswitch.TuneThreads(o.workers)
	o.confineAs("dataplane", confine.Dataplane, log)
	return vswitch.Run(ctx, vswitch.Config{
		APISocket: o.socket, StatsSocket: o.statsSocket, Standby: o.standby, Name: o.name, Workers: o.workers, StormLimit: o.stormLimit, Log: log,
		MemifBroker: []string{brokerArgument, fmt.Sprintf("--confine=%t", o.confine), "--log-format=" + o.logFormat, "--log-level=" + o.logLevel},
	})
}

// serveBroker is the process of the memif broker. Its command line is that of run.
func serveBroker(args []string, stderr io.Writer) error {
	var o options
	f := pflag.NewFlagSet(brokerArgument, pflag.ContinueOnError)
	o.addCommon(f)
	if err := f.Parse(args); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	log, err := o.logger(stderr)
	if err != nil {
		return err
	}
	return vswitch.ServeMemifBroker(func() { o.confineAs("memif broker", confine.Broker, log) })
}

// confineAs confines the process. What the kernel refuses is no reason to leave the node's pods without network.
func (o *options) confineAs(process string, confine func() error, log *slog.Logger) {
	if !o.confine {
		log.Warn("process is not confined: --confine=false", "process", process)
		return
	}
	if err := confine(); err != nil {
		log.Warn("process is not fully confined", "process", process, "err", err)
	}
}

func (o *options) logger(stderr io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return nil, fmt.Errorf("%w: --log-level %q: want debug, info, warn or error", errUsage, o.logLevel)
	}
	config := &slog.HandlerOptions{Level: level}
	switch o.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(stderr, config)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(stderr, config)), nil
	}
	return nil, fmt.Errorf("%w: --log-format %q: want text or json", errUsage, o.logFormat)
}
