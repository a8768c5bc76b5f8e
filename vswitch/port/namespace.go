package port

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

const ownNamespace = "/proc/thread-self/ns/net"

// inNamespace runs f on an OS thread in the network namespace at path; empty: in the current one. A thread that cannot
// return to its own namespace stays locked and ends with its goroutine, so that no other goroutine runs in the wrong
// namespace.
func inNamespace(path string, f func() error) error {
	if path == "" {
		return f()
	}
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := runInNamespace(path, f)
		if home {
			runtime.UnlockOSThread()
		}
		result <- err
	}()
	return <-result
}

// runInNamespace also reports whether the thread is back in its own namespace.
func runInNamespace(path string, f func() error) (home bool, err error) {
	own, err := unix.Open(ownNamespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true, fmt.Errorf("open own network namespace: %w", err)
	}
	defer unix.Close(own)
	// Opening a FIFO must not block; setns refuses it.
	there, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true, fmt.Errorf("%w: open %s: %w", ErrNamespaceGone, path, err)
	}
	defer unix.Close(there)
	if err := unix.Setns(there, unix.CLONE_NEWNET); err != nil {
		return true, fmt.Errorf("%w: %s: %w", ErrNamespaceGone, path, err)
	}
	err = f()
	return unix.Setns(own, unix.CLONE_NEWNET) == nil, err
}
