package eventloop_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/eventloop/eventlooptest"
)

// rows: CIL-22
func TestAFullQueueRefusesWithItsLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet, func(c *eventloop.Config) { c.QueueMax = 2 })
		w.hang()
		running := w.begin(t.Context(), &addPod{pod: "p", sandbox: "0"})
		first := w.begin(t.Context(), &addPod{pod: "q", sandbox: "1"})
		second := w.begin(t.Context(), &deletePod{"r", "2"})
		seq := w.last(t).Seq
		rec, err := w.Do(t.Context(), &addPod{pod: "s", sandbox: "3"})
		if !errors.Is(err, eventloop.ErrQueueFull) || !strings.Contains(err.Error(), "2 events wait") || rec != nil {
			t.Errorf("%v, %v", rec, err)
		}
		if err := w.Post(t.Context(), &change{"k", "v"}); !errors.Is(err, eventloop.ErrQueueFull) {
			t.Errorf("posted: %v", err)
		}
		if s := w.Stats(); s.Refused != 2 || s.Queue != 2 || w.last(t).Seq != seq {
			t.Errorf("stats %+v, last record %v", s, w.last(t))
		}
		removal := w.begin(t.Context(), &deletePod{"q", "1"}) // makes its own room
		if got := <-first; !errors.Is(got.err, eventloop.ErrCancelled) {
			t.Error(got.err)
		}
		<-running
		for _, ok := range []<-chan result{second, removal} {
			if got := <-ok; got.err != nil {
				t.Error(got.err)
			}
		}
	})
}

// rows: CIL-22
func TestABurstOfEventsIsNotRefused(t *testing.T) {
	w := ready(t)
	ended := make(chan error)
	for i := range 500 {
		go func() {
			_, err := w.Do(t.Context(), &addPod{pod: fmt.Sprint("p", i), sandbox: fmt.Sprint(i)})
			ended <- err
		}()
	}
	for range 500 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if len(w.committer.Values()) != 1000 {
		t.Errorf("%d values", len(w.committer.Values()))
	}
}

// alike has the same key as an event of another type.
type alike struct{ *change }

func TestPostsOfTheSameKeyCoalesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet)
		eventloop.On(w.Loop, "alike", func(context.Context, alike, *eventloop.Txn) error { w.call("alike"); return nil })
		w.hang()
		running := w.begin(t.Context(), &addPod{pod: "p", sandbox: "0"})
		w.forget()
		waits := w.begin(t.Context(), &change{"a", "0"}) // with a caller
		for _, c := range []*change{{"a", "1"}, {"b", "1"}, {"a", "2"}, {"a", "3"}} {
			if err := w.Post(t.Context(), c); err != nil {
				t.Error(err)
			}
		}
		if err := w.Post(t.Context(), alike{&change{"a", "alike"}}); err != nil {
			t.Error(err)
		}
		waitsToo := w.begin(t.Context(), &change{"a", "4"})
		<-running
		for _, done := range []<-chan result{waits, waitsToo} {
			if got := <-done; got.err != nil {
				t.Error(got.err)
			}
		}
		want := "first change a to 0, second change a to 0, first change a to 3, second change a to 3, first change b to 1, second change b to 1, alike, first change a to 4, second change a to 4"
		if w.called() != want {
			t.Errorf("calls: %s", w.called())
		}
		records := w.History(2)
		if len(records) != 5 || records[1].Coalesced != 2 || records[2].Coalesced != 0 {
			t.Errorf("records: %v", records)
		}
	})
}

func TestFollowUpsRunBeforeOtherEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet)
		w.onAdd = func(_ context.Context, _ *addPod, txn *eventloop.Txn) error {
			<-time.After(time.Second) // the others queue meanwhile
			txn.FollowUp(&change{"follows", "1"})
			txn.FollowUp(&change{"follows", "2"})
			txn.FollowUp(unknown{})
			return nil
		}
		add := w.begin(t.Context(), &addPod{pod: "p", sandbox: "a"})
		queued := w.begin(t.Context(), &change{"queued", "1"})
		cause := (<-add).rec.Seq
		<-queued
		var order []string
		for _, r := range w.History(cause) {
			order = append(order, fmt.Sprintf("%s cause %d", r.Event, r.Cause))
		}
		want := fmt.Sprintf("something unknown cause %[1]d, change follows to 1 cause %[1]d, change follows to 2 cause %[1]d, change queued to 1 cause 0", cause)
		if strings.Join(order, ", ") != want {
			t.Errorf("order: %v, want %s", order, want)
		}
	})
}

