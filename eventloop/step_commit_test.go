package eventloop_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftnet/weft/eventloop"
)

func TestStep7HandlersOnlyBuildTheTransaction(t *testing.T) {
	w := ready(t, quiet)
	committed := len(w.committer.Changes())
	w.onAdd = func(_ context.Context, a *addPod, txn *eventloop.Txn) error {
		if n := len(w.committer.Changes()); n != committed {
			t.Errorf("something was committed before the last handler")
		}
		if txn.Get("address/a") != "p" {
			t.Errorf("a handler does not see what the one before it put: %v", txn.Get("address/a"))
		}
		txn.Delete("address/a")
		if txn.Get("address/a") != nil {
			t.Error("a handler sees what it deleted")
		}
		txn.Put("address/a", "p again")
		return nil
	}
	ev := &addPod{pod: "p", sandbox: "a"}
	rec := w.must(t, ev)
	if ev.filledIn != "first second " {
		t.Errorf("the handlers filled in %q", ev.filledIn)
	}
	got := w.committer.Changes()[committed:]
	want := []eventloop.Setting{{Key: "address/a", Value: "p again"}, {Key: "interface/a", Value: "p"}}
	if len(got) != 1 || !got[0].Atomic || got[0].Label != "add p/a" || !slices.Equal(got[0].Set, want) {
		t.Errorf("committed %+v", got)
	}
	second := rec.Handlers[1]
	if second.Name != "second" ||
		!slices.Equal(second.Changes, []string{"put interface/a", "delete address/a", "put address/a"}) {
		t.Errorf("record of the second handler: %+v", second)
	}
}

func TestStep7MisuseIsAnErrorOfTheEvent(t *testing.T) {
	for name, misuse := range map[string]func(*eventloop.Txn){
		"nil value":         func(txn *eventloop.Txn) { txn.Put("key", nil) },
		"nil pointer":       func(txn *eventloop.Txn) { txn.Put("key", (*addPod)(nil)) },
		"empty key":         func(txn *eventloop.Txn) { txn.Put("", 1) },
		"empty key deleted": func(txn *eventloop.Txn) { txn.Delete("") },
	} {
		t.Run(name, func(t *testing.T) {
			w := ready(t)
			w.onAdd = func(_ context.Context, _ *addPod, txn *eventloop.Txn) error { misuse(txn); return nil }
			rec, err := w.Do(t.Context(), &addPod{pod: "p", sandbox: "a"})
			if err == nil || !rec.Undone || rec.Handlers[1].Err == "" || len(w.committer.Values()) != 0 {
				t.Errorf("error %v, record %v", err, rec)
			}
		})
	}
}

func TestStep7APanicIsAnErrorWithItsStack(t *testing.T) {
	w := ready(t)
	w.failIn["second"] = errors.New("panic")
	rec, err := w.Do(t.Context(), &addPod{pod: "p", sandbox: "a"})
	if err == nil || err.Error() != "add p/a: second: panic: handler second" {
		t.Errorf("error: %v", err)
	}
	if !strings.Contains(rec.Stack, "fixture_test.go") || len(w.addresses) != 0 {
		t.Errorf("stack %q, memory %v", rec.Stack, w.addresses)
	}
	w.failIn["second"] = nil
	w.must(t, &addPod{pod: "p", sandbox: "a"})
}

func TestStep9CommitsOnceThenSaves(t *testing.T) {
	w := newWorld(t)
	var order []string
	w.committer.Before(func(_ context.Context, c eventloop.Change) error {
		order = append(order, "commit "+c.Label)
		return nil
	})
	w.saver.Before(func(_ context.Context, saved []eventloop.Saved) error {
		for _, s := range saved {
			order = append(order, fmt.Sprintf("save %s/%s", s.Bucket, s.Key))
		}
		return nil
	})
	w.onAdd = func(_ context.Context, _ *addPod, txn *eventloop.Txn) error {
		txn.OnCommit(func() { order = append(order, "on commit") })
		return nil
	}
	w.run(t)
	order = nil
	rec := w.must(t, &addPod{pod: "p", sandbox: "a"})
	want := "commit add p/a, save attachments/address/a, save attachments/interface/a, save records/00000000000000000002, on commit"
	if got := strings.Join(order, ", "); got != want {
		t.Errorf("order:\n got %s\nwant %s", got, want)
	}
	if rec.Changes != 2 || rec.Operations != 2 || !slices.Equal(rec.Transactions, []uint64{2}) {
		t.Errorf("record: %+v", rec)
	}
	saved := w.saver.Records()
	if last := saved[len(saved)-1]; last.Seq != rec.Seq || last.Err != "" || last.Took <= 0 {
		t.Errorf("saved record: %+v", last)
	}
}

