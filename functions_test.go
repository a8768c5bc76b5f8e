package weft_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The commands of docs/functions.md make a program outside of the repository, with the modules that the repository
// uses.
func TestPageMakesAProgramOutsideOfTheRepository(t *testing.T) {
	script := ""
	for _, p := range allPages(t) {
		for _, b := range p.Blocks {
			if p.Path == "docs/functions.md" && strings.Contains(b.Text, "go mod init") {
				script += b.Text
			}
		}
	}
	if script == "" {
		t.Fatal("docs/functions.md does not make a program")
	}
	known, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE", "GOMODCACHE", "GOPATH").Output()
	if err != nil {
		t.Fatal(err)
	}
	caches := strings.Fields(string(known))
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh", "-eu", "-c", script)
	cmd.Env = append(os.Environ(), "HOME="+home, "GOCACHE="+caches[0], "GOMODCACHE="+caches[1], "GOPATH="+caches[2],
		"GOSUMDB=off", "GOTOOLCHAIN=local", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program := filepath.Join(home, "function", "function")
	out, err := exec.CommandContext(t.Context(), program).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "MEMIF_SOCKET is not set: this container has no memif") {
		t.Errorf("outside of a container the program prints %q (%v)", out, err)
	}
}
