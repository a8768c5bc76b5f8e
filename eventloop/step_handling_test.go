package eventloop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/eventloop"
)

// mute is an event whose String panics.
type mute struct{}

func (*mute) String() string { panic("no words") }

// prepared is an event that its caller prepared before.
type prepared struct {
	*addPod
	since   time.Time
	refusal error
}

func (p prepared) Prepared() (time.Time, error) { return p.since, p.refusal }

func TestStep1RefusesEarlyWithARecord(t *testing.T) {
	for _, tc := range []struct {
		name, says string
		ev         eventloop.Event
		want       error
	}{
		{"invalid", "add p/a: invalid event: boom", &addPod{pod: "p", sandbox: "a", invalid: errBoom}, errBoom},
		{
			"no handler", "something unknown: no handler for this event: type eventloop_test.unknown", unknown{},
			eventloop.ErrNoHandler,
		},
		{"nil", "no event: invalid event: it is nil", nil, eventloop.ErrInvalid},
		{"panic in String", "*eventloop_test.mute: invalid event: panic: no words", &mute{}, eventloop.ErrInvalid},
		{
			"no kind of resync", "update resync: x: invalid event: unknown kind of resync: 0",
			eventloop.Resynchronize{Reason: "x"}, eventloop.ErrInvalid,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := ready(t)
			rec, err := w.Do(t.Context(), tc.ev)
			if !errors.Is(err, tc.want) || err.Error() != tc.says {
				t.Errorf("error is %q, want %q", err, tc.says)
			}
			if rec == nil || rec.Err == "" || rec.Seq == 0 || !rec.Started.IsZero() || rec.Steps[0].Number != 1 {
				t.Errorf("record of a refused event: %+v", rec)
			}
			if last := w.last(t); last.Seq != rec.Seq || last.Err != rec.Err {
				t.Errorf("the history ends with %v", last)
			}
			w.must(t, &addPod{pod: "p", sandbox: "lives"})
		})
	}
}

func TestStep1IncludesThePreparationByTheCaller(t *testing.T) {
	w := ready(t)
	eventloop.On(w.Loop, "third", func(context.Context, prepared, *eventloop.Txn) error {
		w.call("prepared")
		return nil
	})
	rec := w.must(t, prepared{&addPod{pod: "p", sandbox: "a"}, time.Now().Add(-time.Minute), nil})
	if rec.Steps[0].Number != 1 || rec.Steps[0].Took < time.Minute || rec.Steps[0].Took > time.Hour {
		t.Errorf("the preparation is not in the record: %+v", rec.Steps)
	}
	w.forget()
	rec, err := w.Do(t.Context(), prepared{&addPod{pod: "p", sandbox: "b"}, time.Time{}, errBoom})
	if !errors.Is(err, errBoom) || errors.Is(err, eventloop.ErrInvalid) || w.called() != "" {
		t.Errorf("refused by its caller: %v, calls %q", err, w.called())
	}
	if rec == nil || rec.Err != errBoom.Error() || !rec.Started.IsZero() {
		t.Errorf("record of a refused event: %+v", rec)
	}
}

func TestARefusalThatNamesItsEventNamesItOnce(t *testing.T) {
	w := ready(t)
	eventloop.On(w.Loop, "third", func(context.Context, prepared, *eventloop.Txn) error { return nil })
	refused := prepared{addPod: &addPod{pod: "p", sandbox: "a"}}
	refused.refusal = fmt.Errorf("%s: %w", refused, errBoom)
	rec, err := w.Do(t.Context(), refused)
	if !errors.Is(err, errBoom) || err.Error() != refused.refusal.Error() {
		t.Errorf("error %q, want %q", err, refused.refusal)
	}
	if rec.Event != refused.String() || rec.Err != errBoom.Error() {
		t.Errorf("the record of event %q has error %q, want %q", rec.Event, rec.Err, errBoom)
	}
}

func TestStep1RefusesTheEventOfACallerThatLeft(t *testing.T) {
	w := ready(t)
	w.forget()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errBoom)
	if rec, err := w.Do(ctx, &addPod{pod: "p", sandbox: "a"}); !errors.Is(err, errBoom) || rec == nil ||
		w.called() != "" {
		t.Errorf("%v, %v, calls %q", rec, err, w.called())
	}
}

