// Package netns runs programs in private network namespaces, and makes namespaces for pods, without changes to the machine's.
package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// marker is set in the environment of the process that Enter starts: root or user, the caller's rights.
const marker = "WEFT_PRIVATE_NODE"

// Enter runs the program again in new network and mount namespaces, and in a new user namespace unless it runs as root. It returns nil
// in the second process; in the first it exits with the second's code. Where the machine forbids namespaces or taps, it returns an error
// of one line that says what is needed.
func Enter() error {
	if os.Getenv(marker) != "" {
		return settle()
	}
	if err := TapsAllowed(); err != nil {
		return err
	}
	code, err := again()
	if err != nil {
		return fmt.Errorf("this needs a private network namespace: run it as root, or allow user namespaces (%w)", err)
	}
	os.Exit(code)
	return nil
}

// again runs this program in new namespaces and waits for it.
func again() (code int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find the program: %w", err)
	}
	cmd := exec.Command(self, os.Args[1:]...)
	who := "root"
	if os.Geteuid() != 0 {
		who = "user"
	}
	cmd.Env = append(os.Environ(), marker+"="+who)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = attributes()
	// Pdeathsig refers to the thread that starts the child, so this thread has to stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	stop := forward(cmd)
	defer stop()
	if err := cmd.Run(); err != nil {
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			return max(exit.ExitCode(), 1), nil // -1: killed by a signal
		}
		return 0, err
	}
	return 0, nil
}

// forward passes SIGTERM to the child. The terminal sends its interrupt to the child too: this process ignores it and waits.
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

func attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	if os.Geteuid() != 0 {
		a.Cloneflags |= unix.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	return a
}

// settle sets up the namespaces in which this process was started.
func settle() error {
	// Mounts made here must not propagate to the machine.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	return raiseLoopback()
}

// EnterCommand returns the command that enters this process's namespaces, once Enter succeeded.
func EnterCommand() string {
	command := fmt.Sprintf("nsenter --target %d --mount --net", os.Getpid())
	if os.Getenv(marker) == "user" {
		command += " --user --preserve-credentials"
	}
	return command
}

// TapsAllowed returns a one-line error if the process cannot make taps.
func TapsAllowed() error {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("this needs taps: %w: run it as root, with the tun module loaded", err)
	}
	return f.Close()
}
