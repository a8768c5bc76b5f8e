package eventloop_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftnet/weft/eventloop"
)

// result is the outcome of a Do, and its time.
type result struct {
	rec   *eventloop.Record
	err   error
	after time.Duration
}

// begin calls Do in a goroutine, and returns once all goroutines are blocked.
func (w *world) begin(ctx context.Context, ev eventloop.Event) <-chan result {
	ended := make(chan result, 1)
	began := time.Now()
	go func() {
		rec, err := w.Do(ctx, ev)
		ended <- result{rec, err, time.Since(began)}
	}()
	synctest.Wait()
	return ended
}

// hang makes commits of atomic changes block until their context ends.
func (w *world) hang() {
	w.committer.Before(func(ctx context.Context, c eventloop.Change) error {
		if !c.Atomic {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	})
}

func TestARemovalCancelsTheRunningAddOfItsSubject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet)
		w.hang()
		add := w.begin(t.Context(), &addPod{pod: "p", sandbox: "a"})
		other := w.begin(t.Context(), &deletePod{"p", "b"})
		if len(add) != 0 || w.Stats().Running != "add p/a" {
			t.Fatalf("another subject's removal ended it: %+v", w.Stats())
		}
		<-time.After(time.Second)
		removal := w.begin(t.Context(), &deletePod{"p", "a"})
		got := <-add
		if !errors.Is(got.err, eventloop.ErrCancelled) ||
			!strings.Contains(got.err.Error(), "cancelled by delete p/a") {
			t.Errorf("error: %v", got.err)
		}
		if got.after != time.Second || !got.rec.Undone || got.rec.CancelledBy != "delete p/a" {
			t.Errorf("after %v: %v", got.after, got.rec)
		}
		first := <-other
		second := <-removal
		if first.err != nil || second.err != nil || first.rec.Seq+1 != second.rec.Seq ||
			got.rec.Seq+1 != first.rec.Seq {
			t.Errorf("removals: %v, %v", first.rec, second.rec)
		}
		if len(w.committer.Values())+len(w.addresses) != 0 {
			t.Errorf("left: %v %v", w.committer.Values(), w.addresses)
		}
	})
}

func TestARemovalCancelsAnAddThatIsCommittedButNotSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet)
		w.committer.After(func(_ context.Context, c eventloop.Change) error {
			if c.Atomic {
				<-time.After(time.Second) // deaf to its context
			}
			return nil
		})
		add := w.begin(t.Context(), &addPod{pod: "p", sandbox: "a"})
		removal := w.begin(t.Context(), &deletePod{"p", "a"})
		got := <-add
		if !errors.Is(got.err, eventloop.ErrCancelled) || !got.rec.Undone || got.rec.CancelledBy != "delete p/a" {
			t.Errorf("%v: %v", got.err, got.rec)
		}
		if got = <-removal; got.err != nil || len(w.committer.Values())+len(w.saver.Bucket("attachments")) != 0 {
			t.Errorf("%v, left %v", got.err, w.committer.Values())
		}
	})
}

func TestARemovalCancelsTheQueuedAddAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet)
		w.hang()
		running := w.begin(t.Context(), &addPod{pod: "p", sandbox: "runs"})
		queued := w.begin(t.Context(), &addPod{pod: "q", sandbox: "a"})
		removal := w.begin(t.Context(), &deletePod{"q", "a"})
		got := <-queued
		if !errors.Is(got.err, eventloop.ErrCancelled) || got.after != 0 || got.rec.CancelledBy != "delete q/a" ||
			!got.rec.Started.IsZero() {
			t.Errorf("after %v: %v, %v", got.after, got.err, got.rec)
		}
		if len(removal) != 0 || len(running) != 0 || strings.Contains(w.called(), "q") {
			t.Errorf("the removal did not wait for its turn: %s", w.called())
		}
		if got = <-running; got.after != 30*time.Second {
			t.Errorf("the running one ended after %v", got.after)
		}
		if got = <-removal; got.err != nil {
			t.Error(got.err)
		}
	})
}

func TestANewerAddOfThePodCancelsTheOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet)
		w.hang()
		running := w.begin(t.Context(), &addPod{pod: "p", sandbox: "1"})
		again := w.begin(t.Context(), &addPod{pod: "p", sandbox: "1"})
		stranger := w.begin(t.Context(), &addPod{pod: "q", sandbox: "2"})
		if len(running)+len(again)+len(stranger) != 0 {
			t.Fatal("the same sandbox, or another pod, cancelled it")
		}
		w.committer.Before(nil)
		newer := w.begin(t.Context(), &addPod{pod: "p", sandbox: "3"})
		for _, older := range []<-chan result{running, again} {
			if got := <-older; !errors.Is(got.err, eventloop.ErrCancelled) || got.rec.CancelledBy != "add p/3" {
				t.Errorf("%v, %v", got.err, got.rec)
			}
		}
		for _, ok := range []<-chan result{stranger, newer} {
			if got := <-ok; got.err != nil {
				t.Error(got.err)
			}
		}
		if len(w.committer.Values()) != 4 || len(w.addresses) != 2 {
			t.Errorf("left: %v", w.committer.Values())
		}
	})
}

func TestTheEventOfACallerThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet)
		var slow bool
		w.committer.Before(func(context.Context, eventloop.Change) error {
			if slow {
				<-time.After(10 * time.Second)
			}
			return nil
		})
		slow = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		running := w.begin(ctx, &addPod{pod: "p", sandbox: "runs"})
		queued := w.begin(ctx, &addPod{pod: "q", sandbox: "waits"})
		got := <-running
		if !errors.Is(got.err, context.DeadlineExceeded) || got.after != time.Second || got.rec != nil {
			t.Errorf("running, after %v: %v, %v", got.after, got.err, got.rec)
		}
		got = <-queued
		if !errors.Is(got.err, context.DeadlineExceeded) || got.after != time.Second ||
			!strings.Contains(got.rec.Err, "the caller left") {
			t.Errorf("queued, after %v: %v, %v", got.after, got.err, got.rec)
		}
		<-time.After(20 * time.Second)
		synctest.Wait()
		if w.addresses["runs"] != "p" || w.addresses["waits"] != "" {
			t.Errorf("the running one is to be finished, the queued one dropped: %v", w.addresses)
		}
		if rec, err := w.Do(ctx, &addPod{pod: "r", sandbox: "late"}); rec == nil ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller gone before: %v, %v", rec, err)
		}
	})
}

func TestAHungCommitDelaysOtherEventsUntilItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet)
		w.committer.Before(func(ctx context.Context, c eventloop.Change) error {
			if c.Label == "delete q/b" {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		w.committer.After(nil)
		hung := w.begin(t.Context(), &addPod{pod: "p", sandbox: "a"})
		next := w.begin(t.Context(), &deletePod{"q", "b"})
		got := <-hung
		if !errors.Is(got.err, context.DeadlineExceeded) || errors.Is(got.err, eventloop.ErrCancelled) ||
			!got.rec.Undone {
			t.Errorf("%v, %v", got.err, got.rec)
		}
		if got = <-next; got.err != nil || got.after != 30*time.Second {
			t.Errorf("the next waited %v: %v", got.after, got.err)
		}
	})
}

func TestAHungUndoHasADeadlineOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet)
		w.committer.After(func(ctx context.Context, c eventloop.Change) error {
			if c.Resync != eventloop.None {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		got := <-w.begin(t.Context(), &addPod{pod: "p", sandbox: "a"})
		if !errors.Is(got.err, context.DeadlineExceeded) || got.after != 40*time.Second || got.rec.Undone {
			t.Errorf("after %v: %v, %v", got.after, got.err, got.rec)
		}
		if strings.Join(got.rec.Stuck, " ") != "address/a interface/a" || len(w.addresses) != 0 {
			t.Errorf("stuck %v, memory %v", got.rec.Stuck, w.addresses)
		}
	})
}

// touch is a best-effort event of a sandbox.
type touch struct{ *addPod }

func (touch) BestEffort() bool { return true }

func TestARemovalDoesNotCancelOtherEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet)
		eventloop.On(w.Loop, "touch", func(_ context.Context, ev touch, txn *eventloop.Txn) error {
			txn.Put("touched/"+ev.sandbox, true)
			return nil
		})
		w.committer.Before(func(ctx context.Context, _ eventloop.Change) error {
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		bestEffort := w.begin(t.Context(), touch{&addPod{pod: "p", sandbox: "a"}})
		removal := w.begin(t.Context(), &deletePod{"p", "a"})
		again := w.begin(t.Context(), &deletePod{"p", "a"})
		for name, ended := range map[string]<-chan result{
			"running best-effort event": bestEffort,
			"removal":                   removal,
			"repeated removal":          again,
		} {
			if got := <-ended; got.err != nil {
				t.Errorf("%s: %v", name, got.err)
			}
		}
	})
}

func TestARemovalDuringTheHandlersPreventsTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet)
		changes := len(w.committer.Changes())
		w.onAdd = func(ctx context.Context, _ *addPod, _ *eventloop.Txn) error { <-ctx.Done(); return nil }
		add := w.begin(t.Context(), &addPod{pod: "p", sandbox: "a"})
		removal := w.begin(t.Context(), &deletePod{"p", "a"})
		if got := <-add; !errors.Is(got.err, eventloop.ErrCancelled) || !got.rec.Undone {
			t.Errorf("%v, %v", got.err, got.rec)
		}
		<-removal
		if got := w.committer.Changes()[changes:]; len(got) != 1 || got[0].Label != "delete p/a" {
			t.Errorf("committed %v", got)
		}
	})
}

func TestARemovalDuringTheSaveComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet)
		w.saver.Before(func(ctx context.Context, _ []eventloop.Saved) error {
			<-time.After(time.Second)
			return ctx.Err()
		})
		add := w.begin(t.Context(), &addPod{pod: "p", sandbox: "a"})
		removal := w.begin(t.Context(), &deletePod{"p", "a"})
		if got := <-add; got.err != nil || got.rec.CancelledBy != "" {
			t.Errorf("%v, %v", got.err, got.rec)
		}
		if got := <-removal; got.err != nil || len(w.committer.Values())+len(w.saver.Bucket("attachments")) != 0 {
			t.Errorf("%v, left %v", got.err, w.committer.Values())
		}
	})
}
