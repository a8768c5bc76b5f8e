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
		w := start(t, kvschedulertest.New(), func(c *kvscheduler.Config) {
			c.Limit(kvscheduler.Limits{RetryBurst: 10})
		})
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
		_, err := w.commit(kvscheduler.BestEffort, put("a/1", thing{}), put("b/1", thing{}),
			put("b/2", thing{Needs: "a/1"}), put("c/1", thing{Needs: "b/1"}))
		if err == nil || time.Since(begin) > 0 {
			t.Errorf("err %v after %s", err, time.Since(begin))
		}
		if names := append(w.m.Names("b"), w.m.Names("c")...); !slices.Equal(names, []string{"1", "1"}) {
			t.Errorf("there is %q", names)
		}
	})
}

func TestBackendsThatAreDownCountNoAttemptAndComeBackWithAResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		s := kvscheduler.New(kvscheduler.Config{})
		k, err := kvschedulertest.Register(s, kvscheduler.Descriptor[int, int]{
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
		_, err = s.Resync(ctx, kvscheduler.ResyncOpt{Reopen: func() bool { return true }})
		must(t, err)
		synctest.Wait()
		if st, _ := s.View().Status(k.Ref("1")); st.Phase != kvscheduler.InSync {
			t.Errorf("after it came back: %+v", st)
		}
	})
}
