// Package thirdparty runs programs of the distribution in the network namespaces of pods.
package thirdparty

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/must"
)

// Require skips the test without a program, or fails it if WEFT_REQUIRE names the program.
func Require(t testing.TB, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if slices.Contains(strings.Split(os.Getenv("WEFT_REQUIRE"), ","), program) {
			t.Fatal(err)
		}
		t.Skipf("the test requires %s: %v", program, err)
	}
}

// Daemon is a running program.
type Daemon struct {
	cmd *exec.Cmd
	log string
}

// Start runs a program in a namespace until the test ends. A failed test logs its output.
func Start(t testing.TB, netns, program string, args ...string) *Daemon {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	must.Succeed(t, err)
	d := &Daemon{exec.CommandContext(t.Context(), program, args...), log.Name()}
	d.cmd.Stdout = log
	d.cmd.Stderr = log
	netnstest.Do(t, netns, func() { err = d.cmd.Start() })
	must.Succeed(t, errors.Join(err, log.Close()))
	t.Cleanup(func() {
		d.Stop()
		if t.Failed() {
			t.Logf("%s in %s:\n%s", program, netns, d.Output())
		}
	})
	return d
}

// Stop ends the daemon as an init system does, so that it says goodbye to its peers; it may be repeated.
func (d *Daemon) Stop() {
	if d.cmd.ProcessState == nil {
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		_ = d.cmd.Wait()
	}
}

// Output returns what the daemon has printed.
func (d *Daemon) Output() string {
	text, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
