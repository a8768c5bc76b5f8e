package eventloop_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weftnet/weft/eventloop"
)

var errLacking = errors.New("no address yet")

// deferring is an addPod whose caller repeats it.
type deferring struct{ *addPod }

func (d *deferring) Defers(err error) bool { return errors.Is(err, errLacking) }

func TestADeferredEventMakesNoRecordAndHoldsBackNoReader(t *testing.T) {
	w := newWorld(t, quiet)
	var cause error
	undone := 0
	eventloop.On(w.Loop, "deferring", func(_ context.Context, _ *deferring, txn *eventloop.Txn) error {
		txn.OnRollback(func() error { undone++; return nil })
		return cause
	})
	w.run(t)
	before := len(w.History(0))
	for _, tt := range []struct {
		cause   error
		records int
	}{{errLacking, 0}, {errors.New("no such network"), 1}, {nil, 2}} {
		cause = tt.cause
		rec, err := w.Do(t.Context(), &deferring{&addPod{pod: "p", sandbox: "a"}})
		if !errors.Is(err, tt.cause) || (rec == nil) != errors.Is(tt.cause, errLacking) {
			t.Errorf("with %v: record %v, error %v", tt.cause, rec, err)
		}
		if n := len(w.History(0)) - before; n != tt.records {
			t.Errorf("with %v: %d records, want %d", tt.cause, n, tt.records)
		}
	}
	if undone != 2 {
		t.Errorf("%d attempts were undone, want 2", undone)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	read := 0
	for range w.Watch(ctx, 0) {
		if read++; read == before+2 {
			break
		}
	}
	if read != before+2 {
		t.Errorf("a reader got %d of %d records", read, before+2)
	}
}
