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
	all, err := pages.All("../..")
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
				args, is := pages.Of(c, "weft-agent")
				if !is {
					continue
				}
				checked++
				if err := parse(args); err != nil {
					t.Errorf("%s:%d: weft-agent %q: %v", p.Path, b.Line, args, err)
				}
			}
		}
	}
	if checked < 3 {
		t.Errorf("checked %d commands", checked)
	}
}

func TestInvalidCommandsDoNotParse(t *testing.T) {
	for _, args := range [][]string{{"instal"}, {"run", "--nothing"}, {"health", "extra"}} {
		if err := parse(args); err == nil {
			t.Errorf("%q has no error", args)
		}
	}
}
