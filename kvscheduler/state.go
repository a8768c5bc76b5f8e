package kvscheduler

import (
	"context"
	"time"
)

// state is what Run's goroutine owns. No other goroutine touches it.
type state struct {
	*Scheduler
	life    context.Context // ends with Run
	g       *graph
	rev     uint64 // of desired values
	clock   uint64 // counts changes of nodes
	seq     uint64
	owned   map[string]map[int32]struct{} // source -> the objects it asked for
	retries *retries
	skipped map[int32]struct{} // objects with an operation that was left out: tried with the next plan
	settled map[Ref]goneAt     // observed "gone", held back
	noted   []int32            // objects whose applied value changed, for the journal
	ready   map[string]bool
	adopted []int32 // objects whose applied value was taken from a backend
	lost    []Kind  // to be read again once the present such resync is over
	losing  bool
}

func newState(s *Scheduler) *state {
	st := &state{Scheduler: s, g: newGraph(s.kinds), owned: make(map[string]map[int32]struct{}),
		skipped: make(map[int32]struct{}), settled: make(map[Ref]goneAt), ready: make(map[string]bool)}
	st.retries = &retries{state: st}
	return st
}

func (s *state) touch(n *node) {
	s.clock++
	n.touched = s.clock
}

func (s *state) now() time.Time { return s.cfg.Now() }

// applied notes that an operation did what it should.
func (s *state) applied(id int32, verb Verb, meta any) {
	n := s.g.nodes[id]
	n.unknown, n.stale, n.unproven, n.drifted, n.skipped, n.last = false, false, false, false, false, nil
	s.touch(n)
	delete(s.skipped, id)
	s.clearError(id)
	if verb == Delete {
		n.have, n.meta, n.haveRev, n.again = nil, nil, 0, false
		s.g.setEdges(id, applied, nil)
		n.anyDeps[applied] = nil
		if n.orphan {
			n.orphan = false
			s.g.member(id)
		}
	} else {
		n.have, n.meta, n.haveRev = n.want, meta, n.wantRev
		s.copyEdges(id)
	}
	s.note(id)
}

// copyEdges makes the edges of the desired value those of the applied one; of candidates, those that serve now.
func (s *state) copyEdges(id int32) {
	n := s.g.nodes[id]
	s.g.edges = s.g.edges[:0]
	for _, e := range n.deps[wanted] {
		if !e.any || s.g.serves(n, e) {
			s.g.edges = append(s.g.edges, e)
		}
	}
	s.g.setEdges(id, applied, s.g.edges)
	n.anyDeps[applied] = n.anyDeps[wanted]
}

// uncertain notes that an operation may or may not have been done: the object may stand on both sets.
func (s *state) uncertain(id int32) {
	n := s.g.nodes[id]
	n.unknown = true
	s.touch(n)
	s.g.edges = append(s.g.edges[:0], n.deps[applied]...)
	for _, e := range n.deps[wanted] {
		s.g.edges = append(s.g.edges, edge{to: e.to, dep: inDoubt, mode: e.mode})
	}
	s.g.setEdges(id, applied, s.g.edges)
}

// inDoubt marks an applied edge that is there only until the object was read back.
const inDoubt = -2

// certain takes back what uncertain added.
func (s *state) certain(id int32) {
	s.g.edges = s.g.edges[:0]
	for _, e := range s.g.nodes[id].deps[applied] {
		if e.dep != inDoubt {
			s.g.edges = append(s.g.edges, e)
		}
	}
	s.g.setEdges(id, applied, s.g.edges)
}

func (s *state) clearError(id int32) {
	n := s.g.nodes[id]
	n.err, n.permanent, n.attempt, n.retryAt = nil, false, 0, time.Time{}
	s.retries.fix(id)
}

// inSync tells whether the applied value is the desired one.
func (n *node) inSync() bool {
	return n.want != nil && n.have != nil && n.invalid == nil && !n.unknown && !n.stale && !n.again && !n.foreign &&
		n.k.equal(n.want, n.have)
}
