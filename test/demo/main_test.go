package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/netns"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

func TestTheDemoSucceeds(t *testing.T) {
	netnstest.Require(t)
	if err := netns.TapsAllowed(); err != nil {
		if strings.Contains(os.Getenv("WEFT_REQUIRE"), "netns") {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	programs := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", programs, "../../cmd/...")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the programs: %v\n%s", err, out)
	}
	var out bytes.Buffer
	if err := run(t.Context(), &out, programs, false); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}
