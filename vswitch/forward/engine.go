package forward

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// Config says how an Engine is made.
type Config struct {
	Workers int          // 0: one
	Log     *slog.Logger // of ports that fail and come back; nil: none
}

// Engine forwards packets. Its Set, Add, Del and Publish methods, OpenTap and ClosePort belong to one goroutine, called
// control here; Counters, Drops and Events may be used by any. Changes are seen by the workers at Publish, all at once.
type Engine struct {
	log     *slog.Logger
	workers []*worker
	live    atomic.Pointer[snapshot]
	draft   *snapshot // control's; nil: nothing has changed since Publish
	events  chan Event
	stopped chan struct{}

	lostEvents atomic.Uint64
}

// New makes an engine that has table 0 of both families and nothing else. Run makes it forward.
func New(c Config) (*Engine, error) {
	if c.Workers < 0 {
		return nil, fmt.Errorf("%d workers", c.Workers)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{log: c.Log, events: make(chan Event, eventBacklog), stopped: make(chan struct{})}
	e.live.Store(newSnapshot())
	for id := range max(c.Workers, 1) {
		e.workers = append(e.workers, newWorker(e, id))
	}
	return e, nil
}

// Run forwards until ctx ends; then it closes all ports. Once only. ClosePort and Trace wait for it.
func (e *Engine) Run(ctx context.Context) error {
	defer close(e.stopped)
	g, ctx := errgroup.WithContext(ctx)
	for _, w := range e.workers {
		g.Go(func() error { return w.run(ctx) })
	}
	return g.Wait()
}

// Publish shows control's changes to the workers: one pointer is stored, whatever has changed.
func (e *Engine) Publish() {
	if e.draft != nil {
		e.live.Store(e.draft)
		e.draft = nil
	}
}

// edit returns control's draft of the next snapshot, begun from the live one.
func (e *Engine) edit() *snapshot {
	if e.draft == nil {
		e.draft = e.live.Load().clone()
	}
	return e.draft
}
