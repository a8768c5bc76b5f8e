package kvscheduler_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

// c/old is to go, which was refused and is tried again later: until then it stands, so that what needs it could be
// made. But a/1, which it needs itself, is to go now, and takes it along.
func TestNothingIsMadeOnWhatGoesWithAnother(t *testing.T) {
	prepare := func(t *testing.T) *world {
		m := kvschedulertest.New()
		w := start(t, m, nil)
		w.put(put("a/1", thing{}), put("c/old", thing{Needs: "a/1"}))
		m.Fail(func(kvscheduler.Verb, kvscheduler.Ref) kvschedulertest.Fault { return kvschedulertest.Refuse })
		if _, err := w.commit(kvscheduler.BestEffort, del("c/old")); err == nil {
			t.Fatal("the deletion was not refused")
		}
		m.Fail(nil)
		return w
	}
	set := []kvscheduler.Object{put("a/1", thing{Needs: "b/none c/new"}), put("c/new", thing{Needs: "c/old"})}
	t.Run("it waits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := prepare(t)
			defer w.end()
			rec := w.put(set...)
			if got := strings.Join(ops(rec), ", "); got != "0 delete c/old, 1 delete a/1" {
				t.Errorf("done: %s", got)
			}
			if st, _ := w.s.View().Status(key("c/new")); st.Phase != kvscheduler.Pending {
				t.Errorf("c/new is %v", st.Phase)
			}
			w.noWrong()
		})
	})
	t.Run("it may not wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := prepare(t)
			defer w.end()
			_, err := w.s.Commit(context.Background(), kvscheduler.Txn{
				Source:    "test",
				Mode:      kvscheduler.Atomic,
				NoPending: true,
				Set: []kvscheduler.Object{
					put("a/1", thing{Type: 1, Needs: "c/new"}), put("c/new", thing{Needs: "c/old"}),
				},
			})
			if !errors.Is(err, kvscheduler.ErrPending) {
				t.Errorf("c/new is made: %v", err)
			}
			w.noWrong()
		})
	})
}