func TestStep2DistinguishesUpdateAndResync(t *testing.T) {
	w := ready(t, quiet)
	rec := w.must(t, &addPod{pod: "p", sandbox: "a"})
	if rec.Kind != "update" || !rec.Atomic || w.called() != "first add, second add" {
		t.Errorf("update: kind %q, atomic %v, calls %s", rec.Kind, rec.Atomic, w.called())
	}
	for kind, calls := range map[eventloop.Resync]string{
		eventloop.Full: "first resync, second resync", eventloop.Upstream: "first resync, second resync",
		eventloop.Downstream: "",
	} {
		w.forget()
		rec = w.must(t, eventloop.Resynchronize{Kind: kind, Reason: "test"})
		if rec.Kind != kind.String() || rec.Atomic || w.called() != calls {
			t.Errorf("%s: kind %q, atomic %v, calls %s", kind, rec.Kind, rec.Atomic, w.called())
		}
	}
}

func TestStep3OrdersForwardOrReverse(t *testing.T) {
	w := ready(t, quiet)
	rec := w.must(t, &addPod{pod: "p", sandbox: "a"})
	if rec.Direction != "forward" || !slices.Equal(rec.Order, []string{"first", "second"}) {
		t.Errorf("add: %s %v", rec.Direction, rec.Order)
	}
	rec = w.must(t, &deletePod{"p", "a"})
	if rec.Direction != "reverse" || !slices.Equal(rec.Order, []string{"second", "first"}) {
		t.Errorf("delete: %s %v", rec.Direction, rec.Order)
	}
	if w.called() != "first add, second add, second delete, first delete" {
		t.Errorf("calls: %s", w.called())
	}
}

func TestStep4LeavesOutHandlersOfOtherEvents(t *testing.T) {
	w := newWorld(t, quiet)
	eventloop.On(w.Loop, "third", func(context.Context, *deletePod, *eventloop.Txn) error {
		w.call("third delete")
		return nil
	})
	eventloop.On(w.Loop, "every removal", func(context.Context, eventloop.Removal, *eventloop.Txn) error {
		w.call("removal")
		return nil
	})
	w.run(t)
	rec := w.must(t, &addPod{pod: "p", sandbox: "a"})
	if w.called() != "first add, second add" || !slices.Equal(rec.LeftOut, []string{"third", "every removal"}) {
		t.Errorf("calls %s, left out %v", w.called(), rec.LeftOut)
	}
	w.forget()
	w.must(t, &deletePod{"p", "a"})
	if w.called() != "removal, third delete, second delete, first delete" {
		t.Errorf("calls: %s", w.called())
	}
}

func TestStep5OpensTheRecord(t *testing.T) {
	w := ready(t)
	before := w.last(t).Seq
	rec := w.must(t, &addPod{pod: "p", sandbox: "a"})
	if rec.Seq != before+1 || rec.Event != "add p/a" || rec.Type != "eventloop_test.addPod" {
		t.Errorf("record: %+v", rec)
	}
	if rec.Arrived.IsZero() || rec.Started.Before(rec.Arrived) || rec.Queued != rec.Started.Sub(rec.Arrived) {
		t.Errorf("times: arrived %v, started %v, queued %v", rec.Arrived, rec.Started, rec.Queued)
	}
	if got := w.committer.Changes(); got[len(got)-1].Event != rec.Seq {
		t.Errorf("the change names event %d, want %d", got[len(got)-1].Event, rec.Seq)
	}
}

func TestStep6AnnouncesTheEventOnce(t *testing.T) {
	w := ready(t)
	w.failIn["second"] = errBoom
	if _, err := w.Do(t.Context(), &deletePod{"p", "a"}); !errors.Is(err, errBoom) {
		t.Fatal(err)
	}
	began := `msg="event began" seq=2 event="delete p/a" kind=update direction=reverse`
	if strings.Count(w.logged.String(), "level=INFO") != 1 || !strings.Contains(w.logged.String(), began) {
		t.Errorf("logged:\n%s", w.logged)
	}
}
