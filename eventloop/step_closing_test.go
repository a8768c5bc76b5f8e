package eventloop_test

import (
	"context"
	"encoding/json"
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

func TestStep11ClosesTheRecordWithAllTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t)
		w.onAdd = func(context.Context, *addPod, *eventloop.Txn) error { <-time.After(2 * time.Second); return nil }
		w.committer.Before(func(context.Context, eventloop.Change) error { <-time.After(3 * time.Second); return nil })
		rec := w.must(t, &addPod{pod: "p", sandbox: "a"})
		took := map[string]time.Duration{}
		var numbers []int
		for _, s := range rec.Steps {
			took[s.Name] = s.Took
			numbers = append(numbers, s.Number)
		}
		if rec.Took != 5*time.Second || took["run handlers"] != 2*time.Second || took["commit"] != 3*time.Second ||
			took["save"] != 0 {
			t.Errorf("took %v, steps %v", rec.Took, took)
		}
		if !slices.Equal(numbers, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 10, 11, 12, 13}) {
			t.Errorf("steps %v", numbers)
		}
		if rec.Handlers[0].Took != 0 || rec.Handlers[1].Took != 2*time.Second {
			t.Errorf("handlers %+v", rec.Handlers)
		}
	})
}

func TestOnRecordIsCalledForEachEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		w := ready(t, func(c *eventloop.Config) {
			c.OnRecord = func(_ context.Context, r eventloop.Record) {
				told = append(told, fmt.Sprintf("%s %v", r.Type, !r.Started.IsZero()))
			}
		})
		w.must(t, &addPod{pod: "p", sandbox: "a"})
		if _, err := w.Do(t.Context(), nil); err == nil {
			t.Error("no event is handled")
		}
		w.failIn["second"] = errBoom
		if _, err := w.Do(t.Context(), &addPod{pod: "q", sandbox: "b"}); err == nil {
			t.Error("an event that fails has no error")
		}
		want := []string{
			"eventloop.Resynchronize true", "eventloop_test.addPod true", " false", "eventloop_test.addPod true",
		}
		if !slices.Equal(told, want) {
			t.Errorf("told of %q, want %q", told, want)
		}
	})
}

func TestStep11RecordsAndSavesTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t)
		w.failIn["second"] = errBoom
		rec, _ := w.Do(t.Context(), &addPod{pod: "p", sandbox: "a"})
		if rec.Err != "second: boom" || rec.Handlers[1].Err != "boom" {
			t.Errorf("record: %+v", rec)
		}
		synctest.Wait() // the loop is idle now
		saved := w.saver.Records()
		if last := saved[len(saved)-1]; last.Seq != rec.Seq || last.Err != rec.Err || !last.Undone {
			t.Errorf("saved record: %v", last)
		}
	})
}

func TestStep12StuckKeysAreReportedAndHealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, func(c *eventloop.Config) {
			c.Limit(eventloop.Limits{MinHealing: time.Second, MaxHealing: 3 * time.Second})
		})
		stuck := func(eventloop.Change) []string { return []string{"interface/a"} }
		w.committer.Stuck(stuck)
		began := time.Now()
		rec, err := w.Do(t.Context(), &addPod{pod: "p", sandbox: "a"})
		if err == nil || rec.Undone || !slices.Equal(rec.Stuck, []string{"interface/a"}) {
			t.Errorf("error %v, record %v", err, rec)
		}
		stats := w.Stats()
		if !slices.Equal(stats.Degraded, rec.Stuck) || !stats.NextHealing.Equal(began.Add(time.Second)) {
			t.Errorf("stats: %+v", stats)
		}
		if !strings.Contains(w.logged.String(), `level=ERROR msg="key is stuck" key=interface/a`) {
			t.Errorf("logged:\n%s", w.logged)
		}
		<-time.After(9500 * time.Millisecond) // 1, 1+2, 1+2+3, 1+2+3+3 s
		synctest.Wait()
		var healed []time.Duration
		for _, r := range w.History(rec.Seq) {
			if r.Kind != "full" || r.Err == "" {
				t.Errorf("record: %v", r)
			}
			healed = append(healed, r.Started.Sub(began))
		}
		if !slices.Equal(healed, []time.Duration{time.Second, 3 * time.Second, 6 * time.Second, 9 * time.Second}) {
			t.Errorf("healing resyncs after %v", healed)
		}
		w.committer.Stuck(nil)
		<-time.After(3 * time.Second)
		synctest.Wait()
		if s := w.Stats(); len(s.Degraded) != 0 || !s.NextHealing.IsZero() {
			t.Errorf("not healthy after a clean resync: %+v", s)
		}
		seq := w.last(t).Seq
		<-time.After(time.Minute)
		if w.last(t).Seq != seq {
			t.Errorf("healing goes on: %v", w.last(t))
		}
		w.committer.Stuck(stuck)
		if _, err := w.Do(t.Context(), &addPod{pod: "p", sandbox: "b"}); err == nil {
			t.Error("a stuck key is no error")
		}
		if got := time.Until(w.Stats().NextHealing); got != time.Second {
			t.Errorf("the next failure is healed after %v, want the first delay again", got)
		}
	})
}

