// Package scripts_test shows what users of a node are promised, by scripts that drive the real programs.
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
	// Scripts mostly wait, so that more of them may run than there are processors; the command line still wins.
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	goleak.VerifyTestMain(m)
}

// TestScripts runs each script of testdata/script on a node of its own, in a network namespace of its own. Beside
// testscript's commands there are those of the map, each described where it is defined.
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

// command is one of a script; neg stands for the ! before it.
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
		"listeners": listenersCommand,
		"ownmac":    ownmacCommand,
		"queues":    queuesCommand,
		"state":     stateCommand,
		"queue":     queueCommand,
		"weftctl":   weftctlCommand,
		"within":    within,
		"until":     until,
	}
}

// check ends the script unless a command went as the script says it should.
func check(ts *testscript.TestScript, neg bool, err error) {
	switch {
	case err == nil && neg:
		ts.Fatalf("it succeeded, and was to fail")
	case err != nil && !neg:
		ts.Fatalf("%v", err)
	}
}

// usage fails the script because of a malformed line.
func usage(ts *testscript.TestScript, text string) { ts.Fatalf("usage: %s", text) }

var errUsage = errors.New("the command is used in a wrong way")
