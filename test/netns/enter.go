// Package netns gives programs a private network to play a node in, and namespaces for pods, without touching the machine's.
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

// marker is set in the environment of the process that Enter starts: to who started it, root or user.
const marker = "WEFT_PRIVATE_NODE"

// Enter moves the program into new network and mount namespaces, and into a new user namespace unless it runs as root,
// by running it again: it returns nil in the second process; in the first it exits with the second's code. Where the
// machine forbids that, or taps, it returns an error that is one line and says what is needed.
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

// again runs this program in new namespaces until it ends.
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
	// The kernel ties the child's life to the thread that starts it, so this thread has to stay.
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

func attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	if os.Geteuid() != 0 {
		a.Cloneflags |= unix.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	return a
}

// settle finishes the namespaces that this process was started in.
func settle() error {
	// Mounts made here stay here, and go with us.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	return raiseLoopback()
}

// EnterCommand is the command by which somebody else gets to where this process is, once Enter succeeded.
func EnterCommand() string {
	command := fmt.Sprintf("nsenter --target %d --mount --net", os.Getpid())
	if os.Getenv(marker) == "user" {
		command += " --user --preserve-credentials"
	}
	return command
}

// TapsAllowed says in one line why taps cannot be made here, or nothing.
func TapsAllowed() error {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("this needs taps: %w: run it as root, with the tun module loaded", err)
	}
	return f.Close()
}
