package pods

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftnet/weft/pod"
)

// recorder records the applied edits.
type recorder struct {
	mu        sync.Mutex
	permitted bool
	fails     int // the next calls
	applied   []string
}

func (r *recorder) isPermitted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.permitted
}

func (r *recorder) permit(yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.permitted = yes
}

func (r *recorder) apply(_ context.Context, id pod.ID, annotations map[string]string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.applied = append(r.applied, id.Name+" "+annotations[pod.AnnotationCustom])
	if r.fails > 0 {
		r.fails--
		return errors.New("no")
	}
	return nil
}

// take returns the edits since the last call.
func (r *recorder) take() (applied []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	applied = r.applied
	r.applied = nil
	return applied
}

func requesting(interfaces string) map[string]string {
	return map[string]string{pod.AnnotationCustom: interfaces}
}

// Edits are applied once, again after a failure, and later if they were not permitted, however short that was.
func TestEditsAreAppliedWhenTheyArePermitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{permitted: true}
		e := NewEdits(r.isPermitted, r.apply)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		a := pod.ID{Namespace: "lab", Name: "a", UID: "1"}
		want := func(when string, applied ...string) {
			t.Helper()
			<-time.After(10 * time.Second) // of the clock of the test
			if got := r.take(); !slices.Equal(got, applied) {
				t.Errorf("%s: applied are %q, want %q", when, got, applied)
			}
		}
		e.Show(a, requesting("t1"))
		want("the first time", "a t1")
		e.Show(a, map[string]string{pod.AnnotationCustom: "t1", "other": "x"})
		want("another annotation")
		e.Show(a, requesting("t2"))
		e.Show(a, requesting("t3"))
		want("two edits at once", "a t3")
		r.fails = 2
		e.Show(a, requesting("t4"))
		want("after failures", "a t4", "a t4", "a t4")
		r.permit(false)
		e.Show(a, requesting("t5"))
		want("without a permission")
		r.permit(true)
		want("with it again", "a t5")
		r.permit(false)
		e.Show(a, requesting("t6"))
		<-time.After(time.Second)
		r.permit(true) // before the next poll
		want("after a short time without it", "a t6")
		e.Compare(a)
		want("after an ADD", "a t6")
		e.Show(a, nil)
		e.Compare(a)
		want("of a pod that is gone")
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// An edit may wait for addresses, or for memory that a client holds: the edits of other pods do not wait for it.
func TestEditsThatWaitDelayNoOtherPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		applied := make(map[string]int)
		e := NewEdits(func() bool { return true }, func(ctx context.Context, id pod.ID, _ map[string]string) error {
			mu.Lock()
			applied[id.Name]++
			mu.Unlock()
			if id.Name == "other" {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
			e.Show(pod.ID{Namespace: "lab", Name: name}, requesting("t1"))
		}
		<-time.After(10 * time.Second) // of the clock of the test
		e.Show(pod.ID{Namespace: "lab", Name: "other"}, requesting("t1"))
		<-time.After(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if len(applied) != 8 || applied["other"] != 1 {
			t.Errorf("applied edits: %v", applied)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
