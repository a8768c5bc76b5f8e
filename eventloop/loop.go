// Package eventloop runs events one at a time through ordered handlers and commits what they ask for as one transaction, or undoes all of it.
//
// An event passes thirteen steps: the first in its caller's goroutine (admit.go),
// the others in the loop's own (flight.go). A handler only builds its [Txn]; what
// it changes in its own memory it concludes or inverts there too.
package eventloop

import (
	"context"
	"errors"
	"log/slog"
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
	registry *registry
	queue    *queue
	history  *history
	status   *status
	intake   *intake
	executor *executor // belongs to the goroutine of Run
	started  atomic.Bool
	stopped  chan struct{} // closed when Run has returned
}

// New returns a Loop. Register its handlers, then call Run.
func New(cfg Config) *Loop {
	cfg = cfg.withDefaults()
	l := &Loop{
		cfg:      cfg,
		registry: &registry{},
		queue:    newQueue(cfg.QueueMax),
		history:  newHistory(cfg.HistoryRecords, cfg.HistoryBytes),
		status:   &status{},
		stopped:  make(chan struct{}),
	}
	l.intake = &intake{cfg: cfg, registry: l.registry, queue: l.queue, history: l.history, status: l.status, stopped: l.stopped}
	l.executor = newExecutor(l)
	l.registry.add(handler{
		name:  "external configuration",
		own:   true,
		takes: func(ev Event) bool { _, ok := ev.(*configure); return ok },
		handle: func(_ context.Context, ev Event, txn *Txn) error {
			return l.executor.external.configure(ev.(*configure), txn)
		},
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
			l.executor.handle(r)
		}
	}
	return nil
}

// next returns the next event; nil when there was something else to do.
func (l *Loop) next(ctx context.Context) *request {
	select {
	case <-l.executor.healing.timer.C:
		return l.healingRequest()
	default:
	}
	if r := l.queue.pop(); r != nil {
		return r
	}
	l.executor.durable.flush(ctx)
	select {
	case <-ctx.Done():
	case <-l.queue.wake:
	case <-l.executor.healing.timer.C:
		return l.healingRequest()
	}
	return nil
}

// healingRequest is the resync that was scheduled.
func (l *Loop) healingRequest() *request {
	l.executor.healing.next = time.Time{}
	r, err := l.intake.admitPosted(context.Background(), Resynchronize{Kind: Full, Reason: "healing"})
	if err != nil {
		_, _ = l.intake.refuse(r, err)
		return nil
	}
	return l.queue.start(r)
}

// refuseAll ends what waits, because the loop stops.
func (l *Loop) refuseAll() {
	for _, r := range l.queue.close() {
		_, _ = l.intake.refuse(r, ErrStopped)
	}
}

// finish makes durable what the last refusals recorded, and ends all readers.
func (l *Loop) finish() {
	l.executor.healing.timer.Stop()
	l.executor.durable.flush(context.Background())
	l.queue.finish()
	close(l.stopped)
	l.history.close()
}

// Do queues ev, waits until it has been handled, and returns its record. The event
// belongs to the loop until Do returns; if ctx ends first it is dropped if it still
// waits, and finished if it runs already: then the record is nil, and ev must not be
// read. The record is also nil if the queue was full.
func (l *Loop) Do(ctx context.Context, ev Event) (*Record, error) {
	r, err := l.intake.admit(ctx, ev, l.intake.load)
	if err == nil {
		err = l.intake.enqueue(r)
	}
	if err != nil {
		return l.intake.refuse(r, err)
	}
	return l.intake.wait(ctx, r)
}

