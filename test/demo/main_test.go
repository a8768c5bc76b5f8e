package main

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/programs"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

func TestDemoSucceeds(t *testing.T) {
	netnstest.RequireTap(t)
	dir := os.Getenv(programs.From)
	if dir == "" {
		dir = makePrograms(t)
	}
	var out bytes.Buffer
	if err := run(t.Context(), &out, dir, false); err != nil {
		t.Errorf("%s\n%v", out.String(), err)
	}
}

// makePrograms builds the prerequisites of make demo at the places where it expects them.
func makePrograms(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "make", "-C", "../..", "build", "examples", "BIN="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatal(programs.Explain(err, out))
	}
	return dir
}
