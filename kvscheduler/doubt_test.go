package kvscheduler_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

func TestAFailedUpdateDoesNotLeadToACycleOnTheMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		w.put(put("a/1", thing{Needs: "b/1"}), put("b/1", thing{}))
		w.m.Fail(func(_ kvscheduler.Verb, r ref) kvschedulertest.Fault {
			if r == key("a/1") {
				return kvschedulertest.Refuse
			}
			return kvschedulertest.Fine
		})
		turned := map[ref]thing{key("a/1"): {}, key("b/1"): {Needs: "a/1"}}
		rec, err := w.commit(kvscheduler.BestEffort, put("a/1", turned[key("a/1")]), put("b/1", turned[key("b/1")]))
		if err == nil || w.m.Live()[key("b/1")].Needs != "" {
			t.Errorf("%v: b/1 needs a/1, which still needs b/1: %q", err, ops(rec))
		}
		w.m.Fail(nil)
		w.converge(turned)
	})
}

func TestWhatAnUnknownObjectMayStandOnIsNotTakenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		release := w.m.Hold("a")
		_, err := w.commit(kvscheduler.BestEffort, put("c/1", thing{}), put("a/1", thing{Needs: "c/1"}))
		if err == nil {
			t.Error("a call without an answer is no error")
		}
		_, _ = w.commit(kvscheduler.BestEffort, del("c/1"), del("a/1"))
		if !slices.Contains(w.m.Names("c"), "1") {
			t.Error("c/1 was deleted while a/1 may be created")
		}
		release()
		w.converge(map[ref]thing{})
	})
}

func TestWhatAnOperationOfUnknownOutcomeLeftUnderAnotherNameIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		w.s.Ready("test")
		failed := false
		w.m.Fail(func(verb kvscheduler.Verb, r ref) kvschedulertest.Fault {
			if verb != kvscheduler.Create || r != key("b/1") || failed {
				return kvschedulertest.Fine
			}
			failed = true
			return kvschedulertest.LoseCall
		})
		w.m.Tamper(key("b/untagged"), &thing{})
		_, err := w.commit(kvscheduler.Atomic, put("b/1", thing{}))
		synctest.Wait()
		if there, _ := w.m.Has(key("b/untagged")); there {
			t.Errorf("the object is still there after %v", err)
		}
	})
}

// An ADD whose last reply is lost would otherwise be undone although all of it is there.
func TestAnOperationThatWasDoneSucceedsWithoutItsReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		w.m.Fail(func(kvscheduler.Verb, ref) kvschedulertest.Fault { return kvschedulertest.LoseReply })
		rec, err := w.commit(kvscheduler.Atomic, put("a/1", thing{}), put("c/1", thing{Needs: "a/1"}))
		if want := []string{"1 create a/1", "2 create c/1"}; err != nil || !slices.Equal(ops(rec), want) {
			t.Errorf("%v, operations %q, expected %q", err, ops(rec), want)
		}
		w.m.Fail(nil)
		w.converge(map[ref]thing{key("a/1"): {}, key("c/1"): {Needs: "a/1"}})
	})
}

// unreadable is a backend that cannot read objects back while it is broken.
type unreadable struct {
	kvscheduler.Backend[thing, int]

	broken *atomic.Bool
}

func (u unreadable) Dump(ctx context.Context, v kvscheduler.View) iter.Seq2[kvscheduler.Actual[thing, int], error] {
	if !u.broken.Load() {
		return u.Backend.Dump(ctx, v)
	}
	return func(yield func(kvscheduler.Actual[thing, int], error) bool) {
		yield(kvscheduler.Actual[thing, int]{}, errors.New("no reply, on purpose"))
	}
}

func TestAnObjectThatCannotBeReadBackIsTriedUntilItCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := kvschedulertest.New()
		broken := &atomic.Bool{}
		s := kvscheduler.New(kvscheduler.Limited(kvscheduler.Limits{NoJitter: true}))
		d := m.Descriptor("a", "one")
		d.Backend = unreadable{d.Backend, broken}
		kind, err := kvschedulertest.Register(s, d)
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		broken.Store(true)
		m.Fail(func(kvscheduler.Verb, ref) kvschedulertest.Fault { return kvschedulertest.LoseCall })
		if _, err := s.Commit(ctx, kvscheduler.Txn{Set: []kvscheduler.Object{kind.Put("1", thing{})}}); err == nil {
			t.Error("an operation of unknown outcome is no error")
		}
		<-time.After(10 * time.Minute) // several retries
		m.Fail(nil)
		broken.Store(false)
		<-time.After(10 * time.Minute)
		if there, _ := m.Has(key("a/1")); !there {
			t.Error("it is not tried again")
		}
		cancel()
		must(t, <-ended)
	})
}
