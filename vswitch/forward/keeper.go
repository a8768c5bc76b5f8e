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

// A broken port is tried again after the first pause, then after twice as long each time, up to the last.
const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

// keeper owns the list of ports: it attaches and detaches them, and opens broken ones again.
//
//	attached --error--> broken --open again--> attached
//	   \---------ClosePort---\--> gone
type keeper struct {
	engine *Engine
	log    *slog.Logger
	bell   *slow.Bell // rung when a port broke

	mu      sync.Mutex
	kept    map[uint32]*keptPort // by interface index
	stopped bool

	closing sync.WaitGroup // closed ports that the kernel has not freed yet
}

// keptPort is a port that should be there.
type keptPort struct {
	open       func() (vectorPort, error)
	attachment *attachment // nil: broken
	pause      time.Duration
	due        time.Time // broken: of the next attempt
}

func newKeeper(e *Engine, log *slog.Logger) (*keeper, error) {
	bell, err := slow.NewBell()
	if err != nil {
		return nil, err
	}
	return &keeper{engine: e, log: log, bell: bell, kept: map[uint32]*keptPort{}}, nil
}

// add opens a port and attaches it to the interface.
func (k *keeper) add(index uint32, open func() (vectorPort, error)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return ErrStopped
	}
	if index >= MaxInterfaces {
		return ErrNoInterface
	}
	if k.kept[index] != nil {
		return ErrPortExists
	}
	p := &keptPort{open: open, pause: firstPause}
	if err := k.attachLocked(index, p); err != nil {
		return err
	}
	k.kept[index] = p
	return nil
}

// remove takes a port away for good.
func (k *keeper) remove(index uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.kept[index]
	if p == nil {
		return ErrNoPort
	}
	delete(k.kept, index)
	return k.detachLocked(p)
}

// run watches over the ports until ctx ends.
func (k *keeper) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, k.bell.Ring)
	defer stop()
	for ctx.Err() == nil {
		due := k.inspect(time.Now())
		if err := k.bell.Wait(due, func() bool { return ctx.Err() == nil && !k.hasNews() }); err != nil {
			return err
		}
	}
	return nil
}

// inspect takes broken ports down and opens those again whose pause is over. It returns when to come back; zero: when the
// bell rings.
func (k *keeper) inspect(now time.Time) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	var next time.Time
	for index, p := range k.kept {
		k.takeDownLocked(index, p, now)
		if p.attachment != nil {
			continue
		}
		if !p.due.After(now) {
			k.retryLocked(index, p, now)
		}
		if p.attachment == nil && (next.IsZero() || p.due.Before(next)) {
			next = p.due
		}
	}
	return next
}

// hasNews says that inspect should look again before it said it would.
func (k *keeper) hasNews() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.kept {
		if p.attachment != nil && p.attachment.failure.Load() != nil {
			return true
		}
	}
	return false
}

func (k *keeper) takeDownLocked(index uint32, p *keptPort, now time.Time) {
	if p.attachment == nil {
		return
	}
	failure := p.attachment.failure.Load()
	if failure == nil {
		return
	}
	err := errors.Join(failure.err, k.detachLocked(p))
	p.due = now.Add(p.pause)
	k.log.Warn("port broke", "interface", index, "err", err)
	k.engine.report(Event{Kind: PortDown, Interface: index, Err: err})
}

func (k *keeper) retryLocked(index uint32, p *keptPort, now time.Time) {
	if err := k.attachLocked(index, p); err != nil {
		p.pause = min(2*p.pause, lastPause)
		p.due = now.Add(p.pause)
		k.log.Debug("port not opened again", "interface", index, "err", err)
		return
	}
	p.pause = firstPause
	k.log.Info("port works again", "interface", index)
	k.engine.report(Event{Kind: PortUp, Interface: index})
}

// attachLocked opens the port and shows it to the workers. Ports spread over the workers by index.
func (k *keeper) attachLocked(index uint32, p *keptPort) error {
	port, err := p.open()
	if err != nil {
		return err
	}
	p.attachment, err = k.employLocked(index, port)
	return err
}

// employ attaches a port that others open, and open again where it breaks.
func (k *keeper) employ(index uint32, p vectorPort) (*attachment, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return nil, errors.Join(ErrStopped, p.Close())
	}
	return k.employLocked(index, p)
}

// employLocked shows a port to the workers; after an error it is closed.
func (k *keeper) employLocked(index uint32, p vectorPort) (*attachment, error) {
	a := newAttachment(index, p, k.engine)
	k.show(k.engine.ports.Load().with(index, a))
	for n, i := range a.inlets {
		if err := i.owner.poll.add(i.Descriptor(), index, n); err != nil {
			return nil, errors.Join(err, k.dismissLocked(a))
		}
		i.owner.bell.Ring()
	}
	return a, nil
}

// dismiss ends what employ began.
func (k *keeper) dismiss(a *attachment) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dismissLocked(a)
}

// detachLocked closes the port when no worker uses it any more.
func (k *keeper) detachLocked(p *keptPort) error {
	a := p.attachment
	if a == nil {
		return nil
	}
	p.attachment = nil
	return k.dismissLocked(a)
}

func (k *keeper) dismissLocked(a *attachment) error {
	k.show(k.engine.ports.Load().with(a.index, nil))
	a.silence()
	k.engine.settle()
	return k.close(a)
}

func (k *keeper) show(t portTable) { k.engine.ports.Store(&t) }

// closers is how many ports are closed at a time. The kernel waits some 20 ms for RCU readers when it closes a packet socket or a tap, in
// a thread each; all that are closed at the same time wait for the same readers.
const closers = 512

// closeAll is the end: no worker runs any more. A standby starts when the last port is closed.
func (k *keeper) closeAll() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = true
	k.show(portTable{})
	k.engine.settle()
	var g errgroup.Group
	g.SetLimit(closers)
	kept := slices.Collect(maps.Values(k.kept))
	errs := make([]error, len(kept))
	for i, p := range kept {
		if p.attachment == nil {
			continue
		}
		p.attachment.silence()
		g.Go(func() error {
			errs[i] = k.close(p.attachment)
			return nil
		})
	}
	_ = g.Wait()
	k.closing.Wait()
	clear(k.kept)
	return errors.Join(errs...)
}

// close closes the port, which no worker uses any more.
func (k *keeper) close(a *attachment) error {
	if err := a.port.Close(); err != nil {
		return fmt.Errorf("close port of interface %d: %w", a.index, err)
	}
	if p, waits := a.port.(interface{ Wait() }); waits {
		k.closing.Go(p.Wait)
	}
	return nil
}
