package kvscheduler

import (
	"context"
	"iter"
	"slices"
	"sync"
)

// watcher collects the objects that changed since its reader looked last.
type watcher struct {
	kinds  []Kind
	mu     sync.Mutex
	dirty  map[Ref]struct{}
	signal chan struct{}
}

func (w *watcher) note(changed []Ref) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range changed {
		if len(w.kinds) == 0 || slices.Contains(w.kinds, r.Kind) {
			w.dirty[r] = struct{}{}
		}
	}
	if len(w.dirty) > 0 {
		select {
		case w.signal <- struct{}{}:
		default:
		}
	}
}

func (w *watcher) take() map[Ref]struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	dirty := w.dirty
	w.dirty = make(map[Ref]struct{})
	return dirty
}

func (s *store) watch(kinds []Kind) *watcher {
	w := &watcher{kinds: kinds, dirty: make(map[Ref]struct{}), signal: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers[w] = struct{}{}
	v := s.current.Load()
	for k := range v.kinds {
		var all []Ref
		v.each(k, func(e *entry) bool { all = append(all, e.ref); return true })
		w.note(all)
	}
	return w
}

func (s *store) unwatch(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers, w)
}

// Watch yields each object of the kinds (none: all), then each that changed, until ctx or the scheduler ends. It is
// level-triggered: it may skip intermediate states of an object, never the last one. A removed object is Absent.
func (s *Scheduler) Watch(ctx context.Context, kinds ...Kind) iter.Seq2[Ref, Status] {
	return func(yield func(Ref, Status) bool) {
		w := s.store.watch(kinds)
		defer s.store.unwatch(w)
		for {
			select {
			case <-w.signal:
			case <-ctx.Done():
				return
			case <-s.stopped:
				return
			}
			dirty := w.take()
			v := s.store.view()
			for r := range dirty {
				st, _ := v.Status(r)
				if !yield(r, st) {
					return
				}
			}
		}
	}
}
