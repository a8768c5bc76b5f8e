package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// threadNamespace is the network namespace of the calling thread.
const threadNamespace = "/proc/thread-self/ns/net"

// Make makes a network namespace with lo up and binds it to path, which must not exist.
func Make(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return fmt.Errorf("make namespace: %w", err)
	}
	if err := errors.Join(file.Close(), onOwnThread(func() error { return bind(path) })); err != nil {
		return errors.Join(fmt.Errorf("make namespace %s: %w", path, err), os.Remove(path))
	}
	return nil
}

// bind moves the calling thread into a new namespace and mounts that at path.
func bind(path string) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	if err := raiseLoopback(); err != nil {
		return err
	}
	return unix.Mount(threadNamespace, path, "", unix.MS_BIND, "")
}

// Remove unmounts and deletes the path of a namespace, as a runtime does when a pod ends. A missing path is no error.
func Remove(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) &&
		!errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount namespace %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove namespace: %w", err)
	}
	return nil
}

// Do runs f on a thread inside the namespace at path. Sockets that f opens stay there; goroutines that it starts do
// not.
func Do(path string, f func() error) error {
	return onOwnThread(func() error {
		target, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("open namespace: %w", err)
		}
		defer target.Close()
		if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter namespace %s: %w", path, err)
		}
		return f()
	})
}

// onOwnThread runs f on a thread that ends afterwards, so that f may leave it in any namespace. The main thread would
// not end, and /proc/PID/ns shows its namespaces to other programs.
func onOwnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			done <- onOwnThread(f) // on another thread, because this one is locked
			return
		}
		done <- f() // never unlocked: the thread ends with the goroutine
	}()
	return <-done
}

// raiseLoopback sets lo up in the calling thread's namespace.
func raiseLoopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("raise lo: %w", err)
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("raise lo: %w", err)
	}
	request.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("raise lo: %w", err)
	}
	return nil
}
