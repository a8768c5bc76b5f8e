package weft_test

import (
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	requirement = regexp.MustCompile(`(?m)^\t(\S+) v\S+$`) // without those that are marked as indirect
	namedModule = regexp.MustCompile("`([a-z.0-9]+\\.[a-z]+/[^` ]+)`")
)

func TestREADMEGivesAReasonForEachDependency(t *testing.T) {
	modules, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## Dependencies\n")
	section, _, _ = strings.Cut(section, "\n## ")
	required := found(requirement, string(modules))
	named := found(namedModule, section)
	if len(required) == 0 || len(named) == 0 {
		t.Fatalf("found %d modules in go.mod and %d in README.md", len(required), len(named))
	}
	for _, m := range slices.Sorted(maps.Keys(required)) {
		if !named[m] {
			t.Errorf("README.md gives no reason for %s, which go.mod requires", m)
		}
	}
	for _, m := range slices.Sorted(maps.Keys(named)) {
		if !required[m] {
			t.Errorf("README.md names %s, which go.mod does not require", m)
		}
	}
}

func TestMakeHelpListsEveryTargetWithADescription(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	help, err := exec.CommandContext(t.Context(), "make", "help").Output()
	if err != nil {
		t.Fatal(err)
	}
	listed := found(regexp.MustCompile(`(?m)^  make (\S+)`), string(help))
	described := found(regexp.MustCompile(`(?m)^([^\s:]+):.* ## `), string(makefile))
	if !maps.Equal(listed, described) {
		t.Errorf("make help lists %v, want %v", slices.Sorted(maps.Keys(listed)), slices.Sorted(maps.Keys(described)))
	}
}

// found gives what the expression's group matches in text.
func found(expression *regexp.Regexp, text string) map[string]bool {
	set := map[string]bool{}
	for _, match := range expression.FindAllStringSubmatch(text, -1) {
		set[match[1]] = true
	}
	return set
}
