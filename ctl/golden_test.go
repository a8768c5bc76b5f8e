package ctl_test

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weftnet/weft/ctl"
	"github.com/weftnet/weft/ctl/ctltest"
)

var update = flag.Bool("update", false, "write the golden files anew")

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// answer is what a client says to args, with its exit code if that is not 0.
func answer(t *testing.T, replies ctltest.Replies, args ...string) (string, int, *ctltest.Agent) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "agent.sock")
	agent, stop, err := ctltest.Serve(socket, replies)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	var out bytes.Buffer
	env := ctl.Env{Out: &out, Err: &out, Now: func() time.Time { return now }}
	code := ctl.Main(context.Background(), env, append(args, "--socket", socket))
	return strings.ReplaceAll(out.String(), socket, "SOCKET"), code, agent
}

// rows: AWS-25, MEM-13
func TestWhatOperatorsSee(t *testing.T) {
	commands := []string{
		"status", "attachments", "events", "transactions", "transactions 1", "transactions 2", "transactions 3 --ops",
		"objects", "why vpp.route/x", "addresses", "devices", "counters", "counters --pod default/a", "settings", "resync", "gc --dry-run",
	}
	var b strings.Builder
	for _, command := range commands {
		got, code, _ := answer(t, ctltest.Sample(now), strings.Fields(command)...)
		if code != 0 {
			t.Errorf("%s: exit code %d", command, code)
		}
		b.WriteString("$ weftctl " + command + "\n" + got + "\n")
	}
	golden(t, "tables", b.String())
}

func TestWhatToolsRead(t *testing.T) {
	for _, format := range []string{"json", "yaml"} {
		var b strings.Builder
		for _, command := range []string{"status", "attachments", "events", "transactions", "objects", "why x", "addresses", "devices", "counters", "settings", "resync", "gc"} {
			got, code, _ := answer(t, ctltest.Sample(now), append(strings.Fields(command), "-o", format)...)
			if code != 0 {
				t.Errorf("%s: exit code %d", command, code)
			}
			b.WriteString("$ weftctl " + command + " -o " + format + "\n" + got + "\n")
		}
		golden(t, format, b.String())
	}
}

func TestAnIdleAgentSaysSo(t *testing.T) {
	empty := ctltest.Sample(now)
	empty.Attachments, empty.Events, empty.Transactions = nil, nil, nil
	empty.Objects, empty.Addresses, empty.Devices, empty.State.Conditions = nil, nil, nil, nil
	empty.Counters = nil
	for command, want := range map[string]string{
		"attachments":    "no pod is wired\n",
		"events":         "no event was handled\n",
		"transactions 1": "no transaction is in the log\n",
		"objects":        "no object is desired\n",
		"objects x":      "no object has a key that begins with \"x\"\n",
		"addresses":      "there is no pool\n\nall addresses are free\n",
		"devices":        "memifs: 0 free, kubelet does not know them\n\nnothing is allocated\n",
		"counters":       "no interface of a pod is counted\n\nthe dataplane has counted no error\n",
	} {
		replies := empty
		replies.Attachments = ctltest.Replies{}.Attachments
		got, code, _ := answer(t, replies, strings.Fields(command)...)
		if got != want || code != 0 {
			t.Errorf("%s: %q with exit code %d, want %q", command, got, code, want)
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: write it with -update", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: -want +got\n%s", path, diff)
	}
}
