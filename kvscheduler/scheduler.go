package kvscheduler

import (
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Scheduler keeps applied objects equal to desired ones. Make it with New, register the kinds, then start Run.
type Scheduler struct {
	cfg       Config
	kinds     map[Kind]*kind // fixed once Run has begun
	kindIndex map[Kind]int
	lanes     map[string]*lane
	running   atomic.Bool
	stopped   chan struct{}

	store *store
	log   *ring

	lastSeq uint64         // of the records of an earlier run
	calls   sync.WaitGroup // backend calls, including abandoned ones
	freed   chan struct{}  // an abandoned call has returned
	inbox
}

// New returns a scheduler without kinds.
func New(cfg Config) *Scheduler {
	cfg.defaults()
	return &Scheduler{
		cfg: cfg, kinds: make(map[Kind]*kind), kindIndex: make(map[Kind]int), lanes: make(map[string]*lane),
		stopped: make(chan struct{}), freed: make(chan struct{}, 1), store: newStore(),
		log:   &ring{maxRecords: cfg.LogRecords, maxBytes: cfg.LogBytes, onDone: cfg.OnDone},
		inbox: inbox{wake: make(chan struct{}, 1), observed: make(map[Ref]Object)},
	}
}

// View returns the last published snapshot.
func (s *Scheduler) View() View { return s.store.view() }

// Ready notes that the desired state of a source is complete. Pruning requires that all of Config.Sources are ready.
func (s *Scheduler) Ready(source string) {
	s.post(func(st *state) { st.ready[source] = true })
}

// Observe reports an object that was seen on the machine. It never blocks and never drops a report; the last report of an object wins.
func (s *Scheduler) Observe(o Object) {
	s.mu.Lock()
	s.observed[o.Ref] = o
	s.mu.Unlock()
	s.nudge()
}

// Lost notes that reports of these kinds may have been missed, or that their backend is back. The kinds are read again.
func (s *Scheduler) Lost(kinds ...Kind) {
	s.post(func(st *state) { st.resyncLost(kinds) })
}

// Config sets up a Scheduler. The zero value is usable.
type Config struct {
	Sources         []string      // all of them must be Ready before anything is pruned
	OpTimeout       time.Duration // of a backend call for one object; each further object adds a twentieth; 5 s
	DumpTimeout     time.Duration // of one dump; 30 s
	RollbackTimeout time.Duration // of the way back of an atomic transaction; 10 s
	BatchMax        int           // most items in one backend call; 512
	Retry           RetryPolicy
	LogRecords      int              // most records kept; 1000
	LogBytes        int              // most bytes kept, estimated; 16 MB
	Journal         Journal          // last applied values, for a restart; may be nil
	OnDone          func(*Record)    // called for each record in order, not on the state's goroutine; may be nil
	Logger          *slog.Logger     // default: discard
	Now             func() time.Time // default: time.Now
}

// RetryPolicy says when a failed object is tried again: Min·Factor^n, at most Max, give or take Jitter.
type RetryPolicy struct {
	Min, Max time.Duration // 100 ms, 1 min
	Factor   float64       // 2
	Jitter   float64       // 0.2; negative: none
	Burst    int           // retries started per second; 100
}

// Journal keeps last applied values over a restart. Append is called after each change, before the reply.
type Journal interface {
	Append([]JournalEntry) error
	Load() iter.Seq2[JournalEntry, error]
}

// JournalEntry is the last applied value of one object.
type JournalEntry struct {
	Ref  string
	Hash uint64
	V    []byte // nil: deleted
}

func (c *Config) defaults() {
	orDuration(&c.OpTimeout, 5*time.Second)
	orDuration(&c.DumpTimeout, 30*time.Second)
	orDuration(&c.RollbackTimeout, 10*time.Second)
	orDuration(&c.Retry.Min, 100*time.Millisecond)
	orDuration(&c.Retry.Max, time.Minute)
	orInt(&c.BatchMax, 512)
	orInt(&c.LogRecords, 1000)
	orInt(&c.LogBytes, 16<<20)
	orInt(&c.Retry.Burst, 100)
	if c.Retry.Factor <= 1 {
		c.Retry.Factor = 2
	}
	if c.Retry.Jitter == 0 {
		c.Retry.Jitter = 0.2
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
}

func orDuration(d *time.Duration, def time.Duration) {
	if *d <= 0 {
		*d = def
	}
}

func orInt(n *int, def int) {
	if *n <= 0 {
		*n = def
	}
}
