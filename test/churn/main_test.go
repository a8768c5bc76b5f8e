// Package churn_test makes and removes many pods and networks, and shows that the node is then as it was.
package churn_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/netns"
)

// many is how many pods, and how many networks, are made and removed.
var many = flag.Int("pods", 200, "how many pods and networks are made and removed")

// programsFrom names a directory with programs that are built already.
const programsFrom = "WEFT_PROGRAMS"

func TestMain(m *testing.M) { netnstest.Main(m) }

func requireTaps(t *testing.T) {
	t.Helper()
	netnstest.Require(t)
	err := netns.TapsAllowed()
	switch {
	case err == nil:
	case slices.Contains(strings.Split(os.Getenv("WEFT_REQUIRE"), ","), "netns"):
		t.Fatalf("taps are required (WEFT_REQUIRE) and cannot be had: %v", err)
	default:
		t.Skip(err)
	}
}

// build makes the programs, without the race detector, as they are shipped.
func build(t *testing.T) (dir string, err error) {
	if dir := os.Getenv(programsFrom); dir != "" {
		return dir, nil
	}
	dir = t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "../../cmd/...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return dir, nil
}

func try(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
