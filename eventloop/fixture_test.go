package eventloop_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/eventloop/eventlooptest"
)

var errBoom = errors.New("boom")

// addPod is an atomic event of a pod's sandbox.
type addPod struct {
	pod, sandbox string
	invalid      error
	filledIn     string // by a handler
}

func (a *addPod) String() string  { return "add " + a.pod + "/" + a.sandbox }
func (a *addPod) Subject() string { return a.sandbox }
func (a *addPod) Pod() string     { return a.pod }
func (a *addPod) Validate() error { return a.invalid }

// deletePod removes a sandbox.
type deletePod struct{ pod, sandbox string }

func (d *deletePod) String() string  { return "delete " + d.pod + "/" + d.sandbox }
func (d *deletePod) Subject() string { return d.sandbox }
func (d *deletePod) Removal()        {}

// change is a best-effort event.
type change struct {
	key   string
	value string
}

func (c *change) String() string   { return "change " + c.key + " to " + c.value }
func (c *change) BestEffort() bool { return true }

// unknown has no handler.
type unknown struct{}

func (unknown) String() string { return "something unknown" }

// world is a loop with two handlers that keep their values in memory:
// "first" the address of each sandbox, "second" its interface.
type world struct {
	*eventloop.Loop
	committer *eventlooptest.Committer
	saver     *eventlooptest.Saver
	logged    *syncBuffer

	mu    sync.Mutex
	calls []string

	addresses, interfaces map[string]string
	failIn                map[string]error // by handler; errors of "panic" panic
	onAdd                 func(ctx context.Context, a *addPod, txn *eventloop.Txn) error
}

type option func(*eventloop.Config)

func newWorld(t *testing.T, options ...option) *world {
	t.Helper()
	w := &world{
		committer: &eventlooptest.Committer{}, saver: &eventlooptest.Saver{}, logged: &syncBuffer{},
		addresses: map[string]string{}, interfaces: map[string]string{}, failIn: map[string]error{},
	}
	cfg := eventloop.Config{
		Committer: w.committer,
		Saver:     w.saver,
		Log:       slog.New(slog.NewTextHandler(w.logged, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Verify:    true,
		OnVerify:  func(found []string) { t.Errorf("verification found %v", found) },
	}
	for _, o := range options {
		o(&cfg)
	}
	w.Loop = eventloop.New(cfg)
	w.register("first", "address/", w.addresses)
	w.register("second", "interface/", w.interfaces)
	return w
}

// register adds the handlers with one prefix.
func (w *world) register(name, prefix string, memory map[string]string) {
	eventloop.On(w.Loop, name, func(ctx context.Context, a *addPod, txn *eventloop.Txn) error {
		w.call(name + " add")
		before, was := memory[a.sandbox]
		memory[a.sandbox] = a.pod
		txn.OnRollback(func() error {
			delete(memory, a.sandbox)
			if was {
				memory[a.sandbox] = before
			}
			return nil
		})
		txn.Put(prefix+a.sandbox, a.pod)
		txn.Save("attachments", prefix+a.sandbox, a.pod)
		a.filledIn += name + " "
		if w.onAdd != nil && name == "second" {
			return w.onAdd(ctx, a, txn)
		}
		return w.fail(name)
	})
	eventloop.On(w.Loop, name, func(_ context.Context, d *deletePod, txn *eventloop.Txn) error {
		w.call(name + " delete")
		txn.Delete(prefix + d.sandbox)
		txn.Save("attachments", prefix+d.sandbox, nil)
		txn.OnCommit(func() { delete(memory, d.sandbox) })
		return w.fail(name)
	})
	eventloop.On(w.Loop, name, func(_ context.Context, c *change, txn *eventloop.Txn) error {
		w.call(name + " " + c.String())
		memory[c.key] = c.value
		txn.Put(prefix+c.key, c.value)
		return w.fail(name)
	})
	w.OnResync(name, func(_ context.Context, txn *eventloop.Txn) error {
		w.call(name + " resync")
		for key, value := range memory {
			txn.Put(prefix+key, value)
		}
		return w.fail(name + " resync")
	})
}

func (w *world) fail(name string) error {
	err := w.failIn[name]
	if err != nil && err.Error() == "panic" {
		panic("handler " + name)
	}
	return err
}

// ready runs the world until the end of its start-up resync.
func ready(t *testing.T, options ...option) *world {
	t.Helper()
	w := newWorld(t, options...)
	w.run(t)
	return w
}

func (w *world) run(t *testing.T) {
	t.Helper()
	eventlooptest.Ready(t, w.Loop)
	w.forget()
	w.logged.reset()
}

// must handles an event that must succeed.
func (w *world) must(t *testing.T, ev eventloop.Event) *eventloop.Record {
	t.Helper()
	rec, err := w.Do(t.Context(), ev)
	if err != nil {
		t.Fatalf("%s: %v", ev, err)
	}
	return rec
}

// last returns the newest record.
func (w *world) last(t *testing.T) eventloop.Record {
	t.Helper()
	records := w.History(0)
	if len(records) == 0 {
		t.Fatal("no records")
	}
	return records[len(records)-1]
}

// call records the call of a handler.
func (w *world) call(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, what)
}

// called returns the calls of handlers since forget.
func (w *world) called() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.calls, ", ")
}

func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = nil
}

func quiet(c *eventloop.Config) { c.Verify = false }

// syncBuffer is a log's destination.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *syncBuffer) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.b.Reset()
}
