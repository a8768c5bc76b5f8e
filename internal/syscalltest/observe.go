package syscalltest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Syncs are the system calls that make a file durable.
var Syncs = []uint32{unix.SYS_FSYNC, unix.SYS_FDATASYNC}

// Observe calls do on a thread of its own. Before each of the system calls that do makes on this thread it calls look
// with the path of the file in the first argument. It skips the test where seccomp notifications are not available.
func Observe(t *testing.T, calls []uint32, do func() error, look func(path string)) error {
	t.Helper()
	type filtered struct {
		listener

		err error
	}
	ready := make(chan filtered, 1)
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread keeps the filter and ends with this goroutine
		l, err := filter(0, calls...)
		ready <- filtered{l, err}
		if err == nil {
			done <- do()
		}
	}()
	l := <-ready
	if l.err != nil {
		t.Skip("seccomp notifications are not available: ", l.err)
	}
	defer unix.Close(int(l.listener))
	for {
		select {
		case err := <-done:
			return err
		default:
		}
		n, ok, err := l.next(10)
		if errors.Is(err, errEnded) {
			return <-done
		}
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			continue
		}
		path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", n.pid, n.args[0]))
		if err != nil {
			t.Error(err)
		}
		look(path)
		if err := l.resume(n); err != nil {
			t.Fatal(err)
		}
	}
}
