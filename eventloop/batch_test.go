package eventloop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/eventloop/eventlooptest"
)

// behind queues removals behind a hanging event, and then releases that event.
func (w *world) behind(t *testing.T, events ...eventloop.Event) (results []result) {
	t.Helper()
	resume := w.hold()
	running := w.begin(t.Context(), &addPod{pod: "running", sandbox: "running"})
	var waiting []<-chan result
	for _, ev := range events {
		waiting = append(waiting, w.begin(t.Context(), ev))
	}
	resume()
	if got := <-running; got.err != nil {
		t.Fatal(got.err)
	}
	for _, c := range waiting {
		results = append(results, <-c)
	}
	return results
}

// hold makes adds of a pod wait until resume.
func (w *world) hold() (resume func()) {
	gate := make(chan struct{})
	w.onAdd = func(_ context.Context, a *addPod, _ *eventloop.Txn) error {
		if a.pod == "running" {
			<-gate
		}
		return nil
	}
	return func() { close(gate) }
}

func deletes(n int) (events []eventloop.Event) {
	for i := range n {
		events = append(events, &deletePod{"p", fmt.Sprint(i)})
	}
	return events
}

func labels(changes []eventloop.Change) (list []string) {
	for _, c := range changes {
		list = append(list, c.Label)
	}
	return list
}

func TestRemovalsThatWaitShareACommitAndADurableStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet)
		for i := range 20 {
			w.must(t, &addPod{pod: "p", sandbox: fmt.Sprint(i)})
		}
		before := len(w.committer.Changes())
		saves := 0
		w.saver.Before(func(context.Context, []eventloop.Saved) error { saves++; return nil })
		results := w.behind(t, deletes(20)...)
		want := []string{"add running/running", "delete p/0 and 15 more", "delete p/16 and 3 more"}
		if got := labels(w.committer.Changes()[before:]); !slices.Equal(got, want) {
			t.Errorf("committed %q, want %q", got, want)
		}
		if saves != len(want) {
			t.Errorf("%d durable steps, want %d", saves, len(want))
		}
		for i, got := range results {
			if got.err != nil || got.rec.Event != fmt.Sprintf("delete p/%d", i) || len(got.rec.Transactions) != 1 {
				t.Errorf("removal %d: %v, %v", i, got.rec, got.err)
			}
			sharers := 15
			if i >= 16 {
				sharers = 3
			}
			if len(got.rec.SharedWith) != sharers || slices.Contains(got.rec.SharedWith, got.rec.Seq) ||
				got.rec.Operations != got.rec.Changes {
				t.Errorf("removal %d: %d operations for %d changes, shared with %v", i, got.rec.Operations,
					got.rec.Changes, got.rec.SharedWith)
			}
		}
		if left := w.committer.Values(); len(left) != 2 || len(w.saver.Bucket("attachments")) != 2 {
			t.Errorf("left: %v, saved %v", left, w.saver.Bucket("attachments"))
		}
		if len(w.addresses) != 1 {
			t.Errorf("the handlers still know %v", w.addresses)
		}
	})
}

func TestRemovalsShareNothingAcrossAnotherEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet)
		before := len(w.committer.Changes())
		events := append(deletes(2), &addPod{pod: "q", sandbox: "1"}, &deletePod{"p", "2"}, &change{"k", "v"},
			&deletePod{"p", "3"}, &deletePod{"q", "1"})
		for _, got := range w.behind(t, events...) {
			if got.err != nil && !errors.Is(got.err, eventloop.ErrCancelled) {
				t.Error(got.err)
			}
		}
		// q/1 is cancelled by its removal
		want := []string{"add running/running", "delete p/0 and 2 more", "change k to v", "delete p/3 and 1 more"}
		if got := labels(w.committer.Changes()[before:]); !slices.Equal(got, want) {
			t.Errorf("committed %q, want %q", got, want)
		}
	})
}

func TestVerifiedRemovalsShareNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t)
		before := len(w.committer.Changes())
		w.behind(t, deletes(3)...)
		if got := labels(w.committer.Changes()[before:]); !slices.Equal(got, []string{
			"add running/running", "delete p/0", "delete p/1", "delete p/2",
		}) {
			t.Errorf("committed %q", got)
		}
	})
}

func TestOnlyTheRemovalThatFailsHasTheErrorOfACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet)
		w.committer.After(func(_ context.Context, c eventloop.Change) error {
			if slices.Contains(c.Set, eventloop.Setting{Key: "address/1"}) {
				return errBoom
			}
			return nil
		})
		for i, got := range w.behind(t, deletes(3)...) {
			if failed := errors.Is(got.err, errBoom); failed != (i == 1) {
				t.Errorf("removal %d: %v", i, got.err)
			}
			if i != 1 && got.rec.Err != "" {
				t.Errorf("removal %d: %v", i, got.rec)
			}
		}
	})
}

func TestOnlyTheRemovalWhoseHandlerFailsHasItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet)
		eventloop.On(w.Loop, "third", func(_ context.Context, d *deletePod, _ *eventloop.Txn) error {
			if d.sandbox == "1" {
				return errBoom
			}
			return nil
		})
		for i, got := range w.behind(t, deletes(3)...) {
			if failed := errors.Is(got.err, errBoom); failed != (i == 1) {
				t.Errorf("removal %d: %v", i, got.err)
			}
		}
	})
}

