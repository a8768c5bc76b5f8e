package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// timeout is the timeout of a program's start and end.
const timeout = time.Minute

// process is a running program.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has been waited for
}

// StartAgent starts the agent, which starts its dataplane if none runs, and waits until it is ready. Flags take
// precedence over the node's configuration.
func (n *Node) StartAgent(ctx context.Context, flags ...string) error {
	if err := n.BeginAgent(flags...); err != nil {
		return err
	}
	return n.AwaitReady(ctx)
}

// BeginAgent starts the agent and does not wait.
func (n *Node) BeginAgent(flags ...string) error {
	if err := n.StartVPP(); err != nil {
		return err
	}
	out, err := os.OpenFile(n.AgentLog(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	defer out.Close()
	cmd := exec.Command(n.Program("weft-agent"), append([]string{"run", "--config", n.Config()}, flags...)...)
	cmd.Stdout = out
	cmd.Stderr = out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's interrupt is for the test only
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	p := &process{cmd, make(chan struct{})}
	go func() { defer close(p.ended); _ = cmd.Wait() }()
	n.agent = p
	return nil
}

// AwaitReady waits until the agent is ready.
func (n *Node) AwaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(30 * time.Millisecond)
	defer tick.Stop()
	for {
		out, err := exec.CommandContext(ctx, n.Program("weft-agent"), "health", "--socket", n.Socket()).CombinedOutput()
		if err == nil {
			return nil
		}
		select {
		case <-n.agent.ended:
			return fmt.Errorf("the agent exited before it was ready: %s", n.agent.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("the agent is not ready after %s: %w: %s", timeout, err, out)
		case <-tick.C:
		}
	}
}

// KillAgent ends the agent with SIGKILL and waits for it.
func (n *Node) KillAgent() error {
	if err := n.agent.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill the agent: %w", err)
	}
	<-n.agent.ended
	n.agent = nil
	return nil
}

// AgentPID returns the agent's process id; 0 = it does not run.
func (n *Node) AgentPID() int {
	if n.agent == nil {
		return 0
	}
	return n.agent.cmd.Process.Pid
}

// StopAgent ends the agent with SIGTERM, as an upgrade does, and waits for it.
func (n *Node) StopAgent() error { return n.endAgent(syscall.SIGTERM) }

// Abort ends agent and dataplane with SIGQUIT, so that their logs have the stack of each goroutine; Close then keeps
// the logs.
func (n *Node) Abort() error {
	n.aborted = true
	return errors.Join(n.endAgent(syscall.SIGQUIT), n.endDataplane(syscall.SIGQUIT))
}

func (n *Node) endAgent(signal syscall.Signal) error {
	if n.agent == nil {
		return nil
	}
	p := n.agent
	n.agent = nil
	_ = p.cmd.Process.Signal(signal)
	select {
	case <-p.ended:
		return nil
	case <-time.After(timeout):
		_ = p.cmd.Process.Kill()
		<-p.ended
		return fmt.Errorf("the agent did not end within %s of %s and was killed", timeout, unix.SignalName(signal))
	}
}

// Weftctl runs weftctl for this node's agent and returns its output.
func (n *Node) Weftctl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, n.Program("weftctl"), args...)
	cmd.Env = append(os.Environ(), "WEFT_SOCKET="+n.Socket())
	out, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return string(out), fmt.Errorf("weftctl %v: %w: %s", args, err, exit.Stderr)
	}
	return string(out), err
}
