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
	if n := pages.CheckCommands(t, "..", "weftctl", parse); n < 50 {
		t.Errorf("checked %d commands", n)
	}
}

func TestInvalidCommandsDoNotParse(t *testing.T) {
	for _, args := range [][]string{{"statsu"}, {"status", "--nothing"}, {"event"}, {"dataplane", "interfaces", "a/b", "c/d"}, {"quarantine", "release"}} {
		if err := parse(args); err == nil {
			t.Error(fmt.Sprint(args) + " has no error")
		}
	}
}
