// Package netns runs functions in network namespaces.
package netns

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Own is the path of the network namespace of the calling thread. /proc/self is the first thread of the process, which
// may be in another one.
const Own = "/proc/thread-self/ns/net"

// ErrNotEntered is the error of a descriptor that no thread can enter. The function was not run.
var ErrNotEntered = errors.New("enter network namespace")

// Do runs f in the network namespace of an open descriptor, on a thread of its own. A thread that cannot return to the
// namespace of the process stays locked and ends with its goroutine, so that no other goroutine runs on it. A panic of
// f ends the process.
func Do(fd int, f func() error) error {
	result := make(chan error, 1)
	go func() { result <- onThread(fd, f) }()
	return <-result
}

func onThread(fd int, f func() error) error {
	runtime.LockOSThread()
	own, err := unix.Open(Own, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open own network namespace: %w", err)
	}
	defer unix.Close(own)
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("%w: %w", ErrNotEntered, err)
	}
	err = f()
	if back := unix.Setns(own, unix.CLONE_NEWNET); back == nil {
		runtime.UnlockOSThread()
	}
	return err
}
