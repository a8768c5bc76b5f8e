package ctl_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/ctl"
)

// invocation is how the tests of outputs run a command.
type invocation struct {
	arguments string
	prints    kind
	code      int
}

// kind is what a command prints.
type kind int

const (
	documents     kind = iota
	documentsOnly      // nothing as a table, or an empty value
	other              // bytes, or text in each format
	nothing            // unless there is something to report
)

// invocations are the commands that the agent of these tests answers, by path.
var invocations = map[string]invocation{
	"status": {}, "attachments": {}, "events": {}, "event": {arguments: "1"}, "transactions": {},
	"transaction": {arguments: "4"}, "objects": {}, "why": {arguments: "x"}, "addresses": {}, "devices": {},
	"policy": {arguments: "default/a"}, "counters": {}, "settings": {}, "resync": {}, "gc": {}, "audit": {},
	"log-level": {prints: documentsOnly}, "quarantine list": {},
	"quarantine release": {arguments: "default/a", prints: documentsOnly},
	"pod":                {arguments: "default/a"}, "diff": {}, "graph": {arguments: "default/a"},
	"plan pod": {arguments: "-f " + podFile}, "plan config": {arguments: "-f " + configFile},
	"plan external": {arguments: "lab -f " + externalFile}, "configure": {arguments: "lab " + externalFile, code: 1},
	"dataplane interfaces": {}, "dataplane memifs": {}, "dataplane drops": {}, "dataplane fib": {},
	"dataplane bridges": {}, "dataplane neighbours": {}, "dataplane runtime": {},
	"capture": {arguments: "default/a eth0"}, "trace": {arguments: "default/a", prints: nothing},
	"bundle": {arguments: "--write -", prints: other},
}

// Files of the invocations.
const (
	podFile      = "testdata/commands/pod.yaml"
	configFile   = "testdata/commands/config.yaml"
	externalFile = "testdata/commands/external.json"
)

// elsewhere are the other commands, with the reason.
var elsewhere = map[string]string{
	"addresses blocks": "reads a cluster: cluster_test.go",
	"addresses check":  "reads a cluster: check_test.go",
	"check":            "reads a cluster: cluster_test.go",
	"dataplane":        "prints its help",
	"install":          "makes manifests without an agent: install_test.go",
	"lint":             "reads files without an agent: script lint.txtar",
	"plan":             "prints its help",
	"probe interfaces": "runs in probe pods of weftctl check",
	"probe send":       "runs in probe pods of weftctl check",
	"probe serve":      "runs in probe pods of weftctl check",
	"probe tap":        "runs in probe pods of weftctl check",
	"profile":          "reads another socket: newfile_test.go",
	"quarantine":       "prints its help",
	"schema":           "needs no agent: schema_test.go",
	"ui":               "serves a page until it is interrupted",
	"upgrade":          "reads the machine of the agent",
	"upgrade check":    "reads the machine of the agent",
}

// commandLine is a command line with its expectation.
type commandLine struct {
	invocation
	path, text string
}

// commandLines returns the command lines of the invocations that print one of the kinds, in order. Each command of
// weftctl has an invocation, or a reason to have none.
func commandLines(t *testing.T, kinds ...kind) []commandLine {
	t.Helper()
	paths := ctl.CommandPaths()
	for _, path := range paths {
		_, runs := invocations[path]
		if _, isElsewhere := elsewhere[path]; runs == isElsewhere {
			t.Errorf("command %q: it is to be in invocations, or in elsewhere with a reason", path)
		}
	}
	var lines []commandLine
	for path, i := range invocations {
		if !slices.Contains(paths, path) {
			t.Errorf("there is no command %q", path)
		}
		if slices.Contains(kinds, i.prints) {
			lines = append(lines, commandLine{i, path, strings.TrimSpace(path + " " + i.arguments)})
		}
	}
	for path := range elsewhere {
		if !slices.Contains(paths, path) {
			t.Errorf("there is no command %q", path)
		}
	}
	slices.SortFunc(lines, func(a, b commandLine) int { return strings.Compare(a.text, b.text) })
	return lines
}