func TestFollowUpsOfFollowUpsComeFirst(t *testing.T) {
	w := ready(t, quiet)
	eventloop.On(w.Loop, "chain", func(_ context.Context, c alike, txn *eventloop.Txn) error {
		w.call(c.value)
		if c.value == "1" {
			txn.FollowUp(alike{&change{"k", "1.1"}})
			txn.OnCommit(func() { txn.FollowUp(alike{&change{"k", "1.2"}}) })
		}
		return nil
	})
	w.onAdd = func(_ context.Context, _ *addPod, txn *eventloop.Txn) error {
		txn.FollowUp(alike{&change{"k", "1"}})
		txn.FollowUp(alike{&change{"k", "2"}})
		return nil
	}
	w.must(t, &addPod{pod: "p", sandbox: "a"})
	w.must(t, &deletePod{"p", "a"})
	if want := "first add, second add, 1, 1.1, 1.2, 2, second delete, first delete"; w.called() != want {
		t.Errorf("calls: %s", w.called())
	}
}

func TestAChainOfFollowUpsIsLimited(t *testing.T) {
	w := ready(t, quiet)
	n := 0
	eventloop.On(w.Loop, "endless", func(_ context.Context, u unknown, txn *eventloop.Txn) error {
		n++
		txn.FollowUp(u)
		return nil
	})
	w.must(t, unknown{})
	w.must(t, &addPod{pod: "p", sandbox: "a"})
	if n != 65 {
		t.Errorf("%d events", n)
	}
}

func TestDoAndPostFailInsideAHandler(t *testing.T) {
	w := ready(t)
	var do, post error
	w.onAdd = func(ctx context.Context, _ *addPod, _ *eventloop.Txn) error {
		ctx, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		_, do = w.Do(ctx, &change{"k", "v"})
		post = w.Post(ctx, &change{"k", "v"})
		return nil
	}
	w.must(t, &addPod{pod: "p", sandbox: "a"})
	if !errors.Is(do, eventloop.ErrInsideHandler) || !errors.Is(post, eventloop.ErrInsideHandler) {
		t.Errorf("Do: %v, Post: %v", do, post)
	}
}

// rows: CIL-11, AWS-10
func TestEventsWaitForTheStartUpResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quiet)
		eventlooptest.Run(t, w.Loop)
		waits := w.begin(t.Context(), &addPod{pod: "p", sandbox: "a"})
		upstream := w.begin(t.Context(), eventloop.Resynchronize{Kind: eventloop.Upstream, Reason: "early"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got := <-w.begin(ctx, &addPod{pod: "q", sandbox: "b"})
		if !errors.Is(got.err, eventloop.ErrNotReady) || !errors.Is(got.err, context.DeadlineExceeded) || got.after != time.Second {
			t.Errorf("after %v: %v", got.after, got.err)
		}
		if w.Stats().Resynced || w.called() != "" {
			t.Errorf("before the resync: %s", w.called())
		}
		w.failIn["second resync"] = errBoom // does not open the gate
		if _, err := w.Do(t.Context(), eventloop.Resynchronize{Kind: eventloop.Full, Reason: "start"}); err == nil {
			t.Error("the resync is to fail")
		}
		delete(w.failIn, "second resync")
		if s := w.Stats(); s.Resynced || len(waits) != 0 { // its mutex orders the line before for the loop, too
			t.Errorf("a resync that failed opened the gate: %+v", s)
		}
		<-time.After(time.Second) // healing
		if got := <-waits; got.err != nil || !w.Stats().Resynced {
			t.Errorf("waiting event: %v", got.err)
		}
		<-upstream
		want := "first resync, second resync, first resync, second resync, first add, second add, first resync, second resync"
		if w.called() != want {
			t.Errorf("calls: %s", w.called())
		}
	})
}