func TestStep9AnEventThatChangesNothingCommitsNothing(t *testing.T) {
	w := ready(t)
	eventloop.On(w.Loop, "idle", func(context.Context, unknown, *eventloop.Txn) error { return nil })
	before := len(w.committer.Changes())
	w.must(t, unknown{})
	if len(w.committer.Changes()) != before {
		t.Error("an empty change was committed")
	}
}

func TestStep9FailingToSaveUndoesTheCommit(t *testing.T) {
	w := ready(t)
	w.must(t, &change{"a", "old"})
	w.saver.Before(func(context.Context, []eventloop.Saved) error { return errBoom })
	rec, err := w.Do(t.Context(), &addPod{pod: "new", sandbox: "a"})
	if !errors.Is(err, eventloop.ErrNotSaved) || !errors.Is(err, errBoom) || !rec.Undone {
		t.Errorf("error %v, record %v", err, rec)
	}
	want := map[string]any{"address/a": "old", "interface/a": "old"}
	if got := w.committer.Values(); !maps.Equal(got, want) {
		t.Errorf("committed values %v, want %v", got, want)
	}
	changes := w.committer.Changes()
	if last := changes[len(changes)-1]; last.Atomic || last.Event != rec.Seq || last.Label != "undo add new/a" {
		t.Errorf("inverse: %+v", last)
	}
}

func TestStep9ValuesThatABestEffortEventCouldNotSaveAreSavedLater(t *testing.T) {
	w := ready(t)
	w.must(t, &addPod{pod: "p", sandbox: "a"})
	w.saver.Before(func(context.Context, []eventloop.Saved) error { return errBoom })
	if _, err := w.Do(t.Context(), &deletePod{"p", "a"}); !errors.Is(err, eventloop.ErrNotSaved) {
		t.Errorf("error: %v", err)
	}
	if len(w.committer.Values()) != 0 || len(w.addresses) != 0 {
		t.Errorf("the removal did not go on: %v, %v", w.committer.Values(), w.addresses)
	}
	if w.Stats().NextHealing.IsZero() {
		t.Error("nothing is planned to pay what is owed")
	}
	w.saver.Before(nil)
	w.must(t, &addPod{pod: "q", sandbox: "b"})
	want := map[string]any{"address/b": "q", "interface/b": "q"}
	if got := w.saver.Bucket("attachments"); !maps.Equal(got, want) {
		t.Errorf("saved %v, want %v", got, want)
	}
	w.must(t, &addPod{pod: "p", sandbox: "a"})
	w.must(t, &addPod{pod: "r", sandbox: "c"})
	if got := w.saver.Bucket("attachments"); len(got) != 6 {
		t.Errorf("what was paid is saved again: %v", got)
	}
}

func TestStep9AnErrorAfterTheSaveUndoesNothing(t *testing.T) {
	w := ready(t, quiet)
	w.onAdd = func(_ context.Context, _ *addPod, txn *eventloop.Txn) error {
		txn.OnCommit(func() { panic("too late") })
		return nil
	}
	rec, err := w.Do(t.Context(), &addPod{pod: "p", sandbox: "a"})
	if err == nil || rec.Undone || rec.Stack == "" || len(w.committer.Values()) != 2 || w.addresses["a"] != "p" {
		t.Errorf("error %v, record %v, values %v", err, rec, w.committer.Values())
	}
	if w.Stats().NextHealing.IsZero() {
		t.Error("no healing is scheduled")
	}
}

