// Package netnstest provides private network namespaces for tests, as root and as an unprivileged user.
package netnstest

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/weftnet/weft/test/netns"
)

// marker is set in the environment of processes that Enter starts, and of their children.
const marker = "WEFT_NETNSTEST"

// errNotEntered fails a test: its package lacks a TestMain that calls Main or Enter.
var errNotEntered = errors.New("TestMain does not call netnstest.Main")

// errUnable is the reason why this process is not in namespaces of its own; nil after Enter succeeded.
var errUnable = errNotEntered

// Main implements TestMain: it calls Enter, runs the tests and fails if goroutines leak.
func Main(m *testing.M, options ...goleak.Option) {
	Enter()
	goleak.VerifyTestMain(m, options...)
}

// Enter runs the test binary in new network and mount namespaces, and in a new user namespace unless the caller is root. It starts a second
// process and exits with its code. If the system does not allow namespaces, Enter returns and Require skips tests. Use it in a TestMain
// that must do more than Main.
func Enter() {
	if os.Getenv(marker) != "" {
		errUnable = setUp()
		return
	}
	code, err := runInNamespaces()
	if err != nil {
		errUnable = err
		return
	}
	os.Exit(code)
}

// runInNamespaces runs this binary in new namespaces until it ends.
func runInNamespaces() (code int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find the test binary: %w", err)
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), marker+"=inside")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = attributes()
	// Pdeathsig kills the child when the thread that started it ends, not the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start in new namespaces: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				_ = cmd.Process.Signal(s)
			case <-ended:
				return
			}
		}
	}()
	err = cmd.Wait()
	close(ended)
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil // killed by a signal: -1
	}
	return 0, err
}

func attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		a.Cloneflags |= unix.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return a
}

// setUp configures the namespaces of this process. It may run again in a child of the tests.
func setUp() error {
	// The system does not see mounts of namespaces. This process sees the system's mounts.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	return setLoopbackUp()
}

// setLoopbackUp sets lo up in the namespace of the calling thread.
func setLoopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return nil
}
