// Package netnstest gives tests network namespaces of their own, as root and as an ordinary user alike.
package netnstest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// marker is set in the environment of a process that was started by Enter, and of its children.
const marker = "WEFT_NETNSTEST"

// errNotEntered fails a test: its package lacks a TestMain that calls Main or Enter.
var errNotEntered = errors.New("TestMain does not call netnstest.Main")

// errUnable is the reason why this process is not in namespaces of its own; nil after Enter succeeded.
var errUnable = errNotEntered

// Main is the whole of a TestMain: it enters namespaces (see Enter), runs the tests and fails them if goroutines leak.
func Main(m *testing.M, options ...goleak.Option) {
	Enter()
	goleak.VerifyTestMain(m, options...)
}

// Enter moves the test binary into new network and mount namespaces, and into a new user namespace unless the caller is
// root. It does so by running the binary again: in the first process it does not return but exits with the second's
// code. Where the machine forbids that it returns, and Require skips. It is for a TestMain that must do more than Main.
func Enter() {
	if os.Getenv(marker) != "" {
		errUnable = settle()
		return
	}
	code, err := again()
	if err != nil {
		errUnable = err
		return
	}
	os.Exit(code)
}

// again runs this binary in new namespaces until it ends.
func again() (code int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find the test binary: %w", err)
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), marker+"=inside")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = attributes()
	// The child is to die with us, which the kernel understands as: with the thread that started it.
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

// settle finishes the namespaces that this process was started in. It may run again in a child of the tests.
func settle() error {
	// Mounts of namespaces stay ours, and those of the machine stay visible.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := raiseLoopback(); err != nil {
		return err
	}
	return nil
}

// raiseLoopback sets lo up in the namespace of the calling thread.
func raiseLoopback() error {
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
