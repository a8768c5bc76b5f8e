// Package stage moves a program into namespaces of its own, and checks afterwards that the machine is as it was.
package stage

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// variable tells the second process where its stage is.
const variable = "WEFT_E2E_STAGE"

// prefix begins the names of everything that a run makes on the machine.
const prefix = "weft-e2e-"

// Stage is the place of one run: private namespaces of network, mounts, processes, IPC and host name.
// Whatever happens there ends with its first process, but for a directory and cgroups, which Enter removes.
type Stage struct {
	// Dir is the run's directory on the machine's disk; Logs and Disk are below it.
	Dir string
}

// Name is the run's, by which its cgroups are known.
func (s Stage) Name() string { return filepath.Base(s.Dir) }

// Logs is the directory whose files survive a run that failed.
func (s Stage) Logs() string { return filepath.Join(s.Dir, "logs") }

// Disk is a file system in memory that ends with the run.
func (s Stage) Disk() string { return filepath.Join(s.Dir, "disk") }

// Inside says whether this process is on a stage, and which.
func Inside() (Stage, bool) {
	dir := os.Getenv(variable)
	return Stage{Dir: dir}, dir != ""
}

// Enter runs this program again on a stage below dir, waits for its end, and checks that nothing of it is left.
// It returns the program's exit code, and an error when there was no stage or something is left.
func Enter(dir string) (code int, err error) {
	if err := sweep(dir); err != nil {
		return 1, err
	}
	before, err := takeInventory()
	if err != nil {
		return 1, err
	}
	s := Stage{Dir: filepath.Join(dir, prefix+strconv.Itoa(os.Getpid()))}
	for _, sub := range []string{s.Logs(), s.Disk()} {
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return 1, fmt.Errorf("make the run's directory: %w", err)
		}
	}
	code, err = s.again()
	if err != nil {
		return 1, errors.Join(err, s.clear())
	}
	keep := code != 0
	if err := s.removeCgroups(); err != nil {
		return 1, err
	}
	if !keep {
		if err := s.clear(); err != nil {
			return 1, err
		}
	}
	return code, before.compare(s, keep)
}

// again runs this program in new namespaces until it ends.
func (s Stage) again() (code int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 1, fmt.Errorf("find the program: %w", err)
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), variable+"="+s.Dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	// The kernel ties the child's life to the thread that starts it, so this thread has to stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	stop := forward(cmd)
	defer stop()
	if err := cmd.Run(); err != nil {
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			return max(exit.ExitCode(), 1), nil // -1: killed by a signal
		}
		return 1, fmt.Errorf("make namespaces: %w", err)
	}
	return 0, nil
}

// forward passes SIGTERM on. A terminal's interrupt reaches the child by itself: here it must only not end the wait.
func forward(cmd *exec.Cmd) (stop func()) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for s := range signals {
			if s == syscall.SIGTERM && cmd.Process != nil {
				_ = cmd.Process.Signal(s)
			}
		}
	}()
	return func() { signal.Stop(signals); close(signals) }
}

// sweep removes what runs left that were killed together with the process that would have removed it.
func sweep(dir string) error {
	old, err := filepath.Glob(filepath.Join(dir, prefix+"*"))
	if err != nil {
		return fmt.Errorf("look for old runs: %w", err)
	}
	for _, path := range old {
		s := Stage{Dir: path}
		if _, err := os.Stat(filepath.Join("/proc", strings.TrimPrefix(s.Name(), prefix))); err == nil {
			continue
		}
		if err := errors.Join(s.removeCgroups(), s.clear()); err != nil {
			return err
		}
	}
	return nil
}

// clear removes the run's directory.
func (s Stage) clear() error {
	if err := os.RemoveAll(s.Dir); err != nil {
		return fmt.Errorf("remove the run's directory: %w", err)
	}
	return nil
}
