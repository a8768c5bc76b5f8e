package eventloop_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/eventloop/eventlooptest"
)

// A plan leaves memory, machine, saved state and history as they were, and its change is the one that the event then
// commits.
func TestPropertyAPlanLeavesNoTraceAndIsWhatTheEventCommits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newMachine()
		stop := eventlooptest.Ready(t, m.Loop)
		defer stop()
		for _, s := range rapid.SliceOfN(scripts(), 1, 8).Draw(rt, "scripts") {
			s.commit = ""
			s.save = ""
			before := m.state()
			changes := len(m.committer.Changes())
			records := len(m.History(0))
			planned, planErr := m.Plan(t.Context(), s)
			if after := m.state(); !reflect.DeepEqual(after, before) || len(m.committer.Changes()) != changes ||
				len(m.History(0)) != records {
				rt.Fatalf("the plan of %s left\n%v, was\n%v; %d changes, %d records", s, after, before,
					len(m.committer.Changes())-changes, len(m.History(0))-records)
			}
			rec, err := m.Do(t.Context(), s)
			if (planErr == nil) != (err == nil) || err != nil && planErr.Error() != err.Error() {
				rt.Fatalf("%s: planned error %v, error %v", s, planErr, err)
			}
			made := m.committer.Changes()[changes:]
			switch {
			case len(made) == 0 && (planned == nil || len(planned.Change.Set) == 0):
			case len(made) != 1 || !reflect.DeepEqual(made[0].Set, planned.Change.Set) ||
				made[0].Atomic != planned.Change.Atomic:
				rt.Fatalf("%s planned %v, committed %v", s, planned.Change, made)
			case planned.Record.Changes != rec.Changes:
				rt.Fatalf("%s planned %d changes, made %d", s, planned.Record.Changes, rec.Changes)
			}
		}
	})
}

func TestResyncsAndHandlersThatPlanAreRefused(t *testing.T) {
	m := newMachine()
	defer eventlooptest.Ready(t, m.Loop)()
	if _, err := m.Plan(t.Context(), eventloop.Resynchronize{Kind: eventloop.Upstream, Reason: "test"}); !errors.Is(err,
		eventloop.ErrInvalid) {
		t.Errorf("a resync is planned: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Plan(ctx, &script{}); err == nil {
		t.Error("a plan without a caller is no error")
	}
	if records := m.History(0); len(records) != 1 { // of Ready
		t.Errorf("records of plans: %v", records)
	}
}

// A plan of a removal removes nothing, so no event of its subject ends; and a removal ends no plan.
func TestAPlanNeitherCancelsEventsNorIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet)
		resume := w.hold()
		running := w.begin(t.Context(), &addPod{pod: "running", sandbox: "running"})
		queued := w.begin(t.Context(), &addPod{pod: "p", sandbox: "1"})
		planned := make(chan error, 3)
		for _, ev := range []eventloop.Event{
			&deletePod{"running", "running"}, &deletePod{"p", "1"}, &addPod{pod: "q", sandbox: "2"},
		} {
			go func() {
				_, err := w.Plan(t.Context(), ev)
				planned <- err
			}()
			synctest.Wait()
		}
		removal := w.begin(t.Context(), &deletePod{"q", "2"})
		resume()
		for what, done := range map[string]<-chan result{
			"the running event": running,
			"the queued event":  queued,
			"the removal":       removal,
		} {
			if got := <-done; got.err != nil {
				t.Errorf("%s: %v", what, got.err)
			}
		}
		for range cap(planned) {
			if err := <-planned; err != nil {
				t.Errorf("a plan: %v", err)
			}
		}
	})
}
