package kvscheduler_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

func seen(name, v string) kvscheduler.Object {
	return kvscheduler.KindNamed[string]("seen").Put(name, v)
}

func TestEventsDuringABatchAreCoalescedAndNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), func(c *kvscheduler.Config) { c.OpTimeout = time.Minute })
		defer w.end()
		release := w.m.Hold("a")
		var wg sync.WaitGroup
		wg.Go(func() { w.put(put("a/1", thing{})) })
		<-w.m.Entered()
		for i := range 100_000 {
			w.s.Observe(seen(fmt.Sprint(i%1000), fmt.Sprint(i)))
		}
		release()
		wg.Wait()
		synctest.Wait()
		events := 0
		for r := range w.s.Log(0) {
			if r.Origin == "event" {
				events++
			}
		}
		if events != 1 {
			t.Errorf("%d plans for the events of one batch", events)
		}
		for i := range 1000 {
			v, _, _ := w.s.View().Applied(ref{Kind: "seen", Name: fmt.Sprint(i)})
			if v != fmt.Sprint(99_000+i) {
				t.Fatalf("seen/%d is %v", i, v)
			}
		}
	})
}

func TestAnObservedObjectServesAsADependency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		w.put(put("a/1", thing{Needs: "seen/run/netns/x"}), put("b/1", thing{Follows: "seen/run/netns/x"}))
		if len(w.m.Live()) != 0 {
			t.Error("applied without what it needs")
		}
		w.m.Calls()
		refs := []ref{key("a/1"), key("b/1")}
		for _, o := range w.m.Live() {
			t.Errorf("there is %v", o)
		}
		w.s.Observe(seen("run/netns/x", "1"))
		must(t, w.s.Wait(t.Context(), refs))
		if st, _ := w.s.View().Status(key("seen/run/netns/x")); st.Phase != kvscheduler.Observed {
			t.Errorf("the observed object is %v", st.Phase)
		}
		w.m.Calls()
		w.s.Observe(seen("run/netns/x", "2"))
		synctest.Wait()
		if calls := w.m.Calls(); len(calls) != 2 || calls[0].Kind != "b" || calls[1].Kind != "b" {
			t.Errorf("a changed observed object: %v, want b recreated", calls)
		}
		w.s.Observe(kvscheduler.KindNamed[string]("seen").Del("run/netns/x"))
		synctest.Wait()
		if st, _ := w.s.View().Status(key("a/1")); st.Phase != kvscheduler.InSync {
			t.Errorf("gone is not held back: %v", st.Phase)
		}
		must(t, w.s.Wait(t.Context(), refs, kvscheduler.Pending))
	})
}

func TestAFlapThatEndsInTimeIsNotSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		w.s.Observe(seen("x", "1"))
		w.put(put("a/1", thing{Needs: "seen/x"}))
		must(t, w.s.Wait(t.Context(), []ref{key("a/1")}))
		w.m.Calls()
		w.s.Observe(kvscheduler.KindNamed[string]("seen").Del("x"))
		synctest.Wait()
		w.s.Observe(seen("x", "1"))
		<-time.After(5 * time.Second)
		if calls := w.m.Calls(); len(calls) > 0 {
			t.Errorf("a flap made %v", calls)
		}
	})
}

// rows: MEM-17
func TestTheDelayBetweenRetriesGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		var tries []time.Time
		w.m.Fail(func(kvscheduler.Verb, ref) kvschedulertest.Fault {
			tries = append(tries, time.Now())
			return kvschedulertest.Refuse
		})
		_, _ = w.commit(kvscheduler.BestEffort, put("a/1", thing{}))
		<-time.After(10 * time.Second)
		w.m.Fail(nil)
		for i := 1; i < len(tries); i++ {
			if got, want := tries[i].Sub(tries[i-1]), 100*time.Millisecond<<(i-1); got < want {
				t.Errorf("retry %d after %s, want %s", i, got, want)
			}
		}
		if len(tries) != 7 {
			t.Errorf("%d tries in ten seconds, want 7", len(tries))
		}
		w.put(put("a/1", thing{Version: 1}))
		if st, _ := w.s.View().Status(key("a/1")); st.Phase != kvscheduler.InSync || st.Attempt != 0 {
			t.Errorf("a new value is not tried at once: %+v", st)
		}
		w.m.Calls()
		<-time.After(2 * time.Minute)
		if calls := w.m.Calls(); len(calls) > 0 {
			t.Errorf("the old retry lives on: %v", calls)
		}
	})
}

func TestRetriesPerSecondAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), func(c *kvscheduler.Config) { c.Retry.Burst = 10 })
		defer w.end()
		w.m.Fail(func(kvscheduler.Verb, ref) kvschedulertest.Fault { return kvschedulertest.Refuse })
		var set []kvscheduler.Object
		for i := range 100 {
			set = append(set, put(fmt.Sprintf("a/%d", i), thing{}))
		}
		_, _ = w.commit(kvscheduler.BestEffort, set...)
		begin := time.Now()
		w.m.Fail(nil)
		w.quiet()
		if took := time.Since(begin); took < 9*time.Second || took > 12*time.Second {
			t.Errorf("100 retries at 10 a second took %s", took)
		}
	})
}

func TestAFailingKindDoesNotDelayOtherKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		w.m.Fail(func(_ kvscheduler.Verb, r ref) kvschedulertest.Fault {
			if r.Kind == "a" {
				return kvschedulertest.LoseCall
			}
			return kvschedulertest.Fine
		})
		begin := time.Now()
		_, err := w.commit(kvscheduler.BestEffort, put("a/1", thing{}), put("b/1", thing{}), put("b/2", thing{Needs: "a/1"}), put("c/1", thing{Needs: "b/1"}))
		if err == nil || time.Since(begin) > 0 {
			t.Errorf("err %v after %s", err, time.Since(begin))
		}
		if names := append(w.m.Names("b"), w.m.Names("c")...); !slices.Equal(names, []string{"1", "1"}) {
			t.Errorf("there is %q", names)
		}
	})
}

func TestBackendsThatAreDownCountNoAttemptAndComeBackWithLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		s := kvscheduler.New(kvscheduler.Config{})
		k, err := kvscheduler.Register(s, kvscheduler.Descriptor[int, int]{
			Name: "x", Lane: "x", Equal: func(a, b int) bool { return a == b }, Backend: downBackend{&down},
		})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = s.Run(ctx) })
		defer wg.Wait()
		defer cancel()
		down.Store(true)
		_, err = s.Commit(ctx, kvscheduler.Txn{Set: []kvscheduler.Object{k.Put("1", 1)}})
		st, _ := s.View().Status(k.Ref("1"))
		if err == nil || st.Phase != kvscheduler.Failed || st.Attempt != 0 {
			t.Errorf("err %v, status %+v", err, st)
		}
		down.Store(false)
		s.Lost("x")
		synctest.Wait()
		if st, _ := s.View().Status(k.Ref("1")); st.Phase != kvscheduler.InSync {
			t.Errorf("after it came back: %+v", st)
		}
	})
}