func TestStep10UndoesNewestFirst(t *testing.T) {
	w := ready(t, quiet)
	var undone []string
	w.onAdd = func(_ context.Context, _ *addPod, txn *eventloop.Txn) error {
		for _, n := range []string{"one", "two"} {
			txn.OnRollback(func() error { undone = append(undone, n); return nil })
		}
		txn.OnCommit(func() { t.Error("concluded though it failed") })
		return errBoom
	}
	rec, err := w.Do(t.Context(), &addPod{pod: "p", sandbox: "a"})
	if err == nil || err.Error() != "add p/a: second: boom" || !rec.Undone {
		t.Errorf("error %v, record %v", err, rec)
	}
	if !slices.Equal(undone, []string{"two", "one"}) || len(w.addresses)+len(w.interfaces) != 0 {
		t.Errorf("undone %v, left %v %v", undone, w.addresses, w.interfaces)
	}
	if len(w.committer.Values())+len(w.saver.Bucket("attachments")) != 0 || w.called() != "first add, second add" {
		t.Errorf("something is left, or followed: %s", w.called())
	}
}

func TestStep10ReturnsToTheStateBefore(t *testing.T) {
	boom := func(_ context.Context, c eventloop.Change) error {
		if c.Atomic {
			return errBoom
		}
		return nil
	}
	for _, tc := range []struct {
		name string
		fail func(*world)
	}{
		{"first handler", func(w *world) { w.failIn["first"] = errBoom }},
		{"second handler panics", func(w *world) { w.failIn["second"] = errors.New("panic") }},
		{"commit that undid itself", func(w *world) { w.committer.Before(boom) }},
		{"commit that did not", func(w *world) { w.committer.After(boom) }},
		{"commit panics", func(w *world) {
			w.committer.After(func(_ context.Context, c eventloop.Change) error {
				if c.Atomic {
					panic("committer")
				}
				return nil
			})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := ready(t)
			w.must(t, &change{"a", "old"})
			w.must(t, &addPod{pod: "p", sandbox: "stays"})
			before := w.committer.Values()
			saved := w.saver.Bucket("attachments")
			addresses := maps.Clone(w.addresses)
			interfaces := maps.Clone(w.interfaces)
			tc.fail(w)
			rec, err := w.Do(t.Context(), &addPod{pod: "p", sandbox: "a"})
			if err == nil || !rec.Undone || len(rec.Stuck) != 0 {
				t.Errorf("error %v, record %v", err, rec)
			}
			if !maps.Equal(w.committer.Values(), before) || !maps.Equal(w.saver.Bucket("attachments"), saved) {
				t.Errorf("committed %v, was %v", w.committer.Values(), before)
			}
			if !maps.Equal(w.addresses, addresses) || !maps.Equal(w.interfaces, interfaces) {
				t.Errorf("memory: %v, %v", w.addresses, w.interfaces)
			}
		})
	}
}

func TestStep10ABestEffortCommitThatIsNotAcceptedIsHealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet)
		w.must(t, &addPod{pod: "p", sandbox: "a"})
		w.committer.Before(func(context.Context, eventloop.Change) error { return errBoom })
		rec, err := w.Do(t.Context(), &deletePod{"p", "a"})
		if !errors.Is(err, errBoom) || !slices.Equal(rec.Stuck, []string{"address/a", "interface/a"}) ||
			len(w.addresses) != 0 {
			t.Errorf("error %v, record %v, memory %v", err, rec, w.addresses)
		}
		w.committer.Before(nil)
		<-time.After(time.Second)
		synctest.Wait()
		if s := w.Stats(); len(w.committer.Values()) != 0 || len(s.Degraded) != 0 {
			t.Errorf("after healing: %v, %+v", w.committer.Values(), s)
		}
	})
}

func TestStep10BestEffortContinuesAndJoinsErrors(t *testing.T) {
	w := ready(t, quiet)
	w.must(t, &addPod{pod: "p", sandbox: "a"})
	w.forget()
	w.failIn["second"] = errBoom
	w.failIn["first"] = errors.New("panic")
	rec, err := w.Do(t.Context(), &deletePod{"p", "a"})
	if !errors.Is(err, errBoom) || !strings.Contains(err.Error(), "first: panic: handler first") || rec.Undone {
		t.Errorf("error %v, record %v", err, rec)
	}
	if w.called() != "second delete, first delete" || len(w.committer.Values())+len(w.addresses) != 0 {
		t.Errorf("calls %s, left %v %v", w.called(), w.committer.Values(), w.addresses)
	}
}
