package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/weftnet/weft/agent/config"
)

// embedded finds or starts the weft-vswitch of this node. It is a process of its own, in its own session and with its
// output in a file, so that it goes on forwarding when the agent stops, is killed, or is upgraded; one that answers
// is never started again.
type embedded struct {
	config config.Dataplane
	log    *slog.Logger
	known  bool // it answered when it was looked for last
}

// startTimeout is how long a new weft-vswitch may take until its API answers; it needs a few milliseconds.
const startTimeout = 10 * time.Second

// ensure returns once a dataplane answers on the API socket.
func (e *embedded) ensure(ctx context.Context) error {
	if answers(e.config.Socket) {
		if !e.known {
			e.log.Info("dataplane found running", "socket", e.config.Socket)
		}
		e.known = true
		return nil
	}
	e.known = false
	program, err := e.program()
	if err != nil {
		return err
	}
	exited, pid, err := e.start(program)
	if err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	e.log.Info("dataplane started", "program", program, "pid", pid, "log", e.config.Log)
	err = e.await(ctx, exited)
	e.known = err == nil
	return err
}

func (e *embedded) program() (string, error) {
	if e.config.Program != "" {
		return e.config.Program, nil
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "weft-vswitch")
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	program, err := exec.LookPath("weft-vswitch")
	if err != nil {
		return "", errors.New("weft-vswitch is neither beside weft-agent nor in PATH: set dataplane.program, or dataplane.type to vpp")
	}
	return program, nil
}

// start leaves a running weft-vswitch behind. The channel is closed when it ends, as long as this agent lives.
func (e *embedded) start(program string) (exited <-chan struct{}, pid int, err error) {
	if err := errors.Join(os.MkdirAll(filepath.Dir(e.config.Log), 0o755), os.MkdirAll(filepath.Dir(e.config.Socket), 0o700)); err != nil {
		return nil, 0, err
	}
	out, err := os.OpenFile(e.config.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, 0, err
	}
	defer out.Close()
	cmd := exec.Command(program, "--api-socket", e.config.Socket, "--stats-socket", e.config.StatsSocket) //nolint:noctx // it is to outlive us
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := cmd.Wait()
		e.log.Warn("dataplane ended", "pid", cmd.Process.Pid, "err", err)
	}()
	return done, cmd.Process.Pid, nil
}

func (e *embedded) await(ctx context.Context, exited <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !answers(e.config.Socket) {
		select {
		case <-tick.C:
		case <-exited:
			return fmt.Errorf("weft-vswitch ended before it answered on %s; see %s", e.config.Socket, e.config.Log)
		case <-ctx.Done():
			return fmt.Errorf("weft-vswitch does not answer on %s: %w; see %s", e.config.Socket, context.Cause(ctx), e.config.Log)
		}
	}
	return nil
}

func answers(socket string) bool {
	c, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return false
	}
	return c.Close() == nil
}
