// Package service keeps a daemon: started, stopped, killed and started again, with one log.
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

// stopTime is how long a daemon has to end on SIGTERM before it is killed.
const stopTime = 15 * time.Second

// Starter starts a command, where it belongs.
type Starter func(*exec.Cmd) error

// Daemon is what a service runs.
type Daemon struct {
	Name string
	Path string
	Args []string
	Env  []string
	// Log is the file that the output of all its lives is appended to.
	Log string
	// Start starts it in the right namespaces.
	Start Starter
}

// Service is a daemon that may be running. Its methods may be called from several goroutines.
type Service struct {
	daemon Daemon

	mu   sync.Mutex
	life *life // nil: not running
}

// life is one process of the daemon.
type life struct {
	cmd   *exec.Cmd
	from  int64 // where the log was when it began
	ended chan struct{}
}

// New gives the service of a daemon, not yet started.
func New(d Daemon) *Service { return &Service{daemon: d} }

// Start starts the daemon; it is an error if it runs already.
func (s *Service) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life != nil && s.life.running() {
		return fmt.Errorf("start %s: it is running", s.daemon.Name)
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
	cmd.Env, cmd.Stdout, cmd.Stderr = s.daemon.Env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a terminal's interrupt is not for it
	if err := s.daemon.Start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", s.daemon.Name, err)
	}
	l := &life{cmd: cmd, from: earlier.Size(), ended: make(chan struct{})}
	go func() { _ = cmd.Wait(); close(l.ended) }() // how it ended is in the process state
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

// Stop asks the daemon to end, and kills it if it does not; one that does not run is stopped already.
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

// Kill ends the daemon at once, as kill -9 does, and waits until it is gone.
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

// Freeze stops the daemon's clock until Thaw: it holds its sockets and does not answer.
func (s *Service) Freeze() error { return s.freezer(syscall.SIGSTOP) }

// Thaw lets a frozen daemon go on.
func (s *Service) Thaw() error { return s.freezer(syscall.SIGCONT) }

func (s *Service) freezer(sig syscall.Signal) error {
	l := s.current()
	if l == nil {
		return fmt.Errorf("%s does not run", s.daemon.Name)
	}
	return l.signal(sig)
}

// Ended says how the daemon ended, with the last line of its log; nil while it runs.
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

// Says returns nil if the daemon, since it was started last, has logged a text.
func (s *Service) Says(text string) error {
	l := s.current()
	if l == nil {
		return fmt.Errorf("%s was not started", s.daemon.Name)
	}
	content, err := os.ReadFile(s.daemon.Log)
	if err != nil {
		return fmt.Errorf("what %s says: %w", s.daemon.Name, err)
	}
	if !strings.Contains(string(content[l.from:]), text) {
		return fmt.Errorf("%s has not said %q yet", s.daemon.Name, text)
	}
	return nil
}

// lastLine is what the daemon said last.
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
