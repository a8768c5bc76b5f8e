package port

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

const ownNamespace = "/proc/thread-self/ns/net"

// inNamespace runs f on an OS thread inside the network namespace at path; an empty path is the caller's own. A thread
// that cannot go home is thrown away: its goroutine ends without unlocking it, so that no other goroutine runs in the wrong
// namespace.
func inNamespace(path string, f func() error) error {
	if path == "" {
		return f()
	}
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := visit(path, f)
		if home {
			runtime.UnlockOSThread()
		}
		result <- err
	}()
	return <-result
}

// visit reports beside f's error whether the thread is in its own namespace again.
func visit(path string, f func() error) (home bool, err error) {
	own, err := unix.Open(ownNamespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true, fmt.Errorf("open own network namespace: %w", err)
	}
	defer unix.Close(own)
	// A FIFO at the path must not hold up the dataplane; setns refuses it.
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
