package kvscheduler_test

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

// refusing is a backend that can never make the value 1.
type refusing struct{ calls *atomic.Int32 }

func (b refusing) Create(_ context.Context, batch []intItem) {
	for i := range batch {
		if b.calls.Add(1); batch[i].Want == 1 {
			batch[i].Err = &kvscheduler.OpError{
				Err:       errors.New("no such type"),
				Outcome:   kvscheduler.NotApplied,
				Permanent: true,
			}
		}
	}
}
func (b refusing) Update(ctx context.Context, batch []intItem) { b.Create(ctx, batch) }
func (refusing) Delete(context.Context, []intItem)             {}

func (refusing) Dump(context.Context, kvscheduler.View) iter.Seq2[kvscheduler.Actual[int, int], error] {
	return func(func(kvscheduler.Actual[int, int], error) bool) {}
}

// A backend that can never make a value is not asked again and again: each call takes time from pods, and is logged.
func TestAPermanentFailureIsNotTriedAgainUntilTheValueChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		s := kvscheduler.New(kvscheduler.Config{})
		k, err := kvschedulertest.Register(s, kvscheduler.Descriptor[int, int]{
			Name: "x", Lane: "x", Equal: func(a, b int) bool { return a == b }, Backend: refusing{&calls},
		})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = s.Run(ctx) })
		defer running.Wait()
		defer cancel()
		if _, err := s.Commit(ctx, kvscheduler.Txn{Set: []kvscheduler.Object{k.Put("1", 1)}}); err == nil {
			t.Error("no error")
		}
		<-time.After(24 * time.Hour)
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls in a day, expected one", n)
		}
		if _, err := s.Commit(ctx, kvscheduler.Txn{Set: []kvscheduler.Object{k.Put("1", 2)}}); err != nil ||
			calls.Load() != 2 {
			t.Errorf("another value: %v, %d calls", err, calls.Load())
		}
	})
}
