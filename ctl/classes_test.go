package ctl

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A new command must say whether it changes state: without an entry kubectl weft refuses it unless the operator chooses
// nodes.
func TestEachCommandHasAClass(t *testing.T) {
	c := &client{printer: printer{out: io.Discard}}
	known := 0
	for _, cmd := range rootCommand(c).Commands() {
		if _, ok := classes[pathOf(cmd)]; !ok {
			t.Errorf("command %s is not in classes (fleet.go)", pathOf(cmd))
		}
		known++
	}
	if known < 15 {
		t.Errorf("found %d commands", known)
	}
}

func TestClassOfACommand(t *testing.T) {
	for line, want := range map[string]class{
		"status": reads, "events": reads, "events -f": streams, "gc": changes, "gc --dry-run": reads,
		"gc --dry-run=false": changes,
		"quarantine list":    reads, "quarantine release": changes, "addresses": reads, "addresses check": here,
		"probe serve": here,
	} {
		root := rootCommand(&client{printer: printer{out: io.Discard}})
		words := strings.Fields(line)
		cmd, flags, err := root.Find(words)
		if err == nil {
			err = cmd.ParseFlags(flags)
		}
		if got := classOf(cmd); err != nil || got != want {
			t.Errorf("%s: class %d, want %d (%v)", line, got, want, err)
		}
	}
	if got := classOf(&cobra.Command{Use: "unknown"}); got != changes {
		t.Errorf("an unknown command has class %d", got)
	}
}
