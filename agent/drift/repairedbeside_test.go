package drift

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/test/must"
)

// machine has objects that a program may change; creation of those in refuse fails.
type machine struct {
	mu     sync.Mutex
	have   map[string]int
	refuse map[string]bool
}

func (m *machine) Create(_ context.Context, batch []kvscheduler.Item[int, struct{}]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range batch {
		it := &batch[i]
		if m.refuse[it.Name] {
			it.Err = &kvscheduler.OpError{
				Err:       errors.New("a route already exists"),
				Outcome:   kvscheduler.NotApplied,
				Permanent: true,
			}
			continue
		}
		m.have[it.Name] = it.Want
	}
}

func (m *machine) Update(ctx context.Context, b []kvscheduler.Item[int, struct{}]) { m.Create(ctx, b) }

func (m *machine) Delete(_ context.Context, batch []kvscheduler.Item[int, struct{}]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range batch {
		delete(m.have, batch[i].Name)
	}
}

func (m *machine) Dump(context.Context, kvscheduler.View) iter.Seq2[kvscheduler.Actual[int, struct{}], error] {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []kvscheduler.Actual[int, struct{}]
	for n, v := range m.have {
		all = append(all, kvscheduler.Actual[int, struct{}]{Name: n, V: v})
	}
	return func(yield func(kvscheduler.Actual[int, struct{}], error) bool) {
		for _, a := range all {
			if !yield(a, nil) {
				return
			}
		}
	}
}

func (m *machine) refuses(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuse[name] = true
}

func (m *machine) lose(names ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range names {
		delete(m.have, n)
	}
}

func (m *machine) has(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, has := m.have[name]
	return has
}

type resyncs struct{ s *kvscheduler.Scheduler }

// Commit is what agent/commit.go does with a downstream resync.
func (r resyncs) Commit(ctx context.Context, ch eventloop.Change) (eventloop.Outcome, error) {
	if ch.Resync != eventloop.Downstream {
		return eventloop.Outcome{}, nil
	}
	opt := kvscheduler.ResyncOpt{DryRun: ch.Scope.DryRun}
	for _, key := range ch.Scope.Keys {
		ref, _ := kvscheduler.ParseRef(key)
		opt.Refs = append(opt.Refs, ref)
	}
	_, err := r.s.Resync(ctx, opt)
	return eventloop.Outcome{}, err
}

// A pod whose repair fails does not keep an object that was repaired in the same check from being repaired when it
// drifts again.
func TestObjectRepairedBesideAFailedOneIsRepairedAgain(t *testing.T) {
	m := &machine{have: map[string]int{}, refuse: map[string]bool{}}
	s := kvscheduler.New(kvscheduler.Config{Sources: []string{"test"}})
	err := kvscheduler.Register(s, kvscheduler.Descriptor[int, struct{}]{
		Name:    "t",
		Lane:    "t",
		Equal:   func(a, b int) bool { return a == b },
		Backend: m,
	})
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	loop := eventloop.New(eventloop.Config{Committer: resyncs{s}})
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	running.Go(func() { _ = loop.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	s.Ready("test")
	_, err = loop.Do(ctx, eventloop.Resynchronize{Kind: eventloop.Full, Reason: "start"})
	must.Succeed(t, err)
	txn := kvscheduler.Txn{Source: "test", Mode: kvscheduler.Atomic}
	for _, key := range []string{"t/hostile", "t/other"} {
		o, err := s.Object(key, 1)
		must.Succeed(t, err)
		txn.Set = append(txn.Set, o)
	}
	_, err = s.Commit(ctx, txn)
	must.Succeed(t, err)
	d := New(Config{Scheduler: s, Loop: loop, Log: slog.New(slog.DiscardHandler), Period: time.Hour, Repairs: true})
	m.refuses("hostile")
	m.lose("hostile", "other")
	for n := range 3 {
		d.check(ctx, "t", kvscheduler.ResyncOpt{Kinds: []kvscheduler.Kind{"t"}})
		if !m.has("other") {
			t.Fatalf("check %d does not repair the other pod's object", n)
		}
		m.lose("other")
	}
}
