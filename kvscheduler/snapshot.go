package kvscheduler

import (
	"iter"
	"sync"
	"sync/atomic"
)

// entry is what readers see of one object. It is never modified.
type entry struct {
	ref              Ref
	want, have, meta any
	touched          uint64
	source           string
	foreign          bool
	status           Status
}

// snapshot is an immutable state of all objects. It implements View.
type snapshot struct {
	rev   uint64
	kinds map[Kind]int // shared, fixed once Run has begun
	roots []*trie
}

// Applied implements View.
func (v *snapshot) Applied(r Ref) (value, meta any, ok bool) {
	if e := v.entry(r); e != nil && e.have != nil {
		return e.have, e.meta, true
	}
	return nil, nil, false
}

// Desired implements View.
func (v *snapshot) Desired(r Ref) (any, bool) {
	if e := v.entry(r); e != nil && e.want != nil {
		return e.want, true
	}
	return nil, false
}

// Status implements View.
func (v *snapshot) Status(r Ref) (Status, bool) {
	if e := v.entry(r); e != nil {
		return e.status, true
	}
	return Status{}, false
}

// All implements View.
func (v *snapshot) All(k Kind) iter.Seq2[string, Status] {
	return func(yield func(string, Status) bool) {
		v.each(k, func(e *entry) bool { return yield(e.ref.Name, e.status) })
	}
}

// Rev implements View.
func (v *snapshot) Rev() uint64 { return v.rev }

func (v *snapshot) entry(r Ref) *entry {
	i, ok := v.kinds[r.Kind]
	if !ok || i >= len(v.roots) {
		return nil
	}
	return v.roots[i].find(r.Name)
}

func (v *snapshot) each(k Kind, yield func(*entry) bool) {
	if i, ok := v.kinds[k]; ok && i < len(v.roots) {
		v.roots[i].each(yield)
	}
}

// store publishes snapshots and tells who waits for them.
type store struct {
	current atomic.Pointer[snapshot]

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced when a snapshot is published
	watchers map[*watcher]struct{}
}

func newStore() *store {
	s := &store{changed: make(chan struct{}), watchers: make(map[*watcher]struct{})}
	s.current.Store(&snapshot{})
	return s
}

func (s *store) view() *snapshot { return s.current.Load() }

// next returns a channel that is closed when something is published after this call.
func (s *store) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *store) publish(v *snapshot, changed []Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current.Store(v)
	close(s.changed)
	s.changed = make(chan struct{})
	for w := range s.watchers {
		w.note(changed)
	}
}
