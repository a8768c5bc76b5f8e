package pages

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"
)

// programs are the first words that make an unmarked block a block of commands.
var programs = []string{
	"weftctl", "weft-agent", "kubectl", "helm", "make", "nft", "source", "sysctl", "echo", "git", "kubelet", "kind",
	"kubeadm", "docker", "ssh", "go",
	"vppctl", "ip", "modprobe",
}

// IsShell reports whether the block has commands: it is marked as sh or console, or is unmarked and begins with the
// name of a program.
func (b Block) IsShell() bool {
	if b.Fenced {
		return b.Language == "sh" || b.Language == "console"
	}
	first, _, _ := strings.Cut(strings.TrimSpace(b.Text), " ")
	return slices.Contains(programs, first)
}

// Script returns the commands of a block. In a console they follow "$ "; other lines are output.
func (b Block) Script() string {
	if b.Language != "console" {
		return b.Text
	}
	var script strings.Builder
	continued := false
	for line := range strings.Lines(b.Text) {
		command, is := strings.CutPrefix(line, "$ ")
		if is || continued {
			script.WriteString(command)
			continued = strings.HasSuffix(strings.TrimRight(line, "\n"), "\\")
		}
	}
	return script.String()
}

// Commands returns the words of each simple command of a block, also of those in pipelines and substitutions. Variables
// are not expanded; a substitution such as "$(date)" is "…".
func (b Block) Commands() (all [][]string, err error) {
	file, err := syntax.NewParser().Parse(strings.NewReader(b.Script()), "")
	if err != nil {
		return nil, fmt.Errorf("not a shell script: %w", err)
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		if call, is := n.(*syntax.CallExpr); is && len(call.Args) > 0 {
			var words []string
			for _, w := range call.Args {
				words = append(words, constant(w.Parts))
			}
			all = append(all, words)
		}
		return true
	})
	if len(all) == 0 {
		return nil, fmt.Errorf("no command in %q", b.Text)
	}
	return all, nil
}

// unknown stands for the output of a command.
const unknown = "…"

func constant(parts []syntax.WordPart) string {
	var word strings.Builder
	for _, part := range parts {
		switch part := part.(type) {
		case *syntax.Lit:
			word.WriteString(part.Value)
		case *syntax.SglQuoted:
			word.WriteString(part.Value)
		case *syntax.DblQuoted:
			word.WriteString(constant(part.Parts))
		case *syntax.ParamExp:
			word.WriteString("$" + part.Param.Value)
		default:
			word.WriteString(unknown)
		}
	}
	return word.String()
}

// Of returns the arguments of a program in a command: as its first word, as a plugin of kubectl, or behind "--" of
// another program, such as kubectl exec.
func Of(command []string, program string) (arguments []string, found bool) {
	if command[0] == program {
		return command[1:], true
	}
	if program == "weftctl" && len(command) > 1 && command[0] == "kubectl" && command[1] == "weft" {
		return command[2:], true
	}
	if i := slices.Index(command, "--"); i >= 0 && i+1 < len(command) {
		return Of(command[i+1:], program)
	}
	return nil, false
}

// CheckCommands fails the test for each command of a program in the pages below root that parse refuses, and returns
// the number of commands.
func CheckCommands(t *testing.T, root, program string, parse func(arguments []string) error) (checked int) {
	t.Helper()
	all, err := All(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		for _, b := range p.Blocks {
			for _, arguments := range b.argumentsOf(t, program, p.Path) {
				checked++
				if err := parse(arguments); err != nil {
					t.Errorf("%s:%d: %s %q: %v", p.Path, b.Line, program, arguments, err)
				}
			}
		}
	}
	return checked
}

// CheckMentions is CheckCommands for code within lines, such as the cells of tables. Such commands may be incomplete.
func CheckMentions(t *testing.T, root, program string, parse func(arguments []string) error) (checked int) {
	t.Helper()
	all, err := All(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		for _, s := range p.Spans {
			b := Block{Line: s.Line, Fenced: true, Language: "sh", Text: s.Text}
			if !strings.Contains(s.Text, program+" ") && !strings.HasPrefix(s.Text, "kubectl weft ") {
				continue
			}
			for _, arguments := range b.argumentsOf(t, program, p.Path) {
				checked++
				if err := parse(arguments); err != nil {
					t.Errorf("%s:%d: %s %q: %v", p.Path, s.Line, program, arguments, err)
				}
			}
		}
	}
	return checked
}

// argumentsOf returns the arguments of each command of a program in a block.
func (b Block) argumentsOf(t *testing.T, program, page string) (all [][]string) {
	t.Helper()
	if !b.IsShell() {
		return nil
	}
	commands, err := b.Commands()
	if err != nil {
		t.Errorf("%s:%d: %v", page, b.Line, err)
	}
	for _, c := range commands {
		if arguments, is := Of(c, program); is {
			all = append(all, arguments)
		}
	}
	return all
}
