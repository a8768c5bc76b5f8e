package kvscheduler_test

import (
	"testing"
	"testing/synctest"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

func TestTheLastMemberOfABucketStaysUntilItsDependentIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		w.put(put("a/d", thing{Bucket: "a0"}), put("b/b", thing{Near: "a0"}))
		w.m.Fail(func(verb kvscheduler.Verb, r ref) kvschedulertest.Fault {
			if r == key("b/b") {
				return kvschedulertest.LoseCall
			}
			return kvschedulertest.Fine
		})
		_, err := w.commit(kvscheduler.BestEffort, del("a/d"), del("b/b"))
		if err == nil {
			t.Error("a lost call is no error")
		}
		w.noWrong()
		w.m.Fail(nil)
		w.converged()
	})
}

// b/1 stands on a/2 alone once a/1 has left for another bucket, though it stood on both.
func TestAMemberThatLeftABucketIsNobodysSupport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		w.put(put("a/1", thing{Bucket: "a0"}), put("b/1", thing{Near: "a0"}))
		w.put(put("a/2", thing{Bucket: "a0"}))
		w.m.Fail(func(_ kvscheduler.Verb, r ref) kvschedulertest.Fault {
			if r == key("b/1") {
				return kvschedulertest.Refuse
			}
			return kvschedulertest.Fine
		})
		for _, set := range [][]kvscheduler.Object{
			{del("b/1"), put("a/1", thing{Bucket: "a1"})}, {del("b/1"), del("a/2")},
		} {
			if _, err := w.commit(kvscheduler.BestEffort, set...); err == nil {
				t.Errorf("%v: the deletion was not refused", set)
			}
			w.noWrong()
		}
		w.m.Fail(nil)
		w.converge(map[ref]thing{key("a/1"): {Bucket: "a1"}})
	})
}
