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
