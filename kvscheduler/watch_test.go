package kvscheduler_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

func TestWatchYieldsOnlyObjectsOfItsKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		w.put(put("a/1", thing{}), put("c/1", thing{}))
		var seen []string
		ctx, cancel := context.WithCancel(t.Context())
		var watch sync.WaitGroup
		watch.Go(func() {
			for r, st := range w.s.Watch(ctx, "c") {
				seen = append(seen, r.String()+" "+st.Phase.String())
			}
		})
		synctest.Wait()
		w.put(put("b/1", thing{}))
		synctest.Wait()
		w.put(del("c/1"), del("a/1"))
		synctest.Wait()
		cancel()
		watch.Wait()
		if want := []string{"c/1 InSync", "c/1 Absent"}; !slices.Equal(seen, want) {
			t.Errorf("yielded %q, want %q", seen, want)
		}
	})
}

func TestWatchEndsWithTheScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		var watch sync.WaitGroup
		watch.Go(func() {
			for range w.s.Watch(context.Background()) {
				t.Error("there is no object")
			}
		})
		synctest.Wait()
		w.end()
		watch.Wait()
	})
}

func TestWaitNamesTheObjectThatIsNotReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		w.put(put("a/1", thing{}), put("a/2", thing{Needs: "c/none"}))
		refs := []ref{key("a/1"), key("a/2")}
		must(t, kvschedulertest.Wait(t.Context(), w.s, refs, kvscheduler.Pending, kvscheduler.InSync))
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("the pod is gone")
		cancel(gone)
		if err := kvschedulertest.Wait(ctx, w.s, refs); !errors.Is(err, gone) ||
			!strings.Contains(err.Error(), "a/2, which is Pending") {
			t.Errorf("wait: %v", err)
		}
		w.end()
		if err := kvschedulertest.Wait(t.Context(), w.s, refs); !errors.Is(err, kvscheduler.ErrStopped) ||
			!strings.Contains(err.Error(), "a/2") {
			t.Errorf("wait after the end: %v", err)
		}
	})
}
