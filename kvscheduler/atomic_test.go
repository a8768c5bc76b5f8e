package kvscheduler_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

// onlyFirst lets the first fault through and then none, so that the way back is not disturbed.
func onlyFirst(
	f func(kvscheduler.Verb, ref) kvschedulertest.Fault,
) (func(kvscheduler.Verb, ref) kvschedulertest.Fault, *atomic.Int32) {
	var shown atomic.Int32
	return func(verb kvscheduler.Verb, r ref) kvschedulertest.Fault {
		fault := f(verb, r)
		if fault != kvschedulertest.Fine && !shown.CompareAndSwap(0, 1) {
			return kvschedulertest.Fine
		}
		return fault
	}, &shown
}

func testAtomic(t *testing.T, faulty func(seed uint64) func(kvscheduler.Verb, ref) kvschedulertest.Fault) {
	check(t, func(rt *rapid.T) {
		w := start(rt, kvschedulertest.New(), nil)
		defer w.end()
		w.unread = true
		order := firstOrder()
		for range rapid.IntRange(1, 5).Draw(rt, "txns") {
			set, after := w.change(rt, order)
			withBuckets(rt, set, after, w.unread)
			before := w.m.Live()
			w.m.Fail(faulty(rapid.Uint64().Draw(rt, "seed")))
			w.m.Calls()
			rec, err := w.commit(kvscheduler.Atomic, set...)
			w.m.Fail(nil)
			w.noWrong()
			switch {
			case errors.Is(err, kvscheduler.ErrInvalid):
				if calls := w.m.Calls(); len(calls) > 0 {
					rt.Fatalf("an invalid transaction made %v", calls)
				}
			case errors.Is(err, kvscheduler.ErrIncomplete):
				if rec.Undone {
					rt.Fatal("incomplete and undone at once")
				}
			case err != nil && !rec.Undone:
				rt.Fatalf("neither undone nor incomplete: %v", err)
			case err != nil:
				if d := diff(w.m.Live(), before); d != "" {
					w.history()
					rt.Fatalf("after %v:\n%s", err, d)
				}
			default:
				w.desired = after
			}
			w.converged()
		}
	})
}

func TestAnAtomicTransactionReturnsTheMachineAfterARefusal(t *testing.T) {
	testAtomic(t, func(seed uint64) func(kvscheduler.Verb, ref) kvschedulertest.Fault {
		f, _ := onlyFirst(faults(seed, 20, kvschedulertest.Refuse))
		return f
	})
}

func TestAnAtomicTransactionReturnsTheMachineAfterALostReply(t *testing.T) {
	testAtomic(t, func(seed uint64) func(kvscheduler.Verb, ref) kvschedulertest.Fault {
		f, _ := onlyFirst(faults(seed, 20, kvschedulertest.LoseReply, kvschedulertest.LoseCall))
		return f
	})
}

func TestAnAtomicTransactionIsUndoneOrNamesWhatIsNot(t *testing.T) {
	testAtomic(t, func(seed uint64) func(kvscheduler.Verb, ref) kvschedulertest.Fault {
		return faults(seed, 30, kvschedulertest.Refuse, kvschedulertest.LoseReply, kvschedulertest.LoseCall)
	})
}

func TestAnAtomicTransactionWithAnInvalidValueOrACycleMakesNoCall(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	w.put(put("a/1", thing{Needs: "b/1"}))
	for name, tc := range map[string]struct {
		set  []kvscheduler.Object
		want error
		text string
	}{
		"invalid value": {
			[]kvscheduler.Object{put("c/1", thing{}), put("c/2", thing{Bad: true})}, kvscheduler.ErrInvalid, "c/2",
		},
		"cycle": {
			[]kvscheduler.Object{put("b/1", thing{Needs: "c/1"}), put("c/1", thing{Needs: "a/1"})},
			kvscheduler.ErrCycle, "a/1 -> b/1 -> c/1 -> a/1",
		},
		"self":         {[]kvscheduler.Object{put("b/1", thing{Needs: "b/1"})}, kvscheduler.ErrCycle, "b/1 -> b/1"},
		"unknown kind": {[]kvscheduler.Object{put("x/1", thing{})}, kvscheduler.ErrUnknownKind, "x/1"},
		"twice":        {[]kvscheduler.Object{put("b/1", thing{}), del("b/1")}, kvscheduler.ErrConflict, "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			rev := w.s.View().Rev()
			rec, err := w.commit(kvscheduler.Atomic, tc.set...)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("got %v, want %v with %q", err, tc.want, tc.text)
			}
			if calls := w.m.Calls(); len(calls) > 0 || !rec.Undone || rec.Rollback || w.s.View().Rev() != rev {
				t.Errorf("calls %v, undone %v, rollback %v, revision %d of %d", calls, rec.Undone, rec.Rollback,
					w.s.View().Rev(), rev)
			}
		})
	}
}

