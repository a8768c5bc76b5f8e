package main

import (
	"slices"
	"testing"

	"github.com/weftnet/weft/test/pages"
)

// parse checks a command line without running it.
func parse(args []string) error {
	c, rest, err := command().Find(args)
	if err != nil {
		return err
	}
	if slices.Contains(rest, "--help") || slices.Contains(rest, "--version") {
		return nil
	}
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	return c.ValidateArgs(c.Flags().Args())
}

func TestCommandsOfPagesParse(t *testing.T) {
	if n := pages.CheckCommands(t, "../..", "weft-agent", parse); n < 3 {
		t.Errorf("checked %d commands", n)
	}
}

func TestInvalidCommandsDoNotParse(t *testing.T) {
	for _, args := range [][]string{{"instal"}, {"run", "--nothing"}, {"health", "extra"}} {
		if err := parse(args); err == nil {
			t.Errorf("%q has no error", args)
		}
	}
}
