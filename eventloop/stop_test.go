package eventloop_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/eventloop/eventlooptest"
)

func TestStopFinishesTheRunningEventAndAnswersAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quiet)
		stop := eventlooptest.Ready(t, w.Loop)
		w.committer.Before(func(context.Context, eventloop.Change) error { <-time.After(5 * time.Second); return nil })
		running := w.begin(t.Context(), &addPod{pod: "p", sandbox: "a"})
		queued := w.begin(t.Context(), &addPod{pod: "q", sandbox: "b"})
		another := w.begin(t.Context(), &change{"k", "v"})
		go stop()
		if got := <-queued; !errors.Is(got.err, eventloop.ErrStopped) || got.after != 0 {
			t.Errorf("queued, after %v: %v", got.after, got.err)
		}
		if got := <-running; got.err != nil || got.after != 5*time.Second || w.addresses["a"] != "p" {
			t.Errorf("running, after %v: %v", got.after, got.err)
		}
		synctest.Wait()
		if _, err := w.Do(t.Context(), &addPod{pod: "r", sandbox: "c"}); !errors.Is(err, eventloop.ErrStopped) {
			t.Errorf("Do when stopped: %v", err)
		}
		if got := <-another; !errors.Is(got.err, eventloop.ErrStopped) {
			t.Errorf("queued: %v", got.err)
		}
		saved := 0
		for _, r := range w.saver.Records() {
			if r.Err == eventloop.ErrStopped.Error() {
				saved++
			}
		}
		if saved != 2 {
			t.Errorf("%d records of stopped events are durable, want 2", saved)
		}
	})
}

func TestStopIsBoundedByTheDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, quiet)
		stop := eventlooptest.Ready(t, w.Loop)
		w.committer.After(func(ctx context.Context, _ eventloop.Change) error { <-ctx.Done(); return ctx.Err() })
		w.begin(t.Context(), &addPod{pod: "p", sandbox: "a"})
		began := time.Now()
		stop()
		if took := time.Since(began); took != 40*time.Second {
			t.Errorf("took %v", took)
		}
		if saved := w.saver.Records(); !strings.HasPrefix(saved[len(saved)-1].Err,
			"commit: context deadline exceeded") {
			t.Errorf("the last one's record is not durable: %v", saved)
		}
	})
}

func TestRunFailsWithoutACommitterOrASecondTime(t *testing.T) {
	if err := eventloop.New(eventloop.Config{}).Run(t.Context()); err == nil {
		t.Error("ran without a Committer")
	}
	l := eventloop.New(eventloop.Config{Committer: &eventlooptest.Committer{}})
	eventlooptest.Ready(t, l)()
	if err := l.Run(t.Context()); err == nil {
		t.Error("ran twice")
	}
}

func TestAfterAHandlerEndsItsGoroutineCallersAreAnswered(t *testing.T) {
	w := newWorld(t, quiet)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.Run(context.Background())
	}()
	w.must(t, eventloop.Resynchronize{Kind: eventloop.Full, Reason: "start"})
	w.onAdd = func(context.Context, *addPod, *eventloop.Txn) error { runtime.Goexit(); return nil }
	if _, err := w.Do(t.Context(), &addPod{pod: "p", sandbox: "a"}); !errors.Is(err, eventloop.ErrStopped) {
		t.Errorf("error: %v", err)
	}
	<-ended
}