// The record is saved together with the values of the event, before the last steps. What fails afterwards must become
// durable, too.
func TestAFailureAfterTheSaveBecomesDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet)
		w.onAdd = func(_ context.Context, _ *addPod, txn *eventloop.Txn) error {
			txn.OnCommit(func() { panic("after the save") })
			return nil
		}
		rec, err := w.Do(t.Context(), &addPod{pod: "p", sandbox: "a"})
		if err == nil || !strings.Contains(rec.Err, "after the save") {
			t.Fatalf("error %v, record %v", err, rec)
		}
		synctest.Wait() // the loop is idle, and saves what is not durable
		saved := w.saver.Records()
		if last := saved[len(saved)-1]; last.Seq != rec.Seq || last.Err != rec.Err {
			t.Errorf("the durable record is %v", last)
		}
	})
}

func TestStep12AFailedUndoOfAHandlerIsHealed(t *testing.T) {
	w := ready(t, quiet)
	w.onAdd = func(_ context.Context, _ *addPod, txn *eventloop.Txn) error {
		txn.OnRollback(func() error { return errors.New("cannot") })
		txn.OnRollback(func() error { panic("cannot either") })
		return errBoom
	}
	rec, err := w.Do(t.Context(), &addPod{pod: "p", sandbox: "a"})
	if !errors.Is(err, errBoom) || !slices.Equal(rec.Stuck, []string{"handler second"}) || rec.Undone {
		t.Errorf("error %v, record %v", err, rec)
	}
	if len(w.addresses) != 0 || w.Stats().NextHealing.IsZero() {
		t.Errorf("left %v, stats %+v", w.addresses, w.Stats())
	}
}

func TestStep12AResyncWithAFailedHandlerCommitsNothing(t *testing.T) {
	w := ready(t, quiet)
	w.must(t, &addPod{pod: "p", sandbox: "a"})
	before := w.committer.Values()
	w.forget()
	w.failIn["first resync"] = errBoom
	rec, err := w.Do(t.Context(), eventloop.Resynchronize{Kind: eventloop.Upstream, Reason: "test"})
	if w.called() != "first resync" {
		t.Errorf("calls: %s", w.called())
	}
	if !errors.Is(err, errBoom) || !rec.Undone || !maps.Equal(before, w.committer.Values()) {
		t.Errorf("error %v, record %v, values %v", err, rec, w.committer.Values())
	}
	if w.Stats().NextHealing.IsZero() {
		t.Error("no healing is scheduled")
	}
}

func TestStep12HealingIsScheduledOnceAndEndsWithACleanFullResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet, func(c *eventloop.Config) { c.Limit(eventloop.Limits{MinHealing: 10 * time.Second}) })
		w.committer.Stuck(func(eventloop.Change) []string { return []string{"key"} })
		w.onAdd = func(context.Context, *addPod, *eventloop.Txn) error { return nil }
		for range 2 {
			if _, err := w.Do(t.Context(), &addPod{pod: "p", sandbox: "a"}); err == nil {
				t.Error("no error")
			}
			<-time.After(time.Second)
		}
		planned := w.Stats().NextHealing
		if got := time.Until(planned); got != 8*time.Second {
			t.Errorf("healing in %v", got)
		}
		w.committer.Stuck(nil)
		w.must(t, eventloop.Resynchronize{Kind: eventloop.Upstream, Reason: "test"})
		if s := w.Stats(); len(s.Degraded) != 1 || s.NextHealing != planned {
			t.Errorf("an upstream resync does not look at the machine: %+v", s)
		}
		seq := w.must(t, eventloop.Resynchronize{Kind: eventloop.Full, Reason: "test"}).Seq
		<-time.After(time.Minute)
		if s := w.Stats(); len(s.Degraded) != 0 || !s.NextHealing.IsZero() || w.last(t).Seq != seq {
			t.Errorf("after a clean one: %+v, %v", s, w.last(t))
		}
	})
}

