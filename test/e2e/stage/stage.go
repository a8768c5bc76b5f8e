// Package stage runs a program in private namespaces, and checks afterwards that the host has not changed.
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

// variable is the environment variable with the stage of the second process.
const variable = "WEFT_E2E_STAGE"

// prefix is the prefix of all names that a run creates on the host.
const prefix = "weft-e2e-"

// Stage is the environment of one run: private namespaces of network, mounts, processes, IPC and host name. Everything
// in it ends with its first process, except a directory and cgroups, which Enter removes.
type Stage struct {
	// Dir is the run's directory on the host; Logs and Disk are below it.
	Dir string
}

// Name is the run's name, also of its cgroups.
func (s Stage) Name() string { return filepath.Base(s.Dir) }

// Logs returns the directory of logs, which is kept after a failed run.
func (s Stage) Logs() string { return filepath.Join(s.Dir, "logs") }

// Disk returns the directory of a file system in memory that ends with the run.
func (s Stage) Disk() string { return filepath.Join(s.Dir, "disk") }

// Inside returns the stage of this process, if it runs on one.
func Inside() (Stage, bool) {
	dir := os.Getenv(variable)
	return Stage{Dir: dir}, dir != ""
}

// Enter runs this program again on a stage below dir, waits for its end, and checks that nothing is left over. It
// returns the program's exit code, and an error if the stage could not be made or something is left over.
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

// again runs this program in new namespaces and waits for it.
func (s Stage) again() (code int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 1, fmt.Errorf("find the program: %w", err)
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), variable+"="+s.Dir)
	cmd.Stdin = os.Stdin
	cmd.Stdout = os.Stdout
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	// Pdeathsig refers to the thread that starts the child, so this thread has to stay.
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

// forward passes SIGTERM to the child. The terminal sends its interrupt to the child too: this process ignores it and
// waits.
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

// sweep removes leftovers of runs whose first process was killed.
func sweep(dir string) error {
	old, err := filepath.Glob(filepath.Join(dir, prefix+"*"))
	if err != nil {
		return fmt.Errorf("find old runs: %w", err)
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
