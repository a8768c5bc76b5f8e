// Package programs builds Weft's programs for tests that run them.
package programs

import (
	"os"
	"os/exec"
	"testing"
)

// From names, in the environment, a directory with programs that are built already.
const From = "WEFT_PROGRAMS"

// Build gives a directory with the programs, without the race detector, as they are shipped; more are packages of other
// programs that the test needs.
func Build(t testing.TB, more ...string) string {
	t.Helper()
	dir := t.TempDir()
	if ready := os.Getenv(From); ready != "" {
		if len(more) == 0 {
			return ready
		}
		dir = ready
	} else {
		more = append(more, "github.com/weftnet/weft/cmd/...")
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"build", "-o", dir}, more...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the programs: %v\n%s", err, out)
	}
	return dir
}
