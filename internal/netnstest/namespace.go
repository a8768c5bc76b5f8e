package netnstest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/netns"
)

const threadNamespace = "/proc/thread-self/ns/net"

// Require skips the test where namespaces are not available; it fails the test if the comma-separated list WEFT_REQUIRE
// contains netns.
func Require(t testing.TB) {
	t.Helper()
	if errors.Is(errUnable, errNotEntered) {
		t.Fatal(errUnable)
	}
	need(t, "netns", "network namespaces", errUnable)
}

// RequireTap skips the test where /dev/net/tun is missing or not accessible. It fails the test if WEFT_REQUIRE contains
// netns, because most tests in namespaces need taps.
func RequireTap(t testing.TB) {
	t.Helper()
	Require(t)
	need(t, "netns", "/dev/net/tun", netns.TapsAllowed())
}

func need(t testing.TB, word, what string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if slices.Contains(strings.Split(os.Getenv("WEFT_REQUIRE"), ","), word) {
		t.Fatalf("%s: required (WEFT_REQUIRE) and not available: %v", what, err)
	}
	t.Skipf("needs %s: %v", what, err)
}

// New makes a network namespace with lo up and returns its path, which is short enough for all programs (VPP's limit is
// 63 bytes). It is removed when the test ends. New calls Require.
func New(t testing.TB) (path string) {
	t.Helper()
	Require(t)
	dir, err := os.MkdirTemp("", "netns")
	if err != nil {
		t.Fatalf("make folder for namespace: %v", err)
	}
	path = filepath.Join(dir, "net")
	t.Cleanup(func() {
		Remove(t, path)
		if err := os.Remove(dir); err != nil {
			t.Errorf("remove folder of namespace: %v", err)
		}
	})
	if err := netns.Make(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// Remove unmounts and deletes the path of a namespace, as a runtime does when a pod ends. The namespace itself lasts
// until its last user ends. A missing path is no error.
func Remove(t testing.TB, path string) {
	t.Helper()
	if err := netns.Remove(path); err != nil {
		t.Error(err)
	}
}

// Do runs f in the namespace at path, on the calling goroutine, so that f may end the test. Goroutines that f starts
// run outside of the namespace.
func Do(t testing.TB, path string, f func()) {
	t.Helper()
	if err := inside(path, func() error { f(); return nil }); err != nil {
		t.Fatalf("run in network namespace: %v", err)
	}
}

// inside runs f on a locked thread, in the namespace at path unless that is empty, and returns the thread to its own
// namespace, however f ends. A thread that cannot return stays locked and ends with its goroutine.
func inside(path string, f func() error) (err error) {
	runtime.LockOSThread()
	own, err := os.Open(threadNamespace)
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer own.Close()
	defer func() {
		if home := setns(own); home != nil {
			err = errors.Join(err, fmt.Errorf("return from namespace: %w", home))
			return
		}
		runtime.UnlockOSThread()
	}()
	if path == "" {
		return f()
	}
	there, err := os.Open(path)
	if err != nil {
		return err
	}
	defer there.Close()
	if err := setns(there); err != nil {
		return fmt.Errorf("enter namespace %s: %w", path, err)
	}
	return f()
}

func setns(f *os.File) error { return unix.Setns(int(f.Fd()), unix.CLONE_NEWNET) }
