package ctl_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/weftnet/weft/ctl"
	"github.com/weftnet/weft/ctl/ctltest"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// answer runs weftctl against an agent with these replies, and returns its output and exit code.
func answer(t *testing.T, replies ctltest.Replies, args ...string) (string, int, *ctltest.Agent) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "agent.sock")
	agent, stop, err := ctltest.Serve(socket, replies)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	var out bytes.Buffer
	env := ctl.Env{Out: &out, Err: &out, Now: func() time.Time { return now }, Width: 80}
	code, err := checkedMain(context.Background(), env, append(args, "--socket", socket))
	if err != nil {
		t.Error(err)
	}
	return strings.ReplaceAll(out.String(), socket, "SOCKET"), code, agent
}

func TestTables(t *testing.T) {
	commands := []string{
		"status", "attachments", "events", "event 1", "event 2", "transactions", "transactions 1",
		"transactions 2", "transactions 3 --ops",
		"transaction 4", "transaction 5",
		"objects", "why vpp.route/x", "addresses", "devices", "counters", "counters --pod default/a", "settings",
		"resync", "gc --dry-run",
	}
	var b strings.Builder
	for _, command := range commands {
		got, code, _ := answer(t, ctltest.Sample(now), strings.Fields(command)...)
		if code != 0 {
			t.Errorf("%s: exit code %d", command, code)
		}
		wantFit(t, command, got)
		b.WriteString("$ weftctl " + command + "\n" + got + "\n")
	}
	golden(t, "tables", b.String())
}

// wantFit fails the test if an output does not fit a terminal of 80 columns.
func wantFit(t *testing.T, command, output string) {
	t.Helper()
	for line := range strings.Lines(output) {
		if width := text.StringWidthWithoutEscSequences(strings.TrimSuffix(line, "\n")); width > 80 {
			t.Errorf("%s: a line has %d columns on a terminal of 80:\n%s", command, width, line)
		}
	}
}

// The golden files have more invocations of some commands.
func TestTablesOfAllCommandsFitATerminal(t *testing.T) {
	for _, command := range commandLines(t, documents) {
		replies := ctltest.Sample(now)
		replies.Empty = true
		got, code, _ := answer(t, replies, strings.Fields(command.text)...)
		if wantFit(t, command.text, got); code != command.code || got == "" {
			t.Errorf("%s: exit code %d, want %d, output %q", command.text, code, command.code, got)
		}
	}
}

// Names are to be copied, so no column cuts one. A long error has a few lines, and weftctl event has all of it.
func TestTableOfEventsFitsATerminal(t *testing.T) {
	replies := ctltest.Sample(now)
	replies.Events[1].Error = "vpp.interface/weft-123456789012345-eth0: create: no such namespace\nlinux.netns//run/netns/cni-0123: delete: busy " +
		strings.Repeat("and more ", 40) + "the end"
	got, _, _ := answer(t, replies, "events")
	wantFit(t, "events", got)
	if !strings.Contains(got, " vpp.interface/weft-123456789012345-eth0:") || strings.Contains(got, "the end") ||
		strings.Count(got, "\n") > 16 {
		t.Errorf("%d lines:\n%s", strings.Count(got, "\n"), got)
	}
	if got, _, _ := answer(t, replies, "events", "--wide"); !strings.Contains(got,
		"no such namespace; linux.netns//") ||
		!strings.Contains(got, "the end") {
		t.Errorf("--wide has not all:\n%s", got)
	}
	if got, _, _ := answer(t, replies, "event", "2"); !strings.Contains(got, "the end") {
		t.Errorf("event 2:\n%s", got)
	}
}

// The agent counts the operations of an event that were begun, so a transaction has the same number.
func TestSkippedOperationsAreNeitherErrorsNorCounted(t *testing.T) {
	replies := ctltest.Sample(now)
	txn := replies.Transactions[len(replies.Transactions)-1]
	txn.Operations = []*operatorv1.Operation{
		{Ref: "a", Verb: "create", Batch: 1, Outcome: "not applied", Error: "no"}, {
			Ref:     "b",
			Verb:    "create",
			Outcome: "skipped",
			Error:   "not begun",
		},
	}
	for command, wants := range map[string][]string{
		fmt.Sprintf("transaction %d", txn.Seq): {"error: no", "skipped: not begun", ", 1 operation skipped"},
		"transactions 1":                       {"  1 operation  ", "skipped: not begun", ", 1 operation skipped"},
		"transactions":                         {", 1 operation skipped"},
	} {
		got, _, _ := answer(t, replies, strings.Fields(command)...)
		got = strings.Join(strings.Fields(got), " ")
		for _, want := range wants {
			if !strings.Contains(got, strings.TrimSpace(want)) {
				t.Errorf("%s: no %q in\n%s", command, want, got)
			}
		}
		if strings.Contains(got, "error: not begun") || strings.Contains(got, "2 operations") {
			t.Errorf("%s:\n%s", command, got)
		}
	}
}

func TestTablesWithAllColumns(t *testing.T) {
	var b strings.Builder
	for _, command := range []string{"attachments", "events", "transactions", "addresses", "devices", "counters"} {
		got, code, _ := answer(t, ctltest.Sample(now), command, "--wide")
		if again, _, _ := answer(t, ctltest.Sample(now), command, "-o", "wide"); code != 0 || again != got {
			t.Errorf("%s: exit code %d; -o wide prints %s", command, code, again)
		}
		b.WriteString("$ weftctl " + command + " --wide\n" + got + "\n")
	}
	golden(t, "wide", b.String())
}

func TestJSONAndYAML(t *testing.T) {
	for _, format := range []string{"json", "yaml"} {
		var b strings.Builder
		for _, command := range commandLines(t, documents, documentsOnly) {
			replies := ctltest.Sample(now)
			replies.Empty = true
			got, code, _ := answer(t, replies, append(strings.Fields(command.text), "-o", format)...)
			if code != command.code {
				t.Errorf("%s: exit code %d, want %d", command.text, code, command.code)
			}
			b.WriteString("$ weftctl " + command.text + " -o " + format + "\n" + got + "\n")
		}
		golden(t, format, b.String())
	}
}

func TestEmptyRepliesPrintAPhrase(t *testing.T) {
	empty := ctltest.Sample(now)
	empty.Attachments = nil
	empty.Events = nil
	empty.Transactions = nil
	empty.Objects = nil
	empty.Addresses = nil
	empty.Devices = nil
	empty.State.Conditions = nil
	empty.Counters = nil
	for command, want := range map[string]string{
		"attachments":    "no attachments\n",
		"events":         "no events\n",
		"transactions 1": "no transactions\n",
		"objects":        "no objects\n",
		"addresses":      "no pools\n\nall addresses are free\n",
		"devices":        "memif devices: 0 free, not registered with kubelet\n\nno allocations\n",
		"counters":       "no interface counters\n\nno error counters\n",
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
