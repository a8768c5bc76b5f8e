// Package service starts, stops, kills and restarts a daemon, with one log.
package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopTime is the time between SIGTERM and SIGKILL.
const stopTime = 15 * time.Second

// Starter starts a command in the right namespaces.
type Starter func(*exec.Cmd) error

// Daemon is the command of a service.
type Daemon struct {
	Name string
	Path string
	Args []string
	Env  []string
	// Log is the file with the output of all starts.
	Log string
	// Start starts the command.
	Start Starter
}

// Service is a daemon that may be running. Its methods are safe for concurrent use.
type Service struct {
	daemon Daemon

	mu   sync.Mutex
	life *life // nil = not running
}

// life is one process of the daemon.
type life struct {
	cmd   *exec.Cmd
	from  int64 // offset of its output in the log
	ended chan struct{}
}

// New returns the service of a daemon, not yet started.
func New(d Daemon) *Service { return &Service{daemon: d} }

// Start starts the daemon; it returns an error if it is running.
func (s *Service) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life != nil && s.life.running() {
		return fmt.Errorf("start %s: it is already running", s.daemon.Name)
	}
	log, err := os.OpenFile(s.daemon.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.daemon.Name, err)
	}
	defer log.Close()
	earlier, err := log.Stat()
	if err != nil {
		return fmt.Errorf("start %s: %w", s.daemon.Name, err)
	}
	cmd := exec.Command(s.daemon.Path, s.daemon.Args...)
	cmd.Env = s.daemon.Env
	cmd.Stdout = log
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // without the terminal's interrupts
	if err := s.daemon.Start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", s.daemon.Name, err)
	}
	l := &life{cmd: cmd, from: earlier.Size(), ended: make(chan struct{})}
	go func() { _ = cmd.Wait(); close(l.ended) }() // the process state has the result
	s.life = l
	return nil
}

func (l *life) running() bool {
	select {
	case <-l.ended:
		return false
	default:
		return true
	}
}

// Stop sends SIGTERM to the daemon, and SIGKILL if it does not end; it does nothing if the daemon does not run.
func (s *Service) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	l := s.current()
	if l == nil {
		return nil
	}
	if err := l.signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", s.daemon.Name, err)
	}
	select {
	case <-l.ended:
		return nil
	case <-ctx.Done():
		return s.Kill()
	}
}

// Kill sends SIGKILL to the daemon and waits until it has ended.
func (s *Service) Kill() error {
	l := s.current()
	if l == nil {
		return nil
	}
	if err := l.signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %s: %w", s.daemon.Name, err)
	}
	<-l.ended
	return nil
}

// Restart stops and starts the daemon.
func (s *Service) Restart(ctx context.Context) error {
	if err := s.Stop(ctx); err != nil {
		return err
	}
	return s.Start()
}

// Freeze stops the daemon with SIGSTOP until Thaw: its sockets stay open, and it does not answer.
func (s *Service) Freeze() error { return s.freezer(syscall.SIGSTOP) }

// Thaw continues a frozen daemon.
func (s *Service) Thaw() error { return s.freezer(syscall.SIGCONT) }

func (s *Service) freezer(sig syscall.Signal) error {
	l := s.current()
	if l == nil {
		return fmt.Errorf("%s is not running", s.daemon.Name)
	}
	return l.signal(sig)
}

// Ended returns how the daemon ended, with the last line of its log; nil while it runs.
func (s *Service) Ended() error {
	l := s.current()
	if l == nil {
		return fmt.Errorf("%s was not started", s.daemon.Name)
	}
	if l.running() {
		return nil
	}
	return fmt.Errorf("%s ended (%v): %s", s.daemon.Name, l.cmd.ProcessState, s.lastLine())
}

func (s *Service) current() *life {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life
}

func (l *life) signal(sig syscall.Signal) error {
	if err := l.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Says returns nil if the daemon has logged a text since its last start.
func (s *Service) Says(text string) error {
	l := s.current()
	if l == nil {
		return fmt.Errorf("%s was not started", s.daemon.Name)
	}
	content, err := os.ReadFile(s.daemon.Log)
	if err != nil {
		return fmt.Errorf("read the log of %s: %w", s.daemon.Name, err)
	}
	if !strings.Contains(string(content[l.from:]), text) {
		return fmt.Errorf("%s has not logged %q yet", s.daemon.Name, text)
	}
	return nil
}

// lastLine returns the last line of the daemon's log.
func (s *Service) lastLine() string {
	f, err := os.Open(s.daemon.Log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	_, _ = f.Seek(-2000, io.SeekEnd) // a shorter file is read from its start
	tail, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	text := strings.TrimSpace(string(tail))
	return text[strings.LastIndexByte(text, '\n')+1:]
}
