package machine

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// namespaces are entered in this order: mounts last, because the others are found in this process's /proc.
var namespaces = []struct {
	name string
	flag int
}{
	{"pid", unix.CLONE_NEWPID}, {"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"net", unix.CLONE_NEWNET}, {
		"mnt", unix.CLONE_NEWNS,
	},
}

// Do runs f on the machine: it has the machine's files, interfaces and name, as do processes that it starts. Goroutines
// that f starts are not on the machine.
func (m *Machine) Do(f func() error) error {
	m.mu.Lock()
	if m.init == nil {
		m.mu.Unlock()
		return fmt.Errorf("%s is off", m.Name)
	}
	pid := m.init.Process.Pid
	m.mu.Unlock()
	return within(pid, f)
}

// Start starts a command on the machine. The command must not set Pdeathsig.
func (m *Machine) Start(cmd *exec.Cmd) error {
	cmd.Dir = "/"
	return m.Do(cmd.Start)
}

// within runs f on a thread in the namespaces of a process. It does not use the main thread, which would not end
// afterwards.
func within(pid int, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			result <- within(pid, f) // on another thread, because this one is locked
			return
		}
		// Never unlocked: the thread ends with the goroutine.
		if err := enter(pid); err != nil {
			result <- err
			return
		}
		result <- f()
	}()
	return <-result
}

// enter moves this thread into the namespaces of a process.
func enter(pid int) error {
	// Threads share their root directory by default, and may not change mounts then.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare the thread's root: %w", err)
	}
	var files []int
	defer func() {
		for _, fd := range files {
			_ = unix.Close(fd)
		}
	}()
	for _, ns := range namespaces {
		path := filepath.Join("/proc", strconv.Itoa(pid), "ns", ns.name)
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", path, err)
		}
		files = append(files, fd)
	}
	for i, ns := range namespaces {
		if err := unix.Setns(files[i], ns.flag); err != nil {
			return fmt.Errorf("enter the %s namespace of %d: %w", ns.name, pid, err)
		}
	}
	return nil
}

// limit is the maximum size of a program's output that is kept.
const limit = 1 << 20

// limited keeps the start of its input.
type limited struct{ bytes.Buffer }

// Write accepts all bytes and keeps those within the limit.
func (l *limited) Write(p []byte) (int, error) {
	if room := limit - l.Len(); room > 0 {
		_, _ = l.Buffer.Write(p[:min(room, len(p))]) // never fails
	}
	return len(p), nil
}
