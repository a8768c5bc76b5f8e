package eventloop

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
)

// maxChanges bounds the keys that a record lists of one handler.
const maxChanges = 256

// Txn collects what the handlers of one event want done. It belongs to the
// handler only while that runs.
type Txn struct {
	desired func(key string) any // what this source desires already

	settings  []Setting
	index     map[string]int // of a key in settings
	saved     []Saved
	onCommit  []func()
	undo      []undo
	followUps []Event

	handler  string   // that runs now
	changes  []string // that it made
	errs     []error  // of programming, since it began
	remerge  []string // keys whose external configuration changed
	unlisted int      // changes beyond maxChanges
}

type undo struct {
	handler string
	invert  func() error
}

func newTxn(desired func(string) any) *Txn {
	return &Txn{desired: desired, index: make(map[string]int)}
}

// Put asks for key to hold value. The value belongs to the loop from now on and
// must not change; nil is an error of the event.
func (t *Txn) Put(key string, value any) {
	if isNil(value) {
		t.errs = append(t.errs, fmt.Errorf("put %q: the value is nil", key))
		return
	}
	t.set(Setting{key, value})
	t.note("put " + key)
}

// Delete asks for key to be gone. Deleting what is not there is no error.
func (t *Txn) Delete(key string) {
	t.set(Setting{Key: key})
	t.note("delete " + key)
}

// Get returns the value that key is to hold: the one put here, else the last one
// desired; nil if there is none.
func (t *Txn) Get(key string) any {
	if i, ok := t.index[key]; ok {
		return t.settings[i].Value
	}
	return t.desired(key)
}

// Save makes a value durable, together with the event itself, after the commit and
// before the reply. A nil value deletes.
func (t *Txn) Save(bucket, key string, value any) {
	t.saved = append(t.saved, Saved{bucket, key, value})
}

// OnCommit registers what concludes the event once it is committed and durable;
// removals that share a commit are concluded before it, since a removal is never
// undone. It must not fail.
func (t *Txn) OnCommit(f func()) { t.onCommit = append(t.onCommit, f) }

// OnRollback registers the inverse of a change that the handler just made to its
// own memory. Inverses run newest first, those of the failing handler included.
func (t *Txn) OnRollback(f func() error) { t.undo = append(t.undo, undo{t.handler, f}) }

// FollowUp queues an event to be handled before any other once this one has ended
// well. Its record names this one as its cause.
func (t *Txn) FollowUp(ev Event) { t.followUps = append(t.followUps, ev) }

// wants tells whether a handler put key.
func (t *Txn) wants(key string) bool {
	i, ok := t.index[key]
	return ok && t.settings[i].Value != nil
}

func (t *Txn) set(s Setting) {
	if s.Key == "" {
		t.errs = append(t.errs, errors.New("a key is empty"))
		return
	}
	if i, ok := t.index[s.Key]; ok {
		t.settings[i] = s
		return
	}
	t.index[s.Key] = len(t.settings)
	t.settings = append(t.settings, s)
}

func (t *Txn) note(change string) {
	if len(t.changes) < maxChanges {
		t.changes = append(t.changes, change)
		return
	}
	t.unlisted++
}

// begin makes what follows the work of a handler.
func (t *Txn) begin(handler string) {
	t.handler, t.changes, t.errs, t.unlisted = handler, nil, nil, 0
}

// end returns what the handler changed, and its errors of programming.
func (t *Txn) end() ([]string, error) {
	if t.unlisted > 0 {
		t.changes = append(t.changes, fmt.Sprintf("and %d more", t.unlisted))
	}
	return t.changes, errors.Join(t.errs...)
}

// commit runs what concludes the event, in order; a panic is an error of that one only.
func (t *Txn) commit() error {
	var errs []error
	for _, f := range t.onCommit {
		errs = append(errs, protect(func() error { f(); return nil }))
	}
	return errors.Join(errs...)
}

// rollback runs the inverses, newest first, all of them. It returns the handlers
// whose inverse failed.
func (t *Txn) rollback() (stuck []string, err error) {
	var errs []error
	for _, u := range slices.Backward(t.undo) {
		if err := protect(u.invert); err != nil {
			stuck = append(stuck, "handler "+u.handler)
			errs = append(errs, fmt.Errorf("undo of %s: %w", u.handler, err))
		}
	}
	return stuck, errors.Join(errs...)
}

func isNil(value any) bool {
	if value == nil {
		return true
	}
	v := reflect.ValueOf(value)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

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
