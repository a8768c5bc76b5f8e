// Package scripts_test tests the behaviour that users of a node see, with scripts that run the real programs.
package scripts_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/programs"
)

func TestMain(m *testing.M) {
	netnstest.Enter()
	if err := enterSearch(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	// Scripts mostly wait, so more of them run than there are processors; a flag takes precedence.
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	goleak.VerifyTestMain(m)
}

// TestScripts runs each script of testdata/script on a node in its own network namespace. The map has the commands
// beside testscript's own; the doc comment of each function describes its command.
func TestScripts(t *testing.T) {
	netnstest.RequireTap(t)
	built := programs.Build(t)
	testscript.Run(t, testscript.Params{
		Dir:   "testdata/script",
		Setup: func(env *testscript.Env) error { return setup(env, built) },
		Cmds:  commands(),
		Condition: func(name string) (bool, error) {
			switch name {
			case "tap":
				return dataplane.HasTaps(), nil
			case "vpp":
				return dataplane.Prefix() != "", nil
			}
			return false, fmt.Errorf("unknown condition %s", name)
		},
	})
}

// command is a command of scripts; neg is true after "!".
type command = func(ts *testscript.TestScript, neg bool, args []string)

func commands() map[string]command {
	return map[string]command{
		"agent":     agentCommand,
		"dataplane": dataplaneCommand,
		"network":   networkCommand,
		"dhcp":      dhcpCommand,
		"proxy":     proxyCommand,
		"refuse":    refuseCommand,
		"hang":      hangCommand,
		"lose":      loseCommand,
		"await":     awaitCommand,
		"sandbox":   sandboxCommand,
		"cni":       cniCommand,
		"every":     everyCommand,
		"crowd":     crowdCommand,
		"crash":     crashCommand,
		"runtime":   runtimeCommand,
		"plugins":   pluginsCommand,
		"ping":      pingCommand,
		"reach":     reachCommand,
		"stream":    streamCommand,
		"snapshot":  snapshotCommand,
		"same":      sameCommand,
		"cnitool":   cnitoolCommand,
		"home":      homeCommand,
		"outside":   outsideCommand,
		"tcp":       tcpCommand,
		"meddle":    meddleCommand,
		"look":      lookCommand,
		"logged":    loggedCommand,
		"first":     firstCommand,
		"flood":     floodCommand,
		"listeners": listenersCommand,
		"ownmac":    ownmacCommand,
		"queues":    queuesCommand,
		"state":     stateCommand,
		"queue":     queueCommand,
		"weftctl":   weftctlCommand,
		"capture":   captureCommand,
		"within":    within,
		"until":     until,
	}
}

// check ends the script unless the command's result is the expected one.
func check(ts *testscript.TestScript, neg bool, err error) {
	switch {
	case err == nil && neg:
		ts.Fatalf("unexpected success")
	case err != nil && !neg:
		ts.Fatalf("%v", err)
	}
}

// usage fails the script because of a malformed line.
func usage(ts *testscript.TestScript, text string) { ts.Fatalf("usage: %s", text) }

var errUsage = errors.New("wrong usage")
