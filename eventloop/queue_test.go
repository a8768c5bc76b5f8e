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

func TestAFullQueueRefusesWithItsLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet, func(c *eventloop.Config) { c.Limit(eventloop.Limits{Queue: 2}) })
		w.hang()
		running := w.begin(t.Context(), &addPod{pod: "p", sandbox: "0"})
		first := w.begin(t.Context(), &addPod{pod: "q", sandbox: "1"})
		second := w.begin(t.Context(), &deletePod{"r", "2"})
		seq := w.last(t).Seq
		rec, err := w.Do(t.Context(), &addPod{pod: "s", sandbox: "3"})
		if !errors.Is(err, eventloop.ErrQueueFull) || !strings.Contains(err.Error(), "2 events wait") || rec != nil {
			t.Errorf("%v, %v", rec, err)
		}
		if s := w.Stats(); s.Refused != 1 || s.Queue != 2 || w.last(t).Seq != seq {
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

func TestDoFailsInsideAHandler(t *testing.T) {
	w := ready(t)
	var do error
	w.onAdd = func(ctx context.Context, _ *addPod, _ *eventloop.Txn) error {
		ctx, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		_, do = w.Do(ctx, &change{"k", "v"})
		return nil
	}
	w.must(t, &addPod{pod: "p", sandbox: "a"})
	if !errors.Is(do, eventloop.ErrInsideHandler) {
		t.Error(do)
	}
}

func TestEventsWaitForTheStartUpResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quiet)
		eventlooptest.Run(t, w.Loop)
		waits := w.begin(t.Context(), &addPod{pod: "p", sandbox: "a"})
		upstream := w.begin(t.Context(), eventloop.Resynchronize{Kind: eventloop.Upstream, Reason: "early"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got := <-w.begin(ctx, &addPod{pod: "q", sandbox: "b"})
		if !errors.Is(got.err, eventloop.ErrNotReady) || !errors.Is(got.err, context.DeadlineExceeded) ||
			got.after != time.Second {
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
