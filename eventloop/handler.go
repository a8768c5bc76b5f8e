package eventloop

import (
	"context"
	"slices"
	"sync"
)

// handler is one registration: of one event type, or of resyncs.
type handler struct {
	name   string
	own    bool // the loop's own: left out of the records' lists
	takes  func(Event) bool
	handle func(context.Context, Event, *Txn) error
	resync func(context.Context, *Txn) error
}

// registry holds the handlers in the order of their registration.
type registry struct {
	mu       sync.RWMutex
	handlers []handler
}

// On appends a handler for events of type E, which may be an interface. All
// handlers are to be registered before Run. They run in the order of their
// registration, in reverse for a [Removal]. A handler only builds txn and changes
// its own memory: it does not wait for anything outside, and does not keep txn.
func On[E Event](l *Loop, name string, h func(context.Context, E, *Txn) error) {
	l.registry.add(handler{
		name:   name,
		takes:  func(ev Event) bool { _, ok := ev.(E); return ok },
		handle: func(ctx context.Context, ev Event, txn *Txn) error { return h(ctx, ev.(E), txn) },
	})
}

// OnResync appends a handler that puts everything that it desires, from its own
// memory, into an empty txn. Verification calls it too and drops the txn, so it
// changes its memory in Txn.OnCommit only. If it fails, the resync commits nothing.
func (l *Loop) OnResync(name string, h func(context.Context, *Txn) error) {
	l.registry.add(handler{name: name, resync: h})
}

func (r *registry) add(h handler) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handlers = append(r.handlers, h)
}

// inOrder returns all handlers, in reverse if asked.
func (r *registry) inOrder(reverse bool) []handler {
	r.mu.RLock()
	defer r.mu.RUnlock()
	handlers := slices.Clone(r.handlers)
	if reverse {
		slices.Reverse(handlers)
	}
	return handlers
}

// handles tells whether h takes part in ev, which is a resync of this kind.
func (h handler) handles(ev Event, kind Resync) bool {
	if kind != None {
		return h.resync != nil && kind.rebuilds()
	}
	return h.takes != nil && h.takes(ev)
}

func (r *registry) handles(ev Event, kind Resync) bool {
	return slices.ContainsFunc(r.inOrder(false), func(h handler) bool { return h.handles(ev, kind) })
}

// call runs h for ev; a panic is its error.
func (h handler) call(ctx context.Context, ev Event, txn *Txn) error {
	return protect(func() error {
		if h.resync != nil {
			return h.resync(ctx, txn)
		}
		return h.handle(ctx, ev, txn)
	})
}

type insideHandler struct{}

// markInside marks a context as one that handlers get.
func markInside(ctx context.Context) context.Context {
	return context.WithValue(ctx, insideHandler{}, true)
}

func isInside(ctx context.Context) bool { return ctx.Value(insideHandler{}) != nil }
