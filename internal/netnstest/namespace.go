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

// Require skips the test without private namespaces. It fails the test instead if the environment's WEFT_REQUIRE, a list separated by
// commas, has netns.
func Require(t testing.TB) {
	t.Helper()
	if errors.Is(errUnable, errNotEntered) {
		t.Fatal(errUnable)
	}
	need(t, "netns", "network namespaces", errUnable)
}

// RequireTap skips the test without private namespaces or without access to /dev/net/tun. It fails the test instead if WEFT_REQUIRE has
// netns.
func RequireTap(t testing.TB) {
	t.Helper()
	Require(t)
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Close(fd)
	}
	need(t, "netns", "/dev/net/tun", err)
}

func need(t testing.TB, word, what string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if slices.Contains(strings.Split(os.Getenv("WEFT_REQUIRE"), ","), word) {
		t.Fatalf("%s: required by WEFT_REQUIRE, but not available: %v", what, err)
	}
	t.Skipf("needs %s: %v", what, err)
}

// New makes a network namespace with lo up and returns its path, of at most 63 bytes, VPP's limit. It removes the namespace when the test
// ends. New calls Require.
func New(t testing.TB) (path string) {
	t.Helper()
	Require(t)
	dir, err := os.MkdirTemp("", "netns")
	if err != nil {
		t.Fatalf("make directory for namespace: %v", err)
	}
	path = filepath.Join(dir, "net")
	t.Cleanup(func() {
		Remove(t, path)
		if err := os.Remove(dir); err != nil {
			t.Errorf("remove directory of namespace: %v", err)
		}
	})
	if err := netns.Make(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// mount moves the calling thread into a new namespace and mounts that at path.
func mount(path string) error {
	if err := os.WriteFile(path, nil, 0o444); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount(threadNamespace, path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount at %s: %w", path, err)
	}
	return setLoopbackUp()
}

// Remove removes the path of a namespace, like a runtime at the end of a pod. The kernel deletes the namespace with its last user. A
// missing path is no error.
func Remove(t testing.TB, path string) {
	t.Helper()
	if err := netns.Remove(path); err != nil {
		t.Error(err)
	}
}

// Do runs f in the namespace at path on the calling goroutine, so that f may end the test. Goroutines that f starts run in another
// namespace.
func Do(t testing.TB, path string, f func()) {
	t.Helper()
	if err := inside(path, func() error { f(); return nil }); err != nil {
		t.Fatalf("run in network namespace: %v", err)
	}
}

// inside runs f on a locked thread, in the namespace at path unless that is empty. The thread returns to its namespace however f ends. A
// thread that cannot return stays locked and ends with its goroutine.
func inside(path string, f func() error) (err error) {
	runtime.LockOSThread()
	own, err := os.Open(threadNamespace)
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer own.Close()
	defer func() {
		if failed := setns(own); failed != nil {
			err = errors.Join(err, fmt.Errorf("return from namespace: %w", failed))
			return
		}
		runtime.UnlockOSThread()
	}()
	if path == "" {
		return f()
	}
	target, err := os.Open(path)
	if err != nil {
		return err
	}
	defer target.Close()
	if err := setns(target); err != nil {
		return fmt.Errorf("enter namespace %s: %w", path, err)
	}
	return f()
}

func setns(f *os.File) error { return unix.Setns(int(f.Fd()), unix.CLONE_NEWNET) }
