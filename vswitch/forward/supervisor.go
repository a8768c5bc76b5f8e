package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/vswitch/slow"
)

// Pauses before a failed port is opened again: minRetryPause first, doubled after each attempt up to maxRetryPause.
const (
	minRetryPause = time.Second
	maxRetryPause = 30 * time.Second
)

// supervisor owns the list of ports: it opens and closes them, and opens failed ones again.
//
//	attached --error--> failed --open--> attached
//	   \---------ClosePort---\--> closed
type supervisor struct {
	engine *Engine
	log    *slog.Logger
	bell   *slow.Bell // rung when a port fails

	mu      sync.Mutex
	ports   map[uint32]*supervisedPort // by interface index
	stopped bool

	closing sync.WaitGroup // closed ports that the kernel has not released yet
}

// supervisedPort is a port that the supervisor keeps open.
type supervisedPort struct {
	open     func() (vectorPort, error)
	attached *attachedPort // nil: failed
	pause    time.Duration
	retryAt  time.Time // of a failed port
}

func newSupervisor(e *Engine, log *slog.Logger) (*supervisor, error) {
	bell, err := slow.NewBell()
	if err != nil {
		return nil, err
	}
	return &supervisor{engine: e, log: log, bell: bell, ports: map[uint32]*supervisedPort{}}, nil
}

// add opens a port and attaches it to an interface.
func (s *supervisor) add(index uint32, open func() (vectorPort, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return ErrStopped
	}
	if index >= MaxInterfaces {
		return ErrNoInterface
	}
	if s.ports[index] != nil {
		return ErrPortExists
	}
	p := &supervisedPort{open: open, pause: minRetryPause}
	if err := s.openLocked(index, p); err != nil {
		return err
	}
	s.ports[index] = p
	return nil
}

// remove closes a port and forgets it.
func (s *supervisor) remove(index uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.ports[index]
	if p == nil {
		return ErrNoPort
	}
	delete(s.ports, index)
	return s.closeLocked(p)
}

// run reopens failed ports until ctx ends.
func (s *supervisor) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.bell.Ring)
	defer stop()
	for ctx.Err() == nil {
		due := s.inspect(time.Now())
		if err := s.bell.Wait(due, func() bool { return ctx.Err() == nil && !s.hasFailedPort() }); err != nil {
			return err
		}
	}
	return nil
}

// inspect closes failed ports and reopens those with an elapsed pause. It returns the time of the next attempt; zero:
// none is planned.
func (s *supervisor) inspect(now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var next time.Time
	for index, p := range s.ports {
		s.closeFailedLocked(index, p, now)
		if p.attached != nil {
			continue
		}
		if !p.retryAt.After(now) {
			s.retryLocked(index, p, now)
		}
		if p.attached == nil && (next.IsZero() || p.retryAt.Before(next)) {
			next = p.retryAt
		}
	}
	return next
}

func (s *supervisor) hasFailedPort() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.ports {
		if p.attached != nil && p.attached.failure.Load() != nil {
			return true
		}
	}
	return false
}

func (s *supervisor) closeFailedLocked(index uint32, p *supervisedPort, now time.Time) {
	if p.attached == nil {
		return
	}
	failure := p.attached.failure.Load()
	if failure == nil {
		return
	}
	err := errors.Join(failure.err, s.closeLocked(p))
	p.retryAt = now.Add(p.pause)
	s.log.Warn("port failed", "interface", index, "err", err)
	s.engine.report(Event{Kind: PortDown, Interface: index, Err: err})
}

func (s *supervisor) retryLocked(index uint32, p *supervisedPort, now time.Time) {
	if err := s.openLocked(index, p); err != nil {
		p.pause = min(2*p.pause, maxRetryPause)
		p.retryAt = now.Add(p.pause)
		s.log.Debug("cannot reopen port", "interface", index, "err", err)
		return
	}
	p.pause = minRetryPause
	s.log.Info("port reopened", "interface", index)
	s.engine.report(Event{Kind: PortUp, Interface: index})
}

// openLocked opens a port and attaches it.
func (s *supervisor) openLocked(index uint32, p *supervisedPort) error {
	port, err := p.open()
	if err != nil {
		return err
	}
	p.attached, err = s.attachLocked(index, port)
	return err
}

// attach attaches a port that the caller opens, and opens again after a failure.
func (s *supervisor) attach(index uint32, p vectorPort) (*attachedPort, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, errors.Join(ErrStopped, p.Close())
	}
	return s.attachLocked(index, p)
}

// attachLocked makes a port visible to the workers; after an error it is closed.
func (s *supervisor) attachLocked(index uint32, p vectorPort) (*attachedPort, error) {
	a := newAttachedPort(index, p, s.engine)
	s.publish(s.engine.ports.Load().with(index, a))
	for n, i := range a.rxQueues {
		if err := i.owner.rx.poll.add(i.Descriptor(), index, n); err != nil {
			return nil, errors.Join(err, s.detachLocked(a))
		}
		i.owner.bell.Ring()
	}
	return a, nil
}

// detach undoes attach and closes the port.
func (s *supervisor) detach(a *attachedPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.detachLocked(a)
}

// closeLocked closes a port when no worker uses it any more.
func (s *supervisor) closeLocked(p *supervisedPort) error {
	a := p.attached
	if a == nil {
		return nil
	}
	p.attached = nil
	return s.detachLocked(a)
}

func (s *supervisor) detachLocked(a *attachedPort) error {
	s.publish(s.engine.ports.Load().with(a.index, nil))
	a.unwatch()
	s.engine.synchronise()
	return s.close(a)
}

func (s *supervisor) publish(t portTable) { s.engine.ports.Store(&t) }

// maxConcurrentCloses limits the ports that are closed at the same time. To close a packet socket or a tap, the kernel
// waits some 20 ms for RCU readers, in a thread each; concurrent closes wait for the same readers.
const maxConcurrentCloses = 512

// closeAll closes all ports after the end of the workers. A standby takes over when the last port is closed.
func (s *supervisor) closeAll() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.publish(portTable{})
	s.engine.synchronise()
	var g errgroup.Group
	g.SetLimit(maxConcurrentCloses)
	kept := slices.Collect(maps.Values(s.ports))
	errs := make([]error, len(kept))
	for i, p := range kept {
		if p.attached == nil {
			continue
		}
		p.attached.unwatch()
		g.Go(func() error {
			errs[i] = s.close(p.attached)
			return nil
		})
	}
	_ = g.Wait()
	s.closing.Wait()
	clear(s.ports)
	return errors.Join(errs...)
}

// close closes a port that no worker uses any more.
func (s *supervisor) close(a *attachedPort) error {
	if err := a.port.Close(); err != nil {
		return fmt.Errorf("close port of interface %d: %w", a.index, err)
	}
	if p, waits := a.port.(interface{ Wait() }); waits {
		s.closing.Go(p.Wait)
	}
	return nil
}
