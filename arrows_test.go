// Package weft_test checks properties of the whole repository, for example which package may import which.
package weft_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/weftnet/weft"

// pkg is a package in the output of go list, with its imports except those of its tests.
type pkg struct {
	ImportPath string
	Imports    []string
}

// arrows holds for each package the packages that it may import.
type arrows map[string][]string

func TestImportsFollowTheRulesOfTheArchitecturePage(t *testing.T) {
	allowed := readArrows(t)
	for _, violation := range allowed.violations(listPackages(t)) {
		t.Error(violation)
	}
}

func TestPackagesOfTheArchitecturePageExist(t *testing.T) {
	for dir := range readArrows(t) {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			t.Errorf("ARCHITECTURE.md names the package %s, which does not exist", dir)
		}
	}
}

func TestForbiddenImportsAreFound(t *testing.T) {
	allowed := arrows{
		"pod":                {},
		"ipnet":              {"pod", "ipnet/ipam"},
		"ipnet/ipam":         {},
		"agent":              {"pod", "ipnet"},
		"internal/netnstest": {},
	}
	tests := []struct {
		name, from, to, violation string
	}{
		{"an import of the page is allowed", "ipnet", "pod", ""},
		{"a package may import packages below it", "agent/state", "agent", ""},
		{"a third-party package has no rules here", "pod", "golang.org/x/sys/unix", ""},
		{"a new import is refused", "pod", "ipnet", "pod must not import ipnet (arrow pod -> ipnet)"},
		{
			"a reverse import is refused", "ipnet", "agent/state",
			"ipnet must not import agent/state (arrow ipnet -> agent)",
		},
		{
			"a package below another one has its own rules", "ipnet/ipam", "pod",
			"ipnet/ipam must not import pod (arrow ipnet/ipam -> pod)",
		},
		{
			"a package without rules is refused", "extra/thing", "",
			"extra/thing is not in the import rules of ARCHITECTURE.md",
		},
		{"a similar name is another package", "podlike", "", "podlike is not in the import rules of ARCHITECTURE.md"},
		{
			"a test package is for tests", "agent", "agent/agenttest",
			"agent must not import agent/agenttest, which is for tests",
		},
		{"a test package may use another one", "agent/agenttest", "internal/netnstest", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			graph := []pkg{{ImportPath: module + "/" + tt.from, Imports: []string{"fmt"}}}
			if tt.to != "" {
				to := module + "/" + tt.to
				if strings.Contains(tt.to, ".org/") {
					to = tt.to
				}
				graph[0].Imports = append(graph[0].Imports, to)
			}
			if got := strings.Join(allowed.violations(graph), "; "); got != tt.violation {
				t.Errorf("faults: %q, want %q", got, tt.violation)
			}
		})
	}
}

// violations lists the imports of graph that no arrow allows.
func (a arrows) violations(graph []pkg) []string {
	var violations []string
	for _, p := range graph {
		from, ours := strings.CutPrefix(p.ImportPath, module+"/")
		if !ours {
			continue
		}
		if a.owner(from) == "" {
			violations = append(violations, from+" is not in the import rules of ARCHITECTURE.md")
			continue
		}
		for _, imported := range p.Imports {
			if to, ours := strings.CutPrefix(imported, module+"/"); ours {
				violations = append(violations, a.violation(from, to)...)
			}
		}
	}
	return violations
}

// violation returns the error of the import of package to by package from, or nothing.
func (a arrows) violation(from, to string) []string {
	source := a.owner(from)
	target := a.owner(to)
	switch {
	case isForTests(to) && isForTests(from):
		return nil
	case isForTests(to):
		return []string{fmt.Sprintf("%s must not import %s, which is for tests", from, to)}
	case source == target || slices.Contains(a[source], target):
		return nil
	}
	return []string{fmt.Sprintf("%s must not import %s (arrow %s -> %s)", from, to, source, target)}
}

// owner returns the innermost directory with rules that contains p, or "".
func (a arrows) owner(p string) string {
	for ; p != "."; p = path.Dir(p) {
		if _, ok := a[p]; ok {
			return p
		}
	}
	return ""
}

// isForTests reports whether package p is for tests only: by its name, or because it is in test/.
func isForTests(p string) bool {
	return strings.HasSuffix(path.Base(p), "test") || strings.HasPrefix(p, "test/")
}

// readArrows reads the block "arrows" of ARCHITECTURE.md.
func readArrows(t *testing.T) arrows {
	t.Helper()
	page, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```arrows\n")
	block, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("ARCHITECTURE.md has no arrows block")
	}
	a := arrows{}
	for line := range strings.Lines(block) {
		from, to, ok := strings.Cut(line, "->")
		if !ok {
			t.Fatalf("ARCHITECTURE.md: %q is not an arrow", strings.TrimSpace(line))
		}
		a[strings.TrimSpace(from)] = strings.Fields(to)
	}
	return a
}

// listPackages asks the go command for all packages of the module.
func listPackages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list packages: %v", err)
	}
	var graph []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return graph
		}
		if err != nil {
			t.Fatalf("list packages: %v", err)
		}
		graph = append(graph, p)
	}
}
