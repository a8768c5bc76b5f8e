package eventloop

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Loop handles events one at a time, in the order of their arrival:
//
//	        Full resync                    what cannot be undone
//	gated -------------> ready -----------------------------> degraded
//	  queues all others    ^                                     |
//	                       +-------- healing resync is clean ----+
type Loop struct {
	cfg      Config
	registry registry
	queue    *queue
	history  *history
	status   status
	started  atomic.Bool
	stopped  chan struct{} // closed when Run has returned

	// What follows belongs to the goroutine of Run.
	state   state
	owed    []Saved // of best-effort events whose durable step failed
	healing healing
}

// New returns a Loop. Register its handlers, then call Run.
func New(cfg Config) *Loop {
	cfg = cfg.withDefaults()
	l := &Loop{
		cfg:     cfg,
		queue:   newQueue(cfg.QueueMax),
		history: newHistory(cfg.HistoryRecords, cfg.HistoryBytes),
		stopped: make(chan struct{}),
		state:   newState(),
		healing: newHealing(cfg.Healing),
	}
	l.registry.add(handler{
		name:   "external configuration",
		own:    true,
		takes:  func(ev Event) bool { _, ok := ev.(*configure); return ok },
		handle: func(_ context.Context, ev Event, txn *Txn) error { return l.configure(ev.(*configure), txn) },
	})
	return l
}

// Run handles events until ctx ends; then it finishes the running one, answers all
// others with ErrStopped and returns nil. It can run only once.
func (l *Loop) Run(ctx context.Context) error {
	if l.cfg.Committer == nil {
		return errors.New("run event loop: it has no Committer")
	}
	if !l.started.CompareAndSwap(false, true) {
		return errors.New("run event loop: it has run before")
	}
	ctx, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		<-ctx.Done()
		l.refuseAll()
	})
	defer func() {
		cancel()
		waiting.Wait()
		l.finish()
	}()
	for ctx.Err() == nil {
		if r := l.next(ctx); r != nil {
			l.handle(r)
		}
	}
	return nil
}

// next returns the next event; nil when there was something else to do.
func (l *Loop) next(ctx context.Context) *request {
	select {
	case <-l.healing.timer.C:
		return l.healingRequest()
	default:
	}
	if r := l.queue.pop(); r != nil {
		return r
	}
	l.saveLeft(ctx)
	select {
	case <-ctx.Done():
	case <-l.queue.wake:
	case <-l.healing.timer.C:
		return l.healingRequest()
	}
	return nil
}

// refuseAll ends what waits, because the loop stops.
func (l *Loop) refuseAll() {
	for _, r := range l.queue.close() {
		_, _ = l.refuse(r, ErrStopped)
	}
}

// finish makes durable what the last refusals recorded, and ends all readers.
func (l *Loop) finish() {
	l.healing.timer.Stop()
	l.saveLeft(context.Background())
	l.queue.finish()
	close(l.stopped)
	l.history.close()
}

// Stats is the state of the loop at a glance.
type Stats struct {
	Queue       int
	Running     string   // the event, empty if none
	Degraded    []string // keys, and handlers, that could not be undone
	NextHealing time.Time
	Resynced    bool // the start-up resync has ended
	Handled     uint64
	Refused     uint64 // because the queue was full
	Drops       []Drop // values of external configuration that are left out, by key
}

// Stats returns the state of the loop. It never waits for a running event.
func (l *Loop) Stats() Stats {
	s := l.status.read()
	s.Queue, s.Running = l.queue.load()
	s.Resynced = !l.queue.isGated()
	return s
}

// status is the part of Stats that others than the loop's goroutine read.
type status struct {
	mu    sync.Mutex
	stats Stats
}

func (s *status) read() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Degraded, stats.Drops = slices.Clone(stats.Degraded), slices.Clone(stats.Drops)
	return stats
}

func (s *status) handled(drops map[string][]Drop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Handled++
	s.stats.Drops = s.stats.Drops[:0]
	for _, key := range slices.Sorted(maps.Keys(drops)) {
		s.stats.Drops = append(s.stats.Drops, drops[key]...)
	}
}

func (s *status) refused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Refused++
}

func (s *status) heal(degraded []string, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Degraded, s.stats.NextHealing = degraded, next
}
