// Command weft-vswitch runs the embedded dataplane of package vswitch.
package main

import (
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

// Exit codes: 1 the dataplane failed or did not start, 2 invalid command line.
const (
	exitFailed = 1
	exitUsage  = 2
)

// The main goroutine keeps the main thread, so that each worker gets a thread that it can name.
func init() { runtime.LockOSThread() } //nolint:gochecknoinits // only initialization is guaranteed to run on the main thread

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// errUsage marks an error in the command line.
var errUsage = errors.New("wrong usage")

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == brokerArgument {
		return exitCode(serveBroker(args[1:], stderr), stderr)
	}
	// Forwarding continues when the terminal closes or the reader of the log pipe ends.
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

// options holds the flags.
type options struct {
	socket      string
	statsSocket string
	standby     bool
	handover    bool
	name        string
	workers     int
	sessions    int
	stormLimit  int
	confine     bool
	logFormat   string
	logLevel    string
}

func command(stderr io.Writer) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "weft-vswitch",
		Short: "Run a userspace dataplane that serves VPP's binary API",
		Long: "weft-vswitch forwards packets between the interfaces that its clients create with VPP's binary API.\n" +
			"It logs to standard error and ignores SIGHUP. On SIGTERM and SIGINT it hands its interfaces over to a\n" +
			"standby, or else deletes them, and ends.",
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
	p.StringVar(&o.socket, "api-socket", "/run/weft/vswitch-api.sock", "socket of the binary API")
	p.StringVar(&o.name, "name", os.Getenv(nameVariable),
		"name of this process in the lock file, such as its pod; default: $"+nameVariable)
	f.BoolVar(&o.standby, "standby", false,
		"if another dataplane serves the API socket, wait until it ends, then take over; default: fail")
	f.BoolVar(&o.handover, "handover", true,
		"hand interfaces and state over to a standby on SIGTERM, or take them over as one; false: the standby starts without configuration")
	f.StringVar(&o.statsSocket, "stats-socket", "",
		"socket of the stats segment; default: the API socket with stats.sock in place of api.sock")
	f.IntVar(&o.workers, "workers", 1, "forwarding threads")
	f.IntVar(&o.sessions, "acl-sessions", vswitch.DefaultSessions,
		"maximum number of sessions that access lists open on one interface")
	f.IntVar(&o.stormLimit, "storm-limit", vswitch.DefaultStormLimit,
		"flooded copies per second, per thread and receiving interface, of broadcast, multicast and unknown unicast frames; 0: no limit")
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

// nameVariable is the environment variable with the default of --name.
const nameVariable = "WEFT_VSWITCH_NAME"

func (o *options) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Print the processes that serve the API socket and stand by for it",
		Long: "status prints the process that serves the API socket and the standby process, each with its name and its PID in its own\n" +
			"PID namespace. It fails if no process serves the socket or, with --name, if neither process has that name.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.status(cmd) },
	}
}

func (o *options) status(cmd *cobra.Command) error {
	s := vswitch.StatusOf(cmd.Context(), o.socket)
	found := o.name == "" && s.Active != nil
	for _, process := range []struct {
		role   string
		holder *vswitch.Holder
	}{{"active", s.Active}, {"standby", s.Standby}} {
		if process.holder != nil {
			fmt.Fprintf(cmd.OutOrStdout(), "%-7s %s\n", process.role, process.holder)
			found = found || o.name != "" && process.holder.Name == o.name
		}
	}
	switch {
	case found:
		return nil
	case o.name == "":
		return fmt.Errorf("no dataplane serves %s", o.socket)
	}
	return fmt.Errorf("dataplane %s neither serves %s nor stands by for it", o.name, o.socket)
}

// addCommon adds the flags that the broker process shares.
func (o *options) addCommon(f *pflag.FlagSet) {
	f.BoolVar(&o.confine, "confine", true,
		"drop unneeded capabilities and system calls; a refusal of the kernel is logged as a warning")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
}

// brokerArgument selects the broker process, which holds the sockets of memif clients.
const brokerArgument = "memif-broker"

func (o *options) run(ctx context.Context, stderr io.Writer) error {
	log, err := o.logger(stderr)
	if err != nil {
		return err
	}
	if o.workers < 1 || o.socket == "" {
		return fmt.Errorf("%w: --workers must be at least 1 and --api-socket a path", errUsage)
	}
	if o.sessions < 1 {
		return fmt.Errorf("%w: --acl-sessions %d is below 1", errUsage, o.sessions)
	}
	if o.stormLimit < 0 {
		return fmt.Errorf("%w: --storm-limit %d is below 0", errUsage, o.stormLimit)
	}
	if o.stormLimit == 0 {
		o.stormLimit = -1 // no limit; zero selects the default
	}
	vswitch.TuneMemory()
	vswitch.TuneThreads(o.workers)
	o.confineAs("dataplane", confine.Dataplane, log)
	return vswitch.Run(ctx, vswitch.Config{
		APISocket:   o.socket,
		StatsSocket: o.statsSocket,
		Standby:     o.standby,
		NoHandover:  !o.handover,
		Name:        o.name,
		Workers:     o.workers,
		Sessions:    o.sessions,
		StormLimit:  o.stormLimit,
		Log:         log,
		MemifBroker: []string{
			brokerArgument, fmt.Sprintf("--confine=%t", o.confine), "--log-format=" + o.logFormat,
			"--log-level=" + o.logLevel,
		},
	})
}

// serveBroker runs the memif broker, with the command line that run passes.
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

// confineAs confines the process. If the kernel refuses that, it only warns: pods need their network.
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
		return nil, fmt.Errorf("%w: --log-level %q: must be debug, info, warn or error", errUsage, o.logLevel)
	}
	config := &slog.HandlerOptions{Level: level}
	switch o.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(stderr, config)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(stderr, config)), nil
	}
	return nil, fmt.Errorf("%w: --log-format %q: must be text or json", errUsage, o.logFormat)
}
