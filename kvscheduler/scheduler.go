package kvscheduler

import (
	"iter"
	"log/slog"
	"time"
)

// Scheduler keeps applied objects equal to desired ones. Make it with New, register the kinds, then start Run.
type Scheduler struct {
	registry
	cfg     Config
	stopped chan struct{}

	store *store
	log   *ring

	lastSeq uint64 // of the records of an earlier run
	calls   calls
	inbox
}

// New returns a scheduler without kinds.
func New(cfg Config) *Scheduler {
	cfg.defaults()
	s := &Scheduler{
		registry: registry{
			kinds:     make(map[Kind]*kind),
			kindIndex: make(map[Kind]int),
			lanes:     make(map[string]*lane),
		},
		cfg:     cfg,
		stopped: make(chan struct{}),
		store:   newStore(),
		log:     &ring{maxRecords: cfg.limits.records, maxBytes: cfg.limits.logBytes, onDone: cfg.OnDone},
		inbox:   inbox{wake: make(chan struct{}, 1)},
	}
	s.calls = calls{now: cfg.Now, log: cfg.Logger, freed: make(chan struct{}, 1), onReturn: s.laneFree}
	return s
}

// View returns the last published snapshot.
func (s *Scheduler) View() View { return s.store.view() }

// Ready notes that the desired state of a source is complete. Pruning requires that all of Config.Sources are ready.
func (s *Scheduler) Ready(source string) {
	s.post(func(st *state) { st.sources.ready[source] = true })
}

// Config sets up a Scheduler. The zero value is usable.
type Config struct {
	Sources []string         // all of them must be Ready before anything is pruned
	Journal Journal          // last applied values, for a restart; may be nil
	OnDone  func(*Record)    // called for each record in order, not on the state's goroutine; may be nil
	Logger  *slog.Logger     // default: discard
	Now     func() time.Time // default: time.Now

	limits *limits // nil: usual
}

// limits bound the memory and the calls of a scheduler.
type limits struct {
	batch    int // items of one backend call
	records  int // of the log
	logBytes int // of the log, estimated
	retry    retryPolicy
}

var usual = limits{
	batch:    512,
	records:  1000,
	logBytes: 16 << 20,
	retry: retryPolicy{
		min:    100 * time.Millisecond,
		max:    time.Minute,
		factor: 2,
		jitter: 0.2,
		burst:  100,
	},
}

// Deadlines of calls.
const (
	opTimeout       = 5 * time.Second  // of a backend call for one object; each further object adds a twentieth
	dumpTimeout     = 30 * time.Second // of one dump
	rollbackTimeout = 10 * time.Second // of the way back of an atomic transaction
)

// retryPolicy says when a failed object is tried again: min·factor^n, at most max, give or take jitter.
type retryPolicy struct {
	min, max time.Duration
	factor   float64
	jitter   float64 // share of the delay
	burst    int     // retries started per second
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
	if c.limits == nil {
		c.limits = &usual
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
}
