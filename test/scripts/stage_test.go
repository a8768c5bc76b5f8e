package scripts_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weftnet/weft/test/leftovers"
	"github.com/weftnet/weft/test/netns"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/refuse"
	"github.com/weftnet/weft/test/stopwatch"
)

// stage is the environment of one script: a node in its own network namespace, and the sandboxes on it.
type stage struct {
	t         testing.TB
	node      *node.Node
	home      string   // the node's network namespace
	flags     []string // of the agent, from its next start
	sandboxes map[string]*sandbox
	calls     map[string]*call // running
	snapshots map[string]seen
	stream    *stream
	dhcp      dhcp
	proxy     *refuse.Proxy
	dataplane *exec.Cmd // of a script with a proxy
	killed    int       // PID of the dataplane that was killed last
	limited   bool      // the state has a file system of its own
	chain     string    // directory of the module test/chain
	newest    string    // directory of its programs; "" = none is used
}

// seen is a snapshot with the sandboxes at that time.
type seen struct {
	leftovers.Snapshot
	sandboxes map[string]string // name -> path
}

type stageKey struct{}

func on(ts *testscript.TestScript) *stage { return ts.Value(stageKey{}).(*stage) }

// setup makes the stage of a script and sets these environment variables:
//
//	NODE    the node's directory
//	STATE   the agent's state directory
//	CONFIG  the agent's configuration file
//	SOCKET  the agent's socket
func setup(env *testscript.Env, programs string) error {
	n, err := node.New(programs, node.Options{Verify: true, CoolDown: 30 * time.Second})
	if err != nil {
		return err
	}
	s := &stage{
		t: env.T().(testing.TB), node: n, home: filepath.Join(env.WorkDir, "home"),
		sandboxes: map[string]*sandbox{}, calls: map[string]*call{}, snapshots: map[string]seen{},
	}
	if s.chain, err = filepath.Abs("../chain"); err != nil {
		return err
	}
	env.Values[stageKey{}] = s
	env.Defer(func() { s.close() })
	env.Setenv("PATH", programs+string(os.PathListSeparator)+env.Getenv("PATH"))
	env.Setenv("NODE", n.Dir)
	env.Setenv("STATE", n.State())
	env.Setenv("CONFIG", n.Config())
	env.Setenv("SOCKET", n.Socket())
	env.Setenv("WEFT_SOCKET", n.Socket())
	return netns.Make(s.home)
}

// close removes everything, and logs the programs' output if the script failed.
func (s *stage) close() {
	if s.t.Failed() {
		s.explain()
	}
	errs := []error{s.endCalls(), s.endStream(), s.endDHCP(), s.node.StopAgent(), s.endProxy()}
	errs = append(errs, s.unlimit(), s.node.Close(), netns.Remove(s.home))
	if err := errors.Join(errs...); err != nil {
		s.t.Errorf("remove the node: %v", err)
	}
}

// programs returns the directory of the programs.
func (s *stage) programs() string { return filepath.Dir(s.node.Program("weft-cni")) }

func (s *stage) explain() {
	if out, err := s.node.Weftctl(context.Background(), "transactions", "3", "--ops"); err == nil {
		s.t.Logf("weftctl transactions:\n%s", out)
	}
	s.t.Log(s.node.LogTails(60, s.daemonLog()))
}

// within DURATION COMMAND...: fails if the command takes longer than the duration.
func within(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		usage(ts, "within DURATION COMMAND...")
	}
	limit, err := time.ParseDuration(args[0])
	ts.Check(err)
	command := commands()[args[1]]
	if command == nil {
		ts.Fatalf("within: unknown command %s", args[1])
	}
	if took := stopwatch.Time(func() { command(ts, neg, args[2:]) }); took > limit {
		ts.Fatalf("%s took %s, more than %s", strings.Join(args[1:], " "), took.Round(time.Millisecond), limit)
	}
}

// until PATTERN weftctl ARG...: runs weftctl until a line of its output matches.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 || args[1] != "weftctl" {
		usage(ts, "until PATTERN weftctl ARG...")
	}
	out, err := on(ts).untilLine(args[0], args[2:])
	_, _ = ts.Stdout().Write([]byte(out))
	ts.Check(err)
}
