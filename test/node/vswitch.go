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

// Vswitch is a weft-vswitch that a test runs, as a DaemonSet would (Options.External).
type Vswitch struct {
	process
	name string
}

// StartVswitch starts a weft-vswitch on the node's socket and does not wait.
func (n *Node) StartVswitch(name string, flags ...string) (*Vswitch, error) {
	out, err := os.OpenFile(n.DataplaneLog(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start weft-vswitch: %w", err)
	}
	defer out.Close()
	cmd := exec.Command(n.Program("weft-vswitch"),
		append([]string{"--api-socket", n.DataplaneSocket(), "--name", name}, flags...)...)
	cmd.Stdout = out
	cmd.Stderr = out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's interrupt is for the test only
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start weft-vswitch: %w", err)
	}
	v := &Vswitch{process{cmd, make(chan struct{})}, name}
	go func() { defer close(v.ended); _ = cmd.Wait() }()
	n.vswitches = append(n.vswitches, v)
	return v, nil
}

// PID returns the process id.
func (v *Vswitch) PID() int { return v.cmd.Process.Pid }

// AwaitVswitch waits until the weft-vswitch serves the socket or waits to take over.
func (n *Node) AwaitVswitch(ctx context.Context, v *Vswitch) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		out, err := exec.CommandContext(ctx, n.Program("weft-vswitch"), "status", "--api-socket", n.DataplaneSocket(),
			"--name", v.name).CombinedOutput()
		if err == nil {
			return nil
		}
		select {
		case <-v.ended:
			return fmt.Errorf("weft-vswitch %s exited before it was ready: %s", v.name, v.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("weft-vswitch %s is not ready: %w: %s", v.name, errors.Join(ctx.Err(), err), out)
		case <-tick.C:
		}
	}
}

// End sends a signal and waits until the process has ended.
func (v *Vswitch) End(signal syscall.Signal) error {
	_ = v.cmd.Process.Signal(signal)
	select {
	case <-v.ended:
		return nil
	case <-time.After(timeout):
		_ = v.cmd.Process.Kill()
		<-v.ended
		return fmt.Errorf("weft-vswitch %s did not end within %s of %s and was killed", v.name, timeout,
			unix.SignalName(signal))
	}
}
