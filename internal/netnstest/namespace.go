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
)

const threadNamespace = "/proc/thread-self/ns/net"

// Require skips the test where namespaces cannot be had; it fails it if the environment's WEFT_REQUIRE, a list
// separated by commas, holds netns.
func Require(t testing.TB) {
	t.Helper()
	if errors.Is(errUnable, errNotEntered) {
		t.Fatal(errUnable)
	}
	need(t, "netns", "network namespaces", errUnable)
}

// RequireTap skips the test where taps cannot be made: where /dev/net/tun is not there, or not for this user. It fails
// the test if WEFT_REQUIRE holds netns, since namespaces without taps come to nothing.
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
		t.Fatalf("%s: required (WEFT_REQUIRE) and not to be had: %v", what, err)
	}
	t.Skipf("needs %s: %v", what, err)
}

// New makes a network namespace with lo up and returns its path, which is short enough for any user of it (VPP takes
// 63 bytes). It goes when the test ends. New calls Require.
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
	if err := inside("", func() error { return mount(path) }); err != nil {
		t.Fatalf("make network namespace: %v", err)
	}
	return path
}

// mount moves the calling thread into a new namespace and gives that a path.
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
	return raiseLoopback()
}

// Remove takes the path of a namespace away, as a runtime does at the end of a pod. The namespace itself goes with its
// last user. A path that is gone is no error.
func Remove(t testing.TB, path string) {
	t.Helper()
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && err != unix.EINVAL && err != unix.ENOENT {
		t.Errorf("unmount namespace %s: %v", path, err)
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		t.Errorf("remove namespace %s: %v", path, err)
	}
}

// Do runs f in the namespace at path, on the calling goroutine: f may end the test. What f starts in other goroutines
// runs elsewhere.
func Do(t testing.TB, path string, f func()) {
	t.Helper()
	if err := inside(path, func() error { f(); return nil }); err != nil {
		t.Fatalf("run in network namespace: %v", err)
	}
}

// inside runs f on a locked thread, in the namespace at path unless that is empty, and brings the thread home, however
// f ends. A thread that cannot be brought home stays locked and dies with its goroutine.
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
