package kvscheduler

import (
	"sync"
	"sync/atomic"
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
	calls   sync.WaitGroup // backend calls, also those that were given up
	freed   chan struct{}  // a call that was given up has returned
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

// Ready says that the desired state of a source is complete: pruning needs all of Config.Sources ready.
func (s *Scheduler) Ready(source string) {
	s.post(func(st *state) { st.ready[source] = true })
}

// Observe reports what was seen on the machine. It never blocks and never drops; the last report of a ref wins.
func (s *Scheduler) Observe(o Object) {
	s.mu.Lock()
	s.observed[o.Ref] = o
	s.mu.Unlock()
	s.nudge()
}

// Lost says that reports of these kinds may have been missed, or that their backend is back: they are read again.
func (s *Scheduler) Lost(kinds ...Kind) {
	s.post(func(st *state) { st.resyncLost(kinds) })
}
