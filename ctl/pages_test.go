package ctl

import (
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/weftnet/weft/test/pages"
)

// parse checks a command line without running it.
func parse(args []string) error {
	root := rootCommand(&client{printer: printer{out: io.Discard}, err: io.Discard})
	root.InitDefaultCompletionCmd()
	command, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if slices.Contains(rest, "--help") || slices.Contains(rest, "--version") {
		return nil
	}
	if err := command.ParseFlags(rest); err != nil {
		return err
	}
	if command == root && len(command.Flags().Args()) > 0 {
		return unknownCommand(command, command.Flags().Args())
	}
	return command.ValidateArgs(command.Flags().Args())
}

func TestCommandsOfPagesParse(t *testing.T) {
	all, err := pages.All("..")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, p := range all {
		for _, b := range p.Blocks {
			if !b.IsShell() {
				continue
			}
			commands, err := b.Commands()
			if err != nil {
				t.Errorf("%s:%d: %v", p.Path, b.Line, err)
			}
			for _, c := range commands {
				args, is := pages.Of(c, "weftctl")
				if len(c) > 1 && c[0] == "kubectl" && c[1] == "weft" {
					args, is = c[2:], true
				}
				if !is {
					continue
				}
				checked++
				if err := parse(args); err != nil {
					t.Errorf("%s:%d: weftctl %q: %v", p.Path, b.Line, args, err)
				}
			}
		}
	}
	if checked < 50 {
		t.Errorf("checked %d commands", checked)
	}
}

func TestInvalidCommandsDoNotParse(t *testing.T) {
	for _, args := range [][]string{{"statsu"}, {"status", "--nothing"}, {"event"}, {"dataplane", "interfaces", "a/b", "c/d"}, {"quarantine", "release"}} {
		if err := parse(args); err == nil {
			t.Error(fmt.Sprint(args) + " has no error")
		}
	}
}