func TestRemovalsThatCannotBeSavedAreSavedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet)
		for i := range 3 {
			w.must(t, &addPod{pod: "p", sandbox: fmt.Sprint(i)})
		}
		w.saver.Before(func(_ context.Context, saved []eventloop.Saved) error {
			if slices.ContainsFunc(saved, func(s eventloop.Saved) bool { return s.Key == "address/1" }) {
				return errBoom
			}
			return nil
		})
		for i, got := range w.behind(t, deletes(3)...) {
			if !errors.Is(got.err, eventloop.ErrNotSaved) {
				t.Errorf("removal %d: %v", i, got.err)
			}
		}
		w.saver.Before(nil)
		w.must(t, &addPod{pod: "q", sandbox: "9"})
		if left := w.saver.Bucket("attachments"); len(left) != 4 { // of running and q
			t.Errorf("saved: %v", left)
		}
	})
}

// refusedDuring has no handler. Each has its own name, because equal refusals share a record.
type refusedDuring struct{ sandbox string }

func (r refusedDuring) String() string { return "refused during " + r.sandbox }

// Events that are refused while the removals run have numbers between those of the removals.
func TestRecordsOfSharedRemovalsAreWatchedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet)
		eventloop.On(w.Loop, "third", func(_ context.Context, d *deletePod, _ *eventloop.Txn) error {
			_, _ = w.Do(context.Background(), refusedDuring{d.sandbox})
			synctest.Wait() // until the watcher has read
			return nil
		})
		since := w.last(t).Seq
		var seen []string
		watched := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(watched)
			for r := range w.Watch(ctx, since) {
				seen = append(seen, r.Event)
			}
		}()
		synctest.Wait()
		w.behind(t, deletes(3)...)
		synctest.Wait()
		cancel()
		<-watched
		if got := strings.Join(seen,
			", "); got != "add running/running, delete p/0, refused during 0, delete p/1, refused during 1, delete p/2, refused during 2" {
			t.Errorf("watched %s", got)
		}
	})
}

// refusing is a committer that refuses all external configuration.
type refusing struct{ *eventlooptest.Committer }

func (r refusing) Commit(ctx context.Context, c eventloop.Change) (eventloop.Outcome, error) {
	out, err := r.Committer.Commit(ctx, c)
	out.Refused = map[string]string{}
	for _, s := range c.External {
		out.Refused[s.Key] = "refused"
	}
	return out, err
}

// unplug deletes one port.
type unplug struct {
	key  string
	gate <-chan struct{} // the handler waits for it; nil is no wait
}

func (u *unplug) String() string { return "unplug " + u.key }
func (*unplug) Removal()         {}
func (*unplug) BestEffort() bool { return true }

func TestEachRemovalOfABatchRecordsItsRefusedExternalValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := eventloop.New(eventloop.Config{Committer: refusing{&eventlooptest.Committer{}}, External: portCodec{}})
		eventloop.On(l, "ports", func(_ context.Context, u *unplug, txn *eventloop.Txn) error {
			if u.gate != nil {
				<-u.gate
			}
			txn.Delete(u.key)
			return nil
		})
		l.OnResync("ports", func(_ context.Context, txn *eventloop.Txn) error {
			for _, key := range []string{"a", "b", "c"} {
				txn.Put(key, port{MTU: 1500})
			}
			return nil
		})
		eventlooptest.Ready(t, l)
		wanted := map[string][]byte{"a": []byte(`{"mtu":1500}`), "b": []byte(`{"mtu":1500}`)}
		if _, err := l.SetExternal(t.Context(), "file", wanted); err != nil {
			t.Fatal(err)
		}
		gate := make(chan struct{})
		drops := make(chan string, 3)
		for _, u := range []*unplug{{"c", gate}, {"a", nil}, {"b", nil}} {
			go func() {
				rec, err := l.Do(t.Context(), u)
				if err != nil {
					t.Error(err)
					rec = &eventloop.Record{}
				}
				drops <- fmt.Sprint(u.key, rec.Drops)
			}()
			synctest.Wait()
		}
		close(gate)
		got := []string{<-drops, <-drops, <-drops}
		slices.Sort(got)
		if want := []string{"a[{a file refused}]", "b[{b file refused}]", "c[]"}; !slices.Equal(got, want) {
			t.Errorf("dropped %q, want %q", got, want)
		}
	})
}

// waiting is a committer with which every key has an unmet dependency.
type waiting struct{ *eventlooptest.Committer }

func (w waiting) Commit(ctx context.Context, c eventloop.Change) (eventloop.Outcome, error) {
	out, err := w.Committer.Commit(ctx, c)
	for _, s := range c.Set {
		out.Pending = append(out.Pending, s.Key)
	}
	return out, err
}

func TestEachRemovalOfABatchRecordsItsPendingKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet, func(c *eventloop.Config) { c.Committer = waiting{&eventlooptest.Committer{}} })
		for i, got := range w.behind(t, deletes(3)...) {
			want := []string{fmt.Sprintf("interface/%d", i), fmt.Sprintf("address/%d", i)}
			if got.err != nil || !slices.Equal(got.rec.Pending, want) {
				t.Errorf("removal %d: pending %q, want %q (%v)", i, got.rec.Pending, want, got.err)
			}
		}
	})
}
