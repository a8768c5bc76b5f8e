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

// thread is a thread of another process.
type thread struct{ pid, tid int }

// cpuTime returns the thread's processor time.
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

// cpuTimes returns the processor times of all threads of a process.
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
		if d, err := (thread{pid, tid}).cpuTime(); err == nil { // else the thread has ended
			times[tid] = d
		}
	}
	return times, nil
}

// busiest returns the thread with the most processor time during f.
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
	best := 0
	most := time.Duration(0)
	for tid, d := range after {
		if d-before[tid] > most {
			best = tid
			most = d - before[tid]
		}
	}
	if best == 0 {
		return thread{}, errors.New("no thread of the dataplane used a processor")
	}
	return thread{pid, best}, nil
}

// pinTo pins a thread to one processor; 0 is the caller's thread.
func pinTo(tid, processor int) error {
	var set unix.CPUSet
	set.Set(processor % runtime.NumCPU())
	if err := unix.SchedSetaffinity(tid, &set); err != nil {
		return fmt.Errorf("pin a thread: %w", err)
	}
	return nil
}

// pinned runs f on a new thread that is pinned to a processor; the thread ends with f.
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

// await waits for d or until ctx ends.
func await(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