// Post queues ev and does not wait. An error says that it was not queued; what
// becomes of it later is in its record. Of ctx only the values count.
func (l *Loop) Post(ctx context.Context, ev Event) error {
	r, err := l.intake.admitPosted(ctx, ev)
	if err == nil {
		err = l.intake.enqueue(r)
	}
	if err != nil {
		_, err = l.intake.refuse(r, err)
	}
	return err
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

// Setting gives a key a value; a nil Value takes it away.
type Setting struct {
	Key   string
	Value any
}

// Change is what one event asks of the [Committer].
type Change struct {
	Event  uint64 // the sequence number of the event's record
	Label  string // the event, in one line
	Atomic bool   // any failure of Set returns to the state before; else failures stay desired and are retried
	Resync Resync
	Scope  Scope // of a downstream resync

	// Set holds the values that change; for Upstream and Full it is all that is
	// desired, and what it does not name is to go; for Downstream it is empty.
	Set []Setting

	// External holds values that exist in external configuration only: a source
	// of its own, best effort, committed after Set and never failing it. As Set it
	// is the whole for Upstream and Full. A key that moves from External to Set
	// stands in both, with no value here: it is to be given up first.
	External []Setting
}

func (c Change) empty() bool { return c.Resync == None && len(c.Set) == 0 && len(c.External) == 0 }

// Outcome is what became of a [Change].
type Outcome struct {
	Transactions []uint64 // the Committer's own numbers
	Operations   int
	Undone       bool     // an Atomic change failed, and all is as before but for Stuck
	Stuck        []string // keys that could be neither undone nor applied
	Pending      []string // keys that wait for something

	// Refused are the keys of External that could not be desired at all, with the reasons. They exist as little as dropped values.
	Refused map[string]string
}

// Committer applies changes: the scheduler, seen from here. It must return soon
// after ctx ends. If an Atomic change fails and the Outcome does not say Undone,
// the loop commits the inverse. An error of any other change means that some keys
// are not applied yet; they stay desired, or are Stuck.
//
// If it also has a method Drift(context.Context) ([]string, error), the plan of a
// downstream resync by key, verification expects that to be empty after each event.
type Committer interface {
	Commit(ctx context.Context, c Change) (Outcome, error)
}

// Saved is one durable value; a nil Value deletes it.
type Saved struct {
	Bucket, Key string
	Value       any
}

// RecordsBucket is the bucket of the [Record] values that the loop saves itself;
// their keys are sequence numbers of twenty digits.
const RecordsBucket = "records"

// Saver makes values durable, in order and all or none: the state file, seen from
// here. An error means that nothing was kept.
type Saver interface {
	Save(ctx context.Context, saved []Saved) error
}

// ExternalCodec turns values into JSON and back, to merge external configuration over them.
type ExternalCodec interface {
	Encode(key string, value any) ([]byte, error)
	Decode(key string, b []byte) (any, error)
	Validate(key string, value any) error
}

// Healing bounds the delay before a resync that follows a failure; it doubles from one to the next.
type Healing struct {
	Min, Max time.Duration // default 1 s and 5 min
}

// Config is what a [Loop] is made of. Only Committer is needed.
type Config struct {
	Committer Committer
	Saver     Saver
	External  ExternalCodec
	Log       *slog.Logger
	Now       func() time.Time

	QueueMax       int           // events that may wait; default 4096
	UndoTimeout    time.Duration // for undoing an event, and for saving one; default 10 s
	CommitTimeout  time.Duration // for handling and committing one event; default 30 s
	HistoryRecords int           // default 1000
	HistoryBytes   int           // of the records as JSON; default 8 MiB
	Healing        Healing

	// OnRecord is told of each event that ended, before its caller is, also of those that never ran. It must neither wait nor
	// change or keep what the record refers to.
	OnRecord func(Record)

	Verify   bool           // rebuild and compare everything after each event
	OnVerify func([]string) // told what verification found, when it found something
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.OnRecord == nil {
		c.OnRecord = func(Record) {}
	}
	orDefault(&c.QueueMax, 4096)
	orDefault(&c.UndoTimeout, 10*time.Second)
	orDefault(&c.CommitTimeout, 30*time.Second)
	orDefault(&c.HistoryRecords, 1000)
	orDefault(&c.HistoryBytes, 8<<20)
	orDefault(&c.Healing.Min, time.Second)
	orDefault(&c.Healing.Max, 5*time.Minute)
	return c
}

func orDefault[T int | time.Duration](v *T, otherwise T) {
	if *v <= 0 {
		*v = otherwise
	}
}
