package kvschedulertest

import (
	"context"
	"fmt"
	"slices"

	"github.com/weftnet/weft/kvscheduler"
)

// KindOf is a kind with the Go type of its values, so that a test cannot mix them up.
type KindOf[V any] kvscheduler.Kind

// Register adds a kind to a scheduler and returns it.
func Register[V, M any](s *kvscheduler.Scheduler, d kvscheduler.Descriptor[V, M]) (KindOf[V], error) {
	return KindOf[V](d.Name), kvscheduler.Register(s, d)
}

// Ref names the object of this kind.
func (k KindOf[V]) Ref(name string) kvscheduler.Ref {
	return kvscheduler.Ref{Kind: kvscheduler.Kind(k), Name: name}
}

// Put returns an object that is desired with this value.
func (k KindOf[V]) Put(name string, v V) kvscheduler.Object {
	return kvscheduler.Object{Ref: k.Ref(name), Value: v}
}

// Del returns an object that is not desired.
func (k KindOf[V]) Del(name string) kvscheduler.Object { return kvscheduler.Object{Ref: k.Ref(name)} }

// Wait returns when every ref is in one of the phases (none given: InSync or Observed).
func Wait(
	ctx context.Context, s *kvscheduler.Scheduler, refs []kvscheduler.Ref, want ...kvscheduler.Phase,
) error {
	if len(want) == 0 {
		want = []kvscheduler.Phase{kvscheduler.InSync, kvscheduler.Observed}
	}
	// waiting returns the first ref that is in no phase that is wanted.
	waiting := func() (kvscheduler.Ref, kvscheduler.Phase, bool) {
		view := s.View()
		for _, r := range refs {
			if st, _ := view.Status(r); !slices.Contains(want, st.Phase) {
				return r, st.Phase, true
			}
		}
		return kvscheduler.Ref{}, 0, false
	}
	if _, _, waits := waiting(); !waits {
		return nil
	}
	for range s.Watch(ctx) {
		if _, _, waits := waiting(); !waits {
			return nil
		}
	}
	cause := context.Cause(ctx)
	if cause == nil {
		cause = kvscheduler.ErrStopped // else the watch had not ended
	}
	ref, phase, _ := waiting()
	return fmt.Errorf("wait for %s, which is %s: %w", ref, phase, cause)
}
