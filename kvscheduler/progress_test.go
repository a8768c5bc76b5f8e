package kvscheduler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

func TestReadersDoNotWaitForAHangingCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		w.put(put("b/1", thing{}))
		release := w.m.Hold("a")
		defer release()
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = w.commit(kvscheduler.BestEffort, put("a/1", thing{}), put("c/1", thing{Needs: "a/1"})) })
		<-w.m.Entered()
		begin := time.Now()
		if st, _ := w.s.View().Status(key("b/1")); st.Phase != kvscheduler.InSync {
			t.Errorf("b/1 is %v", st.Phase)
		}
		if n := len(slices.Collect(w.s.Log(0))); n != 1 {
			t.Errorf("%d records", n)
		}
		w.s.Why(key("c/1"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		rec, err := w.s.Commit(ctx, kvscheduler.Txn{Source: "test", Set: []kvscheduler.Object{put("b/2", thing{})}})
		if rec != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a queued commit: %v, %v", rec, err)
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("took %s, want the deadline of a second", took)
		}
		release()
		wg.Wait()
		synctest.Wait()
		if slices.Contains(w.m.Names("b"), "2") {
			t.Error("a withdrawn transaction was executed")
		}
	})
}

func TestABestEffortCommitReturnsAtItsDeadlineAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		release := w.m.Hold("a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		_, err := w.s.Commit(ctx, kvscheduler.Txn{Source: "test", Set: []kvscheduler.Object{put("a/1", thing{})}})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
		release()
		must(t, kvschedulertest.Wait(t.Context(), w.s, []ref{key("a/1")}))
		w.noWrong()
	})
}

func TestACallForManyObjectsMayTakeLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		var set []kvscheduler.Object
		for i := range 110 {
			set = append(set, put(fmt.Sprintf("a/%d", i), thing{}))
		}
		release := w.m.Hold("a")
		time.AfterFunc(20*time.Second, release) // a slow VPP needs as long for 110 interfaces
		if rec := w.put(set...); len(rec.Ops) != len(set) || rec.Err != "" {
			t.Errorf("%d operations, error %q", len(rec.Ops), rec.Err)
		}
		if calls := w.m.Calls(); len(calls) != 1 {
			t.Errorf("it took %d calls", len(calls))
		}
	})
}

func TestACallThatIgnoresItsDeadlineClosesOnlyItsLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		release := w.m.Hold("a")
		begin := time.Now()
		_, err := w.commit(kvscheduler.BestEffort, put("a/1", thing{}))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > 6*time.Second {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
		w.put(put("c/1", thing{}))
		_, err = w.commit(kvscheduler.BestEffort, put("b/1", thing{}))
		if err == nil || len(w.m.Names("b")) > 0 {
			t.Errorf("the closed lane was used: %v", err)
		}
		release()
		w.converge(map[ref]thing{key("a/1"): {}, key("b/1"): {}, key("c/1"): {}})
	})
}

func (w *world) converge(want map[ref]thing) {
	w.t.Helper()
	w.desired = want
	synctest.Wait()
	w.converged()
}

func TestAnAtomicCommitWhoseCallerLeavesIsRolledBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		ctx, cancel := context.WithCancel(t.Context())
		release := w.m.Hold("a")
		var rec *kvscheduler.Record
		var err error
		var wg sync.WaitGroup
		wg.Go(func() {
			rec, err = w.s.Commit(ctx, kvscheduler.Txn{Source: "test", Mode: kvscheduler.Atomic,
				Set: []kvscheduler.Object{
					put("c/1", thing{}), put("a/1", thing{Needs: "c/1"}), put("b/1", thing{Needs: "a/1"}),
				}})
		})
		<-w.m.Entered()
		cancel()
		synctest.Wait()
		release()
		wg.Wait()
		if err == nil || !rec.Undone {
			t.Errorf("%v, %+v", err, rec)
		}
		if live := w.m.Live(); len(live) > 0 {
			t.Errorf("left behind: %v", live)
		}
		w.noWrong()
	})
}

func TestARollbackThatCannotReachALaneIsIncomplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		release := w.m.Hold("a")
		rec, err := w.commit(kvscheduler.Atomic, put("c/1", thing{}), put("a/1", thing{Needs: "c/1"}))
		if !errors.Is(err, kvscheduler.ErrIncomplete) || !strings.Contains(err.Error(), "a/1") || rec.Undone {
			t.Errorf("%v, undone %v", err, rec.Undone)
		}
		release()
		w.converge(map[ref]thing{})
	})
}

func TestLanesOfALevelRunTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		releaseA := w.m.Hold("a")
		releaseC := w.m.Hold("c")
		var wg sync.WaitGroup
		wg.Go(func() { w.put(put("a/1", thing{}), put("c/1", thing{})) })
		got := []kvscheduler.Kind{<-w.m.Entered(), <-w.m.Entered()}
		slices.Sort(got)
		if !slices.Equal(got, []kvscheduler.Kind{"a", "c"}) {
			t.Errorf("entered %q", got)
		}
		releaseA()
		releaseC()
		wg.Wait()
	})
}
