// Package netnstest runs tests in private network namespaces, as root and as an unprivileged user.
package netnstest

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/weftnet/weft/test/netns"
)

// marker is set in the environment of a process that was started by Enter, and of its children.
const marker = "WEFT_NETNSTEST"

// errNotEntered fails a test: its package lacks a TestMain that calls Main or Enter.
var errNotEntered = errors.New("TestMain does not call netnstest.Main")

// errUnable is the reason why this process is not in private namespaces; nil after Enter succeeded.
var errUnable = errNotEntered

// Main is the body of a TestMain: it enters namespaces (see Enter), runs the tests and fails them if goroutines leak.
func Main(m *testing.M, options ...goleak.Option) {
	Enter()
	goleak.VerifyTestMain(m, options...)
}

// Enter runs the test binary again in private namespaces (netns.Rerun): in the first process it does not return but
// exits with the second's code. Where the machine forbids namespaces it returns, and Require skips. It is for a
// TestMain that needs more than Main.
func Enter() {
	if os.Getenv(marker) != "" {
		errUnable = netns.Settle()
		return
	}
	code, err := netns.Rerun(marker+"=inside", syscall.SIGKILL, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	if err != nil {
		errUnable = err
		return
	}
	os.Exit(code)
}
