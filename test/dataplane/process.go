package dataplane

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const terminate = syscall.SIGTERM

// process is a running program. A nil process does not run.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when the program was waited for
}

// start runs the program in a network namespace until it is ended, or until this process dies.
func start(cmd *exec.Cmd, log string, netns *os.File) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout = out
	cmd.Stderr = out
	// A group of its own: a terminal's interrupt is for the test alone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends Pdeathsig when the thread ends that started the program, so that thread waits for it.
		runtime.LockOSThread()
		// A thread in another namespace ends with the goroutine, and is never unlocked.
		err := unix.Setns(int(netns.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *process) pid() int {
	if !p.running() {
		return 0
	}
	return p.cmd.Process.Pid
}

// state says how the program ended.
func (p *process) state() string { return p.cmd.ProcessState.String() }

// end sends the signal and waits. A program that does not end within the limit is killed, which is an error.
func (p *process) end(signal os.Signal, limit time.Duration) error {
	if !p.running() {
		return nil
	}
	_ = p.cmd.Process.Signal(signal)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.ended:
		return nil
	case <-timer.C:
		_ = p.cmd.Process.Kill()
		<-p.ended
		return fmt.Errorf("the dataplane did not end within %s of %s and was killed", limit, signal)
	}
}
