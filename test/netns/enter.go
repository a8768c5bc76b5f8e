// Package netns runs programs in private network namespaces, and makes namespaces for pods, without changes to the
// machine's.
package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// marker is set in the environment of the process that Enter starts: root or user, the caller's rights.
const marker = "WEFT_PRIVATE_NODE"

// Enter runs the program again in new network and mount namespaces, and in a new user namespace unless it runs as root.
// It returns nil in the second process; in the first it exits with the second's code. Where the machine forbids
// namespaces or taps, it returns an error of one line that says what is needed.
func Enter() error {
	if os.Getenv(marker) != "" {
		return Settle()
	}
	if err := TapsAllowed(); err != nil {
		return err
	}
	who := "root"
	if os.Geteuid() != 0 {
		who = "user"
	}
	code, err := Rerun(marker+"="+who, syscall.SIGTERM, syscall.SIGTERM)
	if err != nil {
		return fmt.Errorf("this needs a private network namespace: run it as root, or allow user namespaces (%w)", err)
	}
	os.Exit(code)
	return nil
}

// Rerun runs this program again in new network and mount namespaces, and in a new user namespace unless it runs as
// root, with an additional environment variable. It returns the second process's exit code. The second process gets the
// signal atParentsDeath when this process dies, and the forwarded signals. The terminal sends its interrupt to both:
// this process ignores it and waits.
func Rerun(environment string, atParentsDeath syscall.Signal, forwarded ...os.Signal) (code int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find the program: %w", err)
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), environment)
	cmd.Stdin = os.Stdin
	cmd.Stdout = os.Stdout
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = attributes(atParentsDeath)
	// Pdeathsig refers to the thread that starts the child, so this thread has to stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, append(forwarded, os.Interrupt)...)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start in new namespaces: %w", err)
	}
	ended := make(chan struct{})
	go forward(signals, forwarded, cmd.Process, ended)
	err = cmd.Wait()
	close(ended)
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil // -1: killed by a signal
	}
	return 0, err
}

func forward(signals <-chan os.Signal, forwarded []os.Signal, p *os.Process, ended <-chan struct{}) {
	for {
		select {
		case s := <-signals:
			if slices.Contains(forwarded, s) {
				_ = p.Signal(s)
			}
		case <-ended:
			return
		}
	}
}

func attributes(atParentsDeath syscall.Signal) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: atParentsDeath}
	if os.Geteuid() != 0 {
		a.Cloneflags |= unix.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	return a
}

// Settle sets up the namespaces in which Rerun started this process. It may be called again in a child of this process.
func Settle() error {
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
