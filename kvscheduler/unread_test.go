package kvscheduler_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

// Two values can be equal for the machine and differ in what they depend on and in their bucket. The descriptors of VRF
// memberships and bridge members have such a field: the dependency on the interface's ACLs. The properties of this
// package draw such changes, too (drawUnread).

func behind(needs string) thing {
	return thing{Unread: kvschedulertest.Unread{Behind: needs}}
}

func (w *world) phase(of string) kvscheduler.Phase {
	st, _ := w.s.View().Status(key(of))
	return st.Phase
}

func TestAnObjectStaysWhenItNoLongerDependsOnWhatIsDeleted(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	w.put(put("a/acl", thing{}), put("b/member", behind("a/acl")))
	rec := w.put(del("a/acl"), put("b/member", thing{}))
	if got, want := ops(rec), []string{"1 delete a/acl"}; !slices.Equal(got, want) {
		t.Errorf("the transaction did %q, want %q", got, want)
	}
	if got := w.phase("b/member"); got != kvscheduler.InSync {
		t.Errorf("the member is %v", got)
	}
	w.noWrong()
}

func TestAReplayAppliesADependencyThatCameLaterFirst(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	w.put(put("b/member", thing{}))
	rec := w.put(put("c/acl", thing{}), put("b/member", behind("c/acl")))
	if got, want := ops(rec), []string{"1 create c/acl"}; !slices.Equal(got, want) {
		t.Errorf("the transaction did %q, want %q", got, want)
	}
	w.m.Forget()
	rec, err := w.resync(kvscheduler.ResyncOpt{})
	must(t, err)
	if got, want := ops(rec), []string{"1 create c/acl", "2 create b/member"}; !slices.Equal(got, want) {
		t.Errorf("the replay did %q, want %q", got, want)
	}
	rec = w.put(del("c/acl"))
	if got, want := ops(rec), []string{"0 delete b/member", "1 delete c/acl"}; !slices.Equal(got, want) {
		t.Errorf("without the dependency: %q, want %q", got, want)
	}
}

func TestAnObjectIsDeletedBeforeADependencyThatCameLater(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	w.put(put("b/member", thing{}))
	w.put(put("c/acl", thing{}), put("b/member", behind("c/acl")))
	rec := w.put(del("c/acl"))
	if got, want := ops(rec), []string{"0 delete b/member", "1 delete c/acl"}; !slices.Equal(got, want) {
		t.Errorf("without the dependency: %q, want %q", got, want)
	}
	w.noWrong()
}

func TestAnObjectIsDeletedIfANewDependencyOfItFails(t *testing.T) {
	w := start(t, kvschedulertest.New(), func(c *kvscheduler.Config) { c.Limit(kvscheduler.Limits{RetryMin: 1 << 40}) })
	defer w.end()
	w.put(put("b/member", thing{}))
	w.m.Fail(func(_ kvscheduler.Verb, r ref) kvschedulertest.Fault {
		if r == key("a/acl") {
			return kvschedulertest.Refuse
		}
		return kvschedulertest.Fine
	})
	rec, err := w.commit(kvscheduler.BestEffort, put("a/acl", thing{}), put("b/member", behind("a/acl")))
	if err == nil {
		t.Error("the failure is not reported")
	}
	if live := w.m.Live(); len(live) > 0 {
		t.Errorf("there is %v without its dependency", live)
	}
	if got := rec.TakenDown(); !slices.Equal(got, []string{"b/member"}) {
		t.Errorf("the record says that %q were taken down", got)
	}
	deletion := rec.Ops[slices.IndexFunc(rec.Ops, func(o kvscheduler.OpRecord) bool { return o.Verb == "delete" })]
	if deletion.Why != "dep:a/acl" {
		t.Errorf("the reason is %q", deletion.Why)
	}
	w.m.Fail(nil)
	w.put(put("a/acl", thing{Version: 1}))
	if got := w.phase("b/member"); got != kvscheduler.InSync {
		t.Errorf("the member is %v after its dependency was applied", got)
	}
	w.noWrong()
}

// lose commits an object and deletes what it depends on.
func lose(t *testing.T) *world {
	t.Helper()
	w := start(t, kvschedulertest.New(), nil)
	w.put(put("a/acl", thing{}), put("b/member", behind("a/acl")))
	rec := w.put(del("a/acl"))
	if got := rec.TakenDown(); !slices.Equal(got, []string{"b/member"}) {
		t.Errorf("the record says that %q were taken down", got)
	}
	return w
}

func TestAnObjectThatWaitsAlthoughItWasAppliedIsLost(t *testing.T) {
	isLost := func(w *world) bool { return len(w.s.LostObjects()) > 0 }
	for name, end := range map[string]func(*world){
		"until its dependency is back":          func(w *world) { w.put(put("a/acl", thing{})) },
		"until it needs the dependency no more": func(w *world) { w.put(put("b/member", thing{})) },
		"until it is not desired":               func(w *world) { w.put(del("b/member")) },
	} {
		t.Run(name, func(t *testing.T) {
			w := lose(t)
			defer w.end()
			lost := w.s.LostObjects()
			if len(lost) != 1 || lost[0].Ref != "b/member" || !slices.Equal(lost[0].Missing, []string{"a/acl"}) {
				t.Fatalf("lost are %+v", lost)
			}
			must2(w.resync(kvscheduler.ResyncOpt{}))(t)
			if !isLost(w) {
				t.Error("forgotten after a resync")
			}
			if end(w); isLost(w) {
				t.Errorf("still lost: %+v", w.s.LostObjects())
			}
		})
	}
	t.Run("never if it was not applied", func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		if rec := w.put(put("b/member", behind("a/acl"))); len(rec.TakenDown()) > 0 || isLost(w) {
			t.Errorf("taken down %q, lost %+v", rec.TakenDown(), w.s.LostObjects())
		}
	})
}

func TestAnAtomicTransactionDoesNotTakeDownAnotherObjectOfItsSource(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	w.put(put("a/acl", thing{}), put("b/member", behind("a/acl")))
	must2(w.s.Commit(context.Background(), kvscheduler.Txn{
		Source: "other",
		Set:    []kvscheduler.Object{put("c/route", thing{Needs: "a/link"})},
	}))(t)
	w.put(put("a/link", thing{}))
	w.m.Calls()
	atomically := func(set ...kvscheduler.Object) error {
		_, err := w.s.Commit(context.Background(), kvscheduler.Txn{
			Source:     "test",
			Mode:       kvscheduler.Atomic,
			KeepOthers: true,
			Set:        set,
		})
		return err
	}
	err := atomically(del("a/acl"))
	if !errors.Is(err, kvscheduler.ErrPending) ||
		!strings.Contains(err.Error(), "b/member is applied, and would wait for a/acl") {
		t.Errorf("got %v", err)
	}
	if calls := w.m.Calls(); len(calls) > 0 {
		t.Errorf("it made %v", calls)
	}
	must(t, atomically(del("a/acl"), put("b/member", thing{})))
	must(t, atomically(del("a/link"))) // what another source desires may wait
	if got := w.phase("c/route"); got != kvscheduler.Pending {
		t.Errorf("the object of another source is %v", got)
	}
}
