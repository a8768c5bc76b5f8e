package ctl_test

import (
	"context"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/ctl"
	"github.com/weftnet/weft/ctl/ctltest"
	"github.com/weftnet/weft/k8s/k8stest"
)

// newRealAgents is a cluster whose agents' pods run this weftctl with a fake agent.
func newRealAgents(t *testing.T, replies ctltest.Replies, nodes ...string) *agents {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "agent.sock")
	_, stop, err := ctltest.Serve(socket, replies)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	t.Setenv("WEFT_SOCKET", socket)
	return newAgents(t, func(_ string, x k8stest.Exec) int {
		return ctl.Main(context.WithoutCancel(t.Context()), ctl.Env{In: x.In, Out: x.Out, Err: x.Err}, x.Command[1:])
	}, nodes...)
}

// The command line that a node gets is valid, and its output is that of the node.
func TestCommandLinesArePassedToTheNodes(t *testing.T) {
	a := newRealAgents(t, ctltest.Sample(time.Now()), "n1", "n2")
	for _, line := range []string{
		"attachments", "pods", "events --last 5", "transactions", "transactions 1", "objects", "objects vpp.route",
		"why vpp.interface/weft-",
		"addresses", "devices", "counters", "settings", "quarantine list",
		"gc --dry-run", "resync downstream --dry-run",
		"gc --force weft/a/eth0 --force weft/b/eth0", "status --timeout 5s", "events -o json --last=1",
		"objects -o yaml",
	} {
		local, complaints, want := run(t, line)
		remote, failures, code := a.run(false, append(strings.Fields(line), "--node", "n1")...)
		if code != want || whole(remote) != whole(local) {
			t.Errorf("%s: exit code %d, on the node %d (%s%s)\nhere: %s\non the node: %s", line, want, code, complaints,
				failures, local, remote)
		}
		if out, _, merged := a.run(true,
			append(strings.Fields(line), "--all-nodes", "-o", "json")...); merged != want ||
			!strings.Contains(out, `"n2"`) {
			t.Errorf("%s on all nodes: exit code %d: %s", line, merged, out)
		}
	}
}

// seconds are times until something happens or since it happened, which differ from one run to the next.
var seconds = regexp.MustCompile(`\b[0-9]+s\b`)

// whole returns an output without seconds.
func whole(out string) string { return seconds.ReplaceAllString(out, "Ns") }

// run runs weftctl with the agent at WEFT_SOCKET.
func run(t *testing.T, line string) (stdout, stderr string, code int) {
	t.Helper()
	var out, failures strings.Builder
	code = ctl.Main(t.Context(), ctl.Env{In: strings.NewReader(""), Out: &out, Err: &failures}, strings.Fields(line))
	return out.String(), failures.String(), code
}

// A stream on a node ends with its operator.
func TestCommandEndsWithItsInput(t *testing.T) {
	newRealAgents(t, ctltest.Sample(time.Now()))
	in, end := io.Pipe()
	var out eventuallyBuffer
	done := make(chan int)
	go func() {
		done <- ctl.Main(context.WithoutCancel(t.Context()), ctl.Env{In: in, Out: &out, Err: &out}, []string{
			"events", "-f", "--end-with-input",
		})
	}()
	k8stest.Eventually(t, "an event", func() bool { return strings.Contains(out.String(), "#1") })
	_ = end.Close()
	select {
	case code := <-done:
		if code != 0 {
			t.Errorf("exit code %d: %s", code, out.String())
		}
	case <-time.After(k8stest.Patience):
		t.Errorf("the command goes on: %s", out.String())
	}
}

func TestPluginHelpNamesThePlugin(t *testing.T) {
	a := newAgents(t, says)
	out, _, code := a.run(true, "events", "--help")
	if code != 0 || !strings.Contains(out, "kubectl weft events [flags]") ||
		!strings.Contains(out, "  kubectl weft events --last 5\n") || strings.Contains(out, "end-with-input") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if out, _, _ := a.run(true, "--help"); strings.Contains(out, "weftctl status") ||
		!strings.Contains(out, "kubectl weft status") {
		t.Errorf("help: %s", out)
	}
	for program, is := range map[string]bool{
		"/usr/local/bin/kubectl-weft": true,
		"kubectl-weft":                true,
		"/usr/bin/weftctl":            false,
	} {
		if ctl.IsPlugin(program) != is {
			t.Errorf("%s is a plugin: %v", program, !is)
		}
	}
}