func TestAnAtomicTransactionReturnsADependentOfAnotherSourceToo(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	ctx := context.Background()
	must2(w.s.Commit(ctx, kvscheduler.Txn{
		Source: "other",
		Set:    []kvscheduler.Object{put("c/1", thing{Needs: "a/1"})},
	}))(t)
	w.m.Fail(func(_ kvscheduler.Verb, r ref) kvschedulertest.Fault {
		if r == key("c/1") {
			return kvschedulertest.Refuse
		}
		return kvschedulertest.Fine
	})
	rec, err := w.commit(kvscheduler.Atomic, put("a/1", thing{}))
	if err == nil || !rec.Undone || !rec.Rollback {
		t.Errorf("a failing dependent: %v, undone %v, rollback %v", err, rec.Undone, rec.Rollback)
	}
	if live := w.m.Live(); len(live) > 0 {
		t.Errorf("left behind: %v", live)
	}
	st, _ := w.s.View().Status(key("c/1"))
	if st.Phase != kvscheduler.Pending {
		t.Errorf("the dependent is %v, want Pending", st.Phase)
	}
}

func TestNoPendingRefusesWhatWouldHaveToWait(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	w.put(put("b/1", thing{}))
	before := w.m.Live()
	w.m.Calls()
	_, err := w.s.Commit(context.Background(), kvscheduler.Txn{
		Source:    "test",
		Mode:      kvscheduler.Atomic,
		NoPending: true,
		Set:       []kvscheduler.Object{put("b/1", thing{Version: 2}), put("a/1", thing{Needs: "b/1 c/9"})},
	})
	if !errors.Is(err, kvscheduler.ErrPending) || !strings.Contains(err.Error(), "a/1 waits for c/9") {
		t.Errorf("got %v", err)
	}
	if calls := w.m.Calls(); len(calls) > 0 || !maps.Equal(before, w.m.Live()) {
		t.Errorf("calls %v", calls)
	}
}

// The way back touches only what was changed on the way there.
func TestAnObjectThatCouldNotBeDeletedIsNotRecreatedByTheUndo(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	w.put(put("a/1", thing{}))
	w.m.Calls()
	refuse, _ := onlyFirst(func(kvscheduler.Verb, ref) kvschedulertest.Fault { return kvschedulertest.Refuse })
	w.m.Fail(refuse)
	rec, err := w.commit(kvscheduler.Atomic, put("a/1", thing{Type: 1}))
	if err == nil || !rec.Undone {
		t.Errorf("%v, undone %t", err, rec.Undone)
	}
	if calls := w.m.Calls(); len(calls) != 1 {
		t.Errorf("calls %v, want the refused delete only", calls)
	}
}

func TestAnAtomicTransactionIsRefusedWhileAnEarlierOutcomeIsNotKnown(t *testing.T) {
	for name, before := range map[string][]kvscheduler.Object{
		"of a create":  nil,
		"of an update": {put("a/1", thing{Version: 1})},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, kvschedulertest.New(), nil)
				defer w.end()
				w.put(before...)
				release := w.m.Hold("a")
				if _, err := w.commit(kvscheduler.BestEffort, put("a/1", thing{Version: 2})); err == nil {
					t.Error("a call without an answer is no error")
				}
				rec, err := w.commit(kvscheduler.Atomic, put("a/1", thing{Version: 3}))
				if err == nil ||
					!strings.Contains(err.Error(), "a/1: the outcome of an earlier operation is not known yet") {
					t.Errorf("got %v, operations %q", err, ops(rec))
				}
				release()
				w.converge(map[ref]thing{key("a/1"): {Version: 2}})
			})
		})
	}
}
