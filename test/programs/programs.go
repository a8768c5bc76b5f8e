// Package programs builds Weft's programs for tests that run them.
package programs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// From is the environment variable with a directory of built programs.
const From = "WEFT_PROGRAMS"

// kept are programs that all tests of a package use.
var kept struct {
	sync.Mutex
	wanted bool
	dir    string
	built  map[string]bool // additional packages
}

// Keep makes the tests of a package share programs, which the first Build builds, because linking takes longer than
// most tests. It is for a TestMain; the returned option removes the programs.
func Keep() goleak.Option {
	kept.wanted = true
	return goleak.Cleanup(func(code int) {
		if kept.dir != "" {
			_ = os.RemoveAll(kept.dir)
		}
		os.Exit(code)
	})
}

// Build returns a directory with the programs, built without the race detector, as they are shipped; more are packages
// of additional programs.
func Build(t testing.TB, more ...string) string {
	t.Helper()
	if ready := os.Getenv(From); ready != "" {
		if len(more) > 0 {
			build(t, ready, more)
		}
		return ready
	}
	more = append(more, "github.com/weftnet/weft/cmd/...")
	if !kept.wanted {
		dir := t.TempDir()
		build(t, dir, more)
		return dir
	}
	kept.Lock()
	defer kept.Unlock()
	if kept.dir == "" {
		dir, err := os.MkdirTemp("", "weft-programs")
		if err != nil {
			t.Fatal(err)
		}
		kept.dir = dir
		kept.built = map[string]bool{}
	}
	if all := strings.Join(more, " "); !kept.built[all] {
		build(t, kept.dir, more)
		kept.built[all] = true
	}
	return kept.dir
}

func build(t testing.TB, dir string, packages []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"build", "-o", dir}, packages...)...)
	cmd.Dir = root() // the test may belong to another module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatal(Explain(err, out))
	}
}

// Explain returns the text of a build that failed. Tests build in a network namespace without a network, and go test
// downloads only the modules of the test itself.
func Explain(err error, output []byte) string {
	if bytes.Contains(output, []byte("dial tcp")) || bytes.Contains(output, []byte("module lookup disabled")) {
		return fmt.Sprintf(
			"build the programs: not all modules are downloaded, and tests have no network: run make modules once\n%s",
			output)
	}
	return fmt.Sprintf("build the programs: %v\n%s", err, output)
}

// root returns the directory of the product's module.
func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}