// watched is a world whose verification may find differences.
func watched(t *testing.T) (w *world, found *[]string) {
	found = new([]string)
	w = ready(t, func(c *eventloop.Config) { c.OnVerify = func(f []string) { *found = append(*found, f...) } })
	return w, found
}

func TestStep13VerifyFindsDifferencesOfHandlers(t *testing.T) {
	for _, tc := range []struct {
		name, want string
		forget     func(*world)
	}{
		{"not rebuilt", "address/a: left by updates, not rebuilt", func(w *world) { delete(w.addresses, "a") }},
		{"not put", "address/b: rebuilt, not left by updates", func(w *world) { w.addresses["b"] = "q" }},
		{"another value", "address/a: rebuilt with another value", func(w *world) { w.addresses["a"] = "other" }},
		{"cannot be rebuilt", "rebuild by second: boom", func(w *world) { w.failIn["second resync"] = errBoom }},
		{"drift of the machine", "link/x", func(w *world) { w.committer.SetDrift("link/x") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, found := watched(t)
			w.onAdd = func(_ context.Context, _ *addPod, txn *eventloop.Txn) error {
				txn.OnCommit(func() { tc.forget(w) })
				return nil
			}
			rec := w.must(t, &addPod{pod: "p", sandbox: "a"})
			if want := []string{tc.want}; !slices.Equal(rec.Verify, want) || !slices.Equal(*found, want) {
				t.Errorf("record has %v, told %v, want %v", rec.Verify, *found, want)
			}
			if !strings.Contains(w.logged.String(), "level=ERROR msg=\"verification found differences\"") {
				t.Errorf("logged:\n%s", w.logged)
			}
			if last := w.last(t); !slices.Equal(last.Verify, rec.Verify) {
				t.Errorf("history: %v", last)
			}
			w.must(t, &addPod{pod: "q", sandbox: "c"}) // the durable step of an event comes before its verification
			saved, _ := w.saver.Bucket(eventloop.RecordsBucket)[fmt.Sprintf("%020d", rec.Seq)].(eventloop.Record)
			if !slices.Equal(saved.Verify, rec.Verify) {
				t.Errorf("the state file has %v", saved)
			}
		})
	}
}

func TestStep13VerifyChangesNothing(t *testing.T) {
	w := ready(t)
	effects := 0
	w.OnResync("third", func(_ context.Context, txn *eventloop.Txn) error {
		txn.OnCommit(func() { effects++ })
		txn.OnRollback(func() error { effects++; return nil })
		txn.Save("bucket", "key", "value")
		return nil
	})
	changes := len(w.committer.Changes())
	w.must(t, &addPod{pod: "p", sandbox: "a"})
	if effects != 0 || len(w.saver.Bucket("bucket")) != 0 || w.interfaces["k"] != "" ||
		len(w.committer.Changes()) != changes+1 {
		t.Errorf("effects %d, saved %v, changes %v", effects, w.saver.Bucket("bucket"), w.committer.Changes())
	}
}

func TestStep13KnownDriftIsNotReported(t *testing.T) {
	w, found := watched(t)
	w.committer.Stuck(func(eventloop.Change) []string { return []string{"address/a"} })
	w.committer.SetDrift("address/a")
	if _, err := w.Do(t.Context(), &addPod{pod: "p", sandbox: "a"}); err == nil || len(*found) != 0 {
		t.Errorf("error %v, found %v", err, *found)
	}
}

func TestNoSecretLeavesTheLoop(t *testing.T) {
	const secret = "marker-6f1c"
	w, _ := watched(t)
	w.committer.After(func(_ context.Context, c eventloop.Change) error {
		if c.Atomic {
			return errBoom
		}
		return nil
	})
	w.onAdd = func(_ context.Context, _ *addPod, txn *eventloop.Txn) error {
		txn.Put("memif/x", secret)
		txn.Save("devices", "x", secret)
		txn.OnRollback(func() error { w.addresses["b"] = secret; return errBoom })
		return nil
	}
	if _, err := w.Do(t.Context(), &addPod{pod: "p", sandbox: "a"}); err == nil {
		t.Fatal("no error")
	}
	records, err := json.Marshal(w.History(0))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(records), "memif/x") || !strings.Contains(string(records), "address/b: rebuilt") {
		t.Errorf("the records do not tell the keys: %s", records)
	}
	if all := string(records) + w.logged.String() + w.last(t).String(); strings.Contains(all, secret) {
		t.Errorf("the secret is in %s", all)
	}
}
