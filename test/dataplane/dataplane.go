// Package dataplane starts a dataplane for a test: weft-vswitch, or the VPP whose installation WEFT_VPP names.
package dataplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/adapter/socketclient"
	"go.fd.io/govpp/binapi/vpe"
	"go.fd.io/govpp/core"

	"github.com/weftnet/weft/test/programs"
)

// PrefixVariable names the environment variable that holds the prefix of a VPP installation (PREFIX/bin/vpp). When it
// is set, tests run on that VPP instead of weft-vswitch.
const PrefixVariable = "WEFT_VPP"

// WorkersVariable names the environment variable with the number of workers of VPP in tests that do not choose one. The
// machine needs one processor more.
const WorkersVariable = "WEFT_VPP_WORKERS"

// startLimit bounds the time from the start of a dataplane to its first answer, stopLimit that of an orderly end.
const (
	startLimit = time.Minute
	stopLimit  = 20 * time.Second
)

// Options say how the dataplane runs. The zero value is right for most tests.
type Options struct {
	// Dir is where sockets, configuration and log are; default: a temporary directory, which Close removes. The path
	// must be short: the path of a socket has at most 107 bytes.
	Dir string
	// Programs is the directory that holds weft-vswitch. VPP does not need it.
	Programs string
	// Workers is the number of forwarding threads. With 0, VPP forwards on its main thread and weft-vswitch on one
	// worker.
	Workers int
	// Polls lets VPP poll without pause, as benchmarks need; by default it sleeps a little between polls, since many
	// run at once.
	Polls bool
	// Without lists plugins that VPP does not load, such as "acl". weft-vswitch ignores it.
	Without []string
	// Netns is the path of the network namespace that the dataplane runs in; default: that of the thread that calls
	// Start first.
	Netns string
	// Config is appended to VPP's startup.conf. weft-vswitch ignores it.
	Config string
}

// Dataplane is a dataplane that can be started, killed and started again at the same socket. Its methods are not safe
// for concurrent use.
type Dataplane struct {
	options Options
	prefix  string // of VPP; "" for weft-vswitch
	owned   bool   // Close removes the directory
	process *process
	netns   *os.File // where it runs; opened by the first start
	version string
}

// Prefix returns the prefix of the VPP installation that tests run on, or "" if they run on weft-vswitch.
func Prefix() string { return os.Getenv(PrefixVariable) }

// Run starts a dataplane for the duration of the test. If the test fails, the end of the dataplane's log is in its
// output.
func Run(t testing.TB, o Options) *Dataplane {
	t.Helper()
	if Prefix() == "" && o.Programs == "" {
		o.Programs = programs.Build(t)
	}
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the dataplane's log ends with:\n%s", d.LogTail())
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

// New prepares a dataplane in its directory and starts nothing.
func New(o Options) (*Dataplane, error) {
	if workers, err := strconv.Atoi(os.Getenv(WorkersVariable)); err == nil && o.Workers == 0 && Prefix() != "" {
		o.Workers = workers
	}
	d := &Dataplane{options: o, prefix: Prefix()}
	if o.Dir == "" {
		dir, err := os.MkdirTemp("", "weft-dp-")
		if err != nil {
			return nil, fmt.Errorf("create directory of dataplane: %w", err)
		}
		d.options.Dir = dir
		d.owned = true
	}
	if d.prefix == "" {
		return d, nil
	}
	config, err := d.startupConfig()
	if err == nil {
		err = os.WriteFile(d.path("startup.conf"), []byte(config), 0o600)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("configure VPP: %w", err), d.Close())
	}
	return d, nil
}

// Start starts the process and returns when the dataplane answers on its API socket. After Kill or Stop it starts an
// empty dataplane.
func (d *Dataplane) Start(ctx context.Context) error {
	if d.PID() != 0 {
		return errors.New("start dataplane: it is running")
	}
	if err := os.Remove(d.Socket()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("start dataplane: %w", err) // a killed VPP leaves it behind
	}
	if d.netns == nil {
		var err error
		if d.netns, err = os.Open(cmp.Or(d.options.Netns, "/proc/thread-self/ns/net")); err != nil {
			return fmt.Errorf("start dataplane: network namespace: %w", err)
		}
	}
	process, err := start(d.command(), d.Log(), d.netns)
	if err != nil {
		return fmt.Errorf("start dataplane: %w", err)
	}
	d.process = process
	if err := d.await(ctx); err != nil {
		return errors.Join(err, d.Kill())
	}
	return nil
}

