package packets

import (
	"encoding/binary"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// taskClock counts the processor time of another process's thread. Unlike schedstat, which a tick updates, it is exact
// at any moment, so rounds can be short, and some of them have the machine for themselves even if it is shared.
type taskClock struct{ file *os.File }

func newTaskClock(t thread) (taskClock, error) {
	attributes := unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_SOFTWARE,
		Config: unix.PERF_COUNT_SW_TASK_CLOCK,
		Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
	}
	fd, err := unix.PerfEventOpen(&attributes, t.tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return taskClock{}, fmt.Errorf("open the task clock of a thread: %w", err)
	}
	return taskClock{os.NewFile(uintptr(fd), "task clock")}, nil
}

func (c taskClock) read() (time.Duration, error) {
	var count [8]byte
	if _, err := c.file.Read(count[:]); err != nil {
		return 0, fmt.Errorf("read the task clock of a thread: %w", err)
	}
	return time.Duration(binary.NativeEndian.Uint64(count[:])), nil
}

func (c taskClock) close() { _ = c.file.Close() }

// during adds the thread's processor time during f.
func (c taskClock) during(f func() load) (load, error) {
	before, err := c.read()
	if err != nil {
		return load{}, err
	}
	l := f()
	after, err := c.read()
	l.busy = after - before
	return l, err
}
