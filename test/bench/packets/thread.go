package packets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// thread is one of another process's.
type thread struct{ pid, tid int }

// cpuTime is how long the thread has been on a processor.
func (t thread) cpuTime() (time.Duration, error) {
	return readSchedstat(filepath.Join("/proc", strconv.Itoa(t.pid), "task", strconv.Itoa(t.tid), "schedstat"))
}

func readSchedstat(path string) (time.Duration, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read a thread's time: %w", err)
	}
	word, _, _ := strings.Cut(string(content), " ")
	ns, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read a thread's time: %w", err)
	}
	return time.Duration(ns), nil
}

// cpuTimes are those of all threads of a process.
func cpuTimes(pid int) (map[int]time.Duration, error) {
	entries, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	if err != nil {
		return nil, fmt.Errorf("list threads: %w", err)
	}
	times := map[int]time.Duration{}
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if d, err := (thread{pid, tid}).cpuTime(); err == nil { // else it has ended
			times[tid] = d
		}
	}
	return times, nil
}

// busiest is the thread that was on a processor most while f ran.
func busiest(pid int, f func()) (thread, error) {
	before, err := cpuTimes(pid)
	if err != nil {
		return thread{}, err
	}
	f()
	after, err := cpuTimes(pid)
	if err != nil {
		return thread{}, err
	}
	best, most := 0, time.Duration(0)
	for tid, d := range after {
		if d-before[tid] > most {
			best, most = tid, d-before[tid]
		}
	}
	if best == 0 {
		return thread{}, errors.New("no thread of the dataplane's did anything")
	}
	return thread{pid, best}, nil
}

// pinTo keeps a thread on one processor; 0 is the caller's.
func pinTo(tid, processor int) error {
	var set unix.CPUSet
	set.Set(processor % runtime.NumCPU())
	if err := unix.SchedSetaffinity(tid, &set); err != nil {
		return fmt.Errorf("pin a thread: %w", err)
	}
	return nil
}

// pinned runs f on a thread of its own that stays on a processor; the thread ends with it.
func pinned(processor int, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: a pinned thread is not reused
		if err := pinTo(0, processor); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// await waits, or says that ctx has ended.
func await(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
