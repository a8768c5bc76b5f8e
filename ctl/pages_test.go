package ctl

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weftnet/weft/test/pages"
)

// parse checks a command line without running it.
func parse(args []string) error {
	command, err := parseFlags(args)
	if err != nil || command == nil {
		return err
	}
	return command.ValidateArgs(command.Flags().Args())
}

// parseFlags is parse without the number of arguments. The command is nil if it only prints a text.
func parseFlags(args []string) (*cobra.Command, error) {
	root := rootCommand(&client{printer: printer{out: io.Discard}, err: io.Discard})
	root.InitDefaultCompletionCmd()
	command, rest, err := root.Find(args)
	if err != nil {
		return nil, err
	}
	if slices.Contains(rest, "--help") || slices.Contains(rest, "--version") {
		return nil, nil
	}
	if err := command.ParseFlags(rest); err != nil {
		return nil, err
	}
	if command == root && len(command.Flags().Args()) > 0 {
		return nil, unknownCommand(command, command.Flags().Args())
	}
	return command, nil
}

func TestCommandsOfPagesParse(t *testing.T) {
	if n := pages.CheckCommands(t, "..", "weftctl", parse); n < 50 {
		t.Errorf("checked %d commands", n)
	}
}

func TestMentionedCommandsOfPagesExist(t *testing.T) {
	if n := pages.CheckMentions(t, "..", "weftctl", parseMention); n < 50 {
		t.Errorf("checked %d commands", n)
	}
}

// parseMention checks a command that may lack its arguments and the value of its last flag.
func parseMention(args []string) error {
	if len(args) == 1 && args[0] == "COMMAND" {
		return nil
	}
	command, err := parseFlags(args)
	var incomplete *pflag.ValueRequiredError
	if errors.As(err, &incomplete) {
		return nil
	}
	if err != nil || command == nil || !command.HasSubCommands() {
		return err
	}
	if given := strings.Join(command.Flags().Args(), ""); given == strings.ToUpper(given) {
		return nil // a placeholder, such as ADDRESS
	}
	return command.ValidateArgs(command.Flags().Args()) // finds a subcommand that does not exist
}

func TestInvalidMentionsAreReported(t *testing.T) {
	for _, args := range [][]string{
		{"statsu"}, {"lint", "-f", "pod.yaml"}, {"dataplane", "interface"}, {"plan", "pods"},
	} {
		if err := parseMention(args); err == nil {
			t.Error(fmt.Sprint(args) + " has no error")
		}
	}
	for _, args := range [][]string{{"event"}, {"gc", "--force"}, {"addresses", "10.1.0.7"}, {"dataplane"}} {
		if err := parseMention(args); err != nil {
			t.Error(fmt.Sprint(args), err)
		}
	}
}

func TestInvalidCommandsDoNotParse(t *testing.T) {
	for _, args := range [][]string{
		{"statsu"}, {"status", "--nothing"}, {"event"}, {"dataplane", "interfaces", "a/b", "c/d"},
		{"quarantine", "release"},
	} {
		if err := parse(args); err == nil {
			t.Error(fmt.Sprint(args) + " has no error")
		}
	}
}
