// Package eventloop handles events one at a time: ordered handlers build one transaction, which is committed or undone.
//
// An event has thirteen steps: the first in its caller's goroutine (intake.go), the others in the goroutine of
// [Loop.Run] (flight.go). A handler only builds its [Txn], and registers there the undo of changes to its own memory.
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
//	        Full resync                       failed undo
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
		queue:    newQueue(cfg.limits.queue),
		history:  newHistory(cfg.limits.records, cfg.limits.historyBytes),
		status:   &status{},
		stopped:  make(chan struct{}),
	}
	l.intake = &intake{
		cfg:      cfg,
		registry: l.registry,
		queue:    l.queue,
		history:  l.history,
		status:   l.status,
		stopped:  l.stopped,
	}
	l.executor = newExecutor(l)
	l.registry.add(handler{
		name:     "external configuration",
		internal: true,
		takes:    func(ev Event) bool { _, ok := ev.(*configure); return ok },
		handle: func(_ context.Context, ev Event, txn *Txn) error {
			return l.executor.external.configure(ev.(*configure), txn)
		},
	})
	l.registry.add(proposals())
	return l
}

// Run handles events until ctx ends. Then it finishes the running event, refuses all others with ErrStopped and returns
// nil. It may be called once.
func (l *Loop) Run(ctx context.Context) error {
	if l.cfg.Committer == nil {
		return errors.New("run event loop: Config.Committer is missing")
	}
	if !l.started.CompareAndSwap(false, true) {
		return errors.New("run event loop: it can run only once")
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

// next waits for the next event. It returns nil without one.
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

// healingRequest returns the scheduled resync.
func (l *Loop) healingRequest() *request {
	l.executor.healing.next = time.Time{}
	r, err := l.intake.admit(context.Background(), Resynchronize{Kind: Full, Reason: "healing"})
	if err != nil {
		_, _ = l.intake.refuse(r, err)
		return nil
	}
	r.isHealing = true
	return l.queue.start(r)
}

// refuseAll refuses the queued events when the loop stops.
func (l *Loop) refuseAll() {
	for _, r := range l.queue.close() {
		_, _ = l.intake.refuse(r, ErrStopped)
	}
}

// finish saves the last records and ends all calls of Watch.
func (l *Loop) finish() {
	l.executor.healing.timer.Stop()
	l.executor.durable.flush(context.Background())
	l.queue.finish()
	close(l.stopped)
	l.history.close()
}

// Do queues ev, waits until it is handled, and returns its record. The event belongs to the loop until Do returns. If
// ctx ends first, a queued event is dropped, and a running one is finished: then the record is nil, and ev must not be
// read. The record is also nil if the queue is full.
func (l *Loop) Do(ctx context.Context, ev Event) (*Record, error) {
	r, err := l.intake.admit(ctx, ev)
	if err == nil {
		err = l.intake.enqueue(r)
	}
	if err != nil {
		return l.intake.refuse(r, err)
	}
	return l.intake.wait(ctx, r)
}

// Stats is a summary of the state of the loop.
type Stats struct {
	Queue       int
	Running     string   // the event, empty if none
	Degraded    []string // keys and handlers with a failed undo
	NextHealing time.Time
	Resynced    bool // the start-up resync has ended
	Handled     uint64
	Refused     uint64 // because the queue was full
	Drops       []Drop // invalid values of external configuration, by key
}

// Stats returns the state of the loop. It does not wait for a running event.
func (l *Loop) Stats() Stats {
	s := l.status.read()
	s.Queue, s.Running = l.queue.load()
	s.Resynced = !l.queue.isGated()
	return s
}

// status is the part of Stats that the goroutine of Run writes and others read.
type status struct {
	mu    sync.Mutex
	stats Stats
}

func (s *status) read() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Degraded = slices.Clone(stats.Degraded)
	stats.Drops = slices.Clone(stats.Drops)
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
	s.stats.Degraded = degraded
	s.stats.NextHealing = next
}

// Setting sets the value of a key; a nil Value deletes the key.
type Setting struct {
	Key   string
	Value any
}

// Change is the transaction of an event.
type Change struct {
	Event  uint64 // sequence number of the event's record
	Label  string // the name of the event
	Atomic bool   // a failure of Set undoes the change; else failed values stay desired and are retried
	Resync Resync
	Scope  Scope // of a downstream resync

	// Set holds the values that change. For Upstream and Full it is the whole desired state: other keys are deleted.
	// For Downstream it is empty.
	Set []Setting

	// External holds values of keys that only external configuration has: a source of its own, best effort, committed
	// after Set. As Set it is the whole state for Upstream and Full. A key that moves from External to Set is in both,
	// with a nil Value here: External deletes it first.
	External []Setting
}

func (c Change) empty() bool { return c.Resync == None && len(c.Set) == 0 && len(c.External) == 0 }

// Outcome is the result of a [Change].
type Outcome struct {
	Transactions []uint64 // the Committer's own numbers
	Operations   []string // the key of each
	Undone       bool     // an Atomic change failed and was undone, except for Stuck
	Stuck        []string // keys that could not be applied or undone
	Pending      []string // keys with unmet dependencies
	TakenDown    []string // of these, the keys that were applied before the change

	// Refused has the keys of External that were not accepted, with the reasons.
	Refused map[string]string
}

// Committer applies changes: the scheduler. It must return soon after ctx ends. If an Atomic change fails and is not
// Undone, the loop commits the inverse. An error of any other change means that some keys are not applied yet; they
// stay desired, or are Stuck.
//
// An optional method Drift(context.Context) ([]string, error) returns the keys that a downstream resync would repair.
// Verification expects none after each event.
type Committer interface {
	Commit(ctx context.Context, c Change) (Outcome, error)
}

// Saved is one durable value; a nil Value deletes it.
type Saved struct {
	Bucket, Key string
	Value       any
}

// RecordsBucket is the bucket of the [Record] values that the loop saves. Their keys are sequence numbers with twenty
// digits.
const RecordsBucket = "records"

// Saver makes values durable, in order and all or none: the state file. An error means that no value is saved. Save
// returns soon after ctx ends, also if the disk does not answer.
type Saver interface {
	Save(ctx context.Context, saved []Saved) error
}

// ExternalCodec converts values to JSON and back, to merge external configuration into them.
type ExternalCodec interface {
	Encode(key string, value any) ([]byte, error)
	Decode(key string, b []byte) (any, error)
	Validate(key string, value any) error
}

// Config configures a [Loop]. Only Committer is required.
type Config struct {
	Committer Committer
	Saver     Saver
	External  ExternalCodec
	Log       *slog.Logger
	Now       func() time.Time

	// OnRecord is called for each event that ended, also without having run, before its caller gets the reply, with the
	// context of Do, which may have ended. It must not wait, and must not change or keep the slices of the
	// record.
	OnRecord func(context.Context, Record)

	Verify   bool           // rebuild and compare everything after each event
	OnVerify func([]string) // called with the differences that verification found

	limits *limits // nil: usual
}

// limits bound the memory and the waits of a loop.
type limits struct {
	queue        int // events that wait
	records      int // of the history
	historyBytes int // of the records as JSON

	// The delay before a resync after a failure doubles with each failure.
	minHealing, maxHealing time.Duration
}

var usual = limits{
	queue:        4096,
	records:      1000,
	historyBytes: 8 << 20,
	minHealing:   time.Second,
	maxHealing:   5 * time.Minute,
}

// Deadlines of an event.
const (
	commitTimeout = 30 * time.Second // of its handlers and its commit
	undoTimeout   = 10 * time.Second // of its undo, and of its save
)

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.OnRecord == nil {
		c.OnRecord = func(context.Context, Record) {}
	}
	if c.limits == nil {
		c.limits = &usual
	}
	return c
}
