// Package weft_test checks the shape of the whole repository: which room may import which.
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

// pkg is what go list says of a package, its imports without those of its tests.
type pkg struct {
	ImportPath string
	Imports    []string
}

// arrows holds for each room the rooms that it may import.
type arrows map[string][]string

func TestArrowsAreThoseOfTheArchitecturePage(t *testing.T) {
	allowed := readArrows(t)
	for _, fault := range allowed.faults(listPackages(t)) {
		t.Error(fault)
	}
}

func TestRoomsOfTheArchitecturePageExist(t *testing.T) {
	for room := range readArrows(t) {
		if info, err := os.Stat(room); err != nil || !info.IsDir() {
			t.Errorf("ARCHITECTURE.md speaks of the room %s, which is not there", room)
		}
	}
}

func TestPlantedArrowsAreSeen(t *testing.T) {
	allowed := arrows{"pod": {}, "ipnet": {"pod", "ipnet/ipam"}, "ipnet/ipam": {}, "agent": {"pod", "ipnet"}, "internal/netnstest": {}}
	tests := []struct {
		name, from, to, fault string
	}{
		{"an arrow of the page is free", "ipnet", "pod", ""},
		{"a room may use itself", "agent/state", "agent", ""},
		{"a foreign package is not a room", "pod", "golang.org/x/sys/unix", ""},
		{"a new arrow is refused", "pod", "ipnet", "pod must not import ipnet (arrow pod -> ipnet)"},
		{"an arrow back is refused", "ipnet", "agent/state", "ipnet must not import agent/state (arrow ipnet -> agent)"},
		{"a room within a room has arrows of its own", "ipnet/ipam", "pod", "ipnet/ipam must not import pod (arrow ipnet/ipam -> pod)"},
		{"a folder that is no room is refused", "extra/thing", "", "extra/thing belongs to no room of ARCHITECTURE.md"},
		{"a similar name is not the room", "podlike", "", "podlike belongs to no room of ARCHITECTURE.md"},
		{"a test package is for tests", "agent", "agent/agenttest", "agent must not import agent/agenttest, which is for tests"},
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
			if got := strings.Join(allowed.faults(graph), "; "); got != tt.fault {
				t.Errorf("faults: %q, want %q", got, tt.fault)
			}
		})
	}
}

// faults lists what graph has and the arrows do not allow.
func (a arrows) faults(graph []pkg) []string {
	var faults []string
	for _, p := range graph {
		from, ours := strings.CutPrefix(p.ImportPath, module+"/")
		if !ours {
			continue
		}
		if a.room(from) == "" {
			faults = append(faults, from+" belongs to no room of ARCHITECTURE.md")
			continue
		}
		for _, imported := range p.Imports {
			if to, ours := strings.CutPrefix(imported, module+"/"); ours {
				faults = append(faults, a.fault(from, to)...)
			}
		}
	}
	return faults
}

// fault says what is wrong with the import of the package to by the package from: nothing, or one line.
func (a arrows) fault(from, to string) []string {
	source, target := a.room(from), a.room(to)
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

// room is the longest room that p stands in; "" if there is none.
func (a arrows) room(p string) string {
	for ; p != "."; p = path.Dir(p) {
		if _, ok := a[p]; ok {
			return p
		}
	}
	return ""
}

// isForTests reports whether the package at p serves tests only: by its name, or because it stands in test/.
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
		t.Fatal("ARCHITECTURE.md has no block of arrows")
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
