package drift

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/eventloop/eventlooptest"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

// unreadable is a backend whose objects cannot be read.
type unreadable struct {
	kvscheduler.Backend[kvschedulertest.Thing, int]
}

func (unreadable) Dump(
	context.Context, kvscheduler.View,
) iter.Seq2[kvscheduler.Actual[kvschedulertest.Thing, int], error] {
	return func(yield func(kvscheduler.Actual[kvschedulertest.Thing, int], error) bool) {
		yield(kvscheduler.Actual[kvschedulertest.Thing, int]{}, errors.New("no reply, on purpose"))
	}
}

// The repair of what was found does not make up for what could not be compared.
func TestAnAuditThatCannotCompareAllObjectsSaysSo(t *testing.T) {
	m := kvschedulertest.New()
	s := kvscheduler.New(kvscheduler.Config{})
	a, err := kvschedulertest.Register(s, m.Descriptor("a", "one"))
	if err != nil {
		t.Fatal(err)
	}
	b := m.Descriptor("b", "two")
	b.Backend = unreadable{b.Backend}
	if err := kvscheduler.Register(s, b); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	if _, err := s.Commit(ctx, kvscheduler.Txn{
		Source: "test",
		Set:    []kvscheduler.Object{a.Put("1", kvschedulertest.Thing{})},
	}); err != nil {
		t.Fatal(err)
	}
	m.Tamper(kvscheduler.Ref{Kind: "a", Name: "1"}, nil)
	loop := eventloop.New(eventloop.Config{Committer: &eventlooptest.Committer{}})
	eventlooptest.Ready(t, loop)
	d := New(Config{Scheduler: s, Loop: loop, Log: slog.New(slog.DiscardHandler), Period: time.Hour, Repairs: true})
	result := d.audit(ctx)
	if len(result.Found) != 1 || result.Found[0].Ref != "a/1" || !result.Repaired {
		t.Errorf("the audit found %+v, repaired %t, want a/1 repaired", result.Found, result.Repaired)
	}
	if result.Err == nil || !strings.Contains(result.Err.Error(), "dump b: no reply, on purpose") {
		t.Errorf("error %v, want that b could not be compared", result.Err)
	}
}