// await polls the API socket until show_version is answered.
func (d *Dataplane) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := d.askVersion(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-d.process.ended:
			return fmt.Errorf("the dataplane ended before it answered: %s\n%s", d.process.state(), d.LogTail())
		case <-ctx.Done():
			return fmt.Errorf("the dataplane does not answer within %s: %w\n%s", startLimit, err, d.LogTail())
		case <-tick.C:
		}
	}
}

func (d *Dataplane) askVersion(ctx context.Context) error {
	if _, err := os.Stat(d.Socket()); err != nil {
		return err
	}
	conn, err := core.Connect(socketclient.NewVppClient(d.Socket()))
	if err != nil {
		return err
	}
	defer conn.Disconnect()
	reply, err := vpe.NewServiceClient(conn).ShowVersion(ctx, &vpe.ShowVersion{})
	if err != nil {
		return err
	}
	d.version = reply.Version
	return nil
}

// Kill ends the process as a crash does (SIGKILL) and returns when it is gone.
func (d *Dataplane) Kill() error { return d.process.end(os.Kill, stopLimit) }

// Stop ends the process as an operator does (SIGTERM) and returns when it is gone.
func (d *Dataplane) Stop() error { return d.process.end(terminate, stopLimit) }

// Close stops the dataplane and removes what it left on the machine, with its directory unless Options named that.
func (d *Dataplane) Close() error {
	errs := []error{d.Stop()}
	if d.netns != nil {
		errs = append(errs, d.netns.Close())
	}
	if d.prefix != "" {
		errs = append(errs, d.removeSegments())
	}
	if d.owned {
		errs = append(errs, os.RemoveAll(d.options.Dir))
	}
	return errors.Join(errs...)
}

// IsVPP reports whether the dataplane is an installed VPP and not weft-vswitch.
func (d *Dataplane) IsVPP() bool { return d.prefix != "" }

// Version returns what the dataplane answered to show_version at its last start, such as "25.10-release".
func (d *Dataplane) Version() string { return d.version }

// PID returns the process id; 0 if the dataplane does not run.
func (d *Dataplane) PID() int { return d.process.pid() }

// Ended returns a channel that is closed when the process that was started last has ended; nil before the first start.
func (d *Dataplane) Ended() <-chan struct{} {
	if d.process == nil {
		return nil
	}
	return d.process.ended
}

// Dir returns the directory of sockets, configuration and log, which is also the runtime directory of the dataplane.
func (d *Dataplane) Dir() string { return d.options.Dir }

// Socket returns the path of the API socket.
func (d *Dataplane) Socket() string { return d.path("api.sock") }

// StatsSocket returns the path of the stats segment's socket.
func (d *Dataplane) StatsSocket() string { return d.path("stats.sock") }

// CLISocket returns the path of VPP's CLI socket; weft-vswitch has none.
func (d *Dataplane) CLISocket() string { return d.path("cli.sock") }

// Log returns the path of the file with everything that the process wrote to stdout and stderr, over all starts.
func (d *Dataplane) Log() string { return d.path("dataplane.log") }

// LogTail returns the last lines of the log.
func (d *Dataplane) LogTail() string {
	const kept = 40
	text, err := os.ReadFile(d.Log())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-kept):], "\n")
}

func (d *Dataplane) path(name string) string { return filepath.Join(d.options.Dir, name) }

// command is the program with its arguments and environment.
func (d *Dataplane) command() *exec.Cmd {
	if d.prefix != "" {
		return d.vppCommand()
	}
	cmd := exec.Command(filepath.Join(d.options.Programs, "weft-vswitch"),
		"--api-socket", d.Socket(), "--workers", fmt.Sprint(max(1, d.options.Workers)), "--log-level", "debug")
	return cmd
}
