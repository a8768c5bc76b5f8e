package eventloop

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
)

// maxChanges limits the keys of one handler in a record.
const maxChanges = 256

// Txn is the transaction that the handlers of one event build. A handler must not keep it.
type Txn struct {
	desired func(key string) any // the state before the event

	settings []Setting
	index    map[string]int // of a key in settings
	saved    []Saved
	onCommit []func()
	undo     []undo
	isPlan   bool

	handler         string   // the running handler
	changes         []string // of the running handler
	errs            []error  // misuse by the running handler
	touchedExternal []string // keys with changed external configuration
	unlisted        int      // changes beyond maxChanges
}

type undo struct {
	handler string
	invert  func() error
}

func newTxn(desired func(string) any) *Txn {
	return &Txn{desired: desired, index: make(map[string]int)}
}

// Put sets the desired value of key. The value must not change afterwards; nil is an error of the event.
func (t *Txn) Put(key string, value any) {
	if isNil(value) {
		t.errs = append(t.errs, fmt.Errorf("put %q: the value is nil", key))
		return
	}
	t.set(Setting{key, value})
	t.note("put " + key)
}

// Delete deletes key. It is no error if key has no value.
func (t *Txn) Delete(key string) {
	t.set(Setting{Key: key})
	t.note("delete " + key)
}

// Get returns the desired value of key, with the changes of this transaction; nil without one.
func (t *Txn) Get(key string) any {
	if i, ok := t.index[key]; ok {
		return t.settings[i].Value
	}
	return t.desired(key)
}

// Save makes a value durable, together with the record of the event, after the commit and before the reply. A nil value
// deletes.
func (t *Txn) Save(bucket, key string, value any) {
	t.saved = append(t.saved, Saved{bucket, key, value})
}

// OnCommit registers a function to be called once the event is committed and durable. For removals that share a commit
// it is called before the commit, because a removal is never undone.
func (t *Txn) OnCommit(f func()) { t.onCommit = append(t.onCommit, f) }

// OnRollback registers the undo of a change that the handler has made to its own memory. The newest undo runs first.
// The undos of the failing handler run too.
func (t *Txn) OnRollback(f func() error) { t.undo = append(t.undo, undo{t.handler, f}) }

// IsPlan reports whether the event is only planned. It is undone, and that is no failure.
func (t *Txn) IsPlan() bool { return t.isPlan }

// wants reports whether a handler put key.
func (t *Txn) wants(key string) bool {
	i, ok := t.index[key]
	return ok && t.settings[i].Value != nil
}

func (t *Txn) set(s Setting) {
	if s.Key == "" {
		t.errs = append(t.errs, errors.New("empty key"))
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

// begin starts the part of a handler.
func (t *Txn) begin(handler string) {
	t.handler = handler
	t.changes = nil
	t.errs = nil
	t.unlisted = 0
}

// end returns the changes of the handler, and its misuse of the Txn.
func (t *Txn) end() ([]string, error) {
	if t.unlisted > 0 {
		t.changes = append(t.changes, fmt.Sprintf("and %d more", t.unlisted))
	}
	return t.changes, errors.Join(t.errs...)
}

// commit calls the functions of OnCommit, in order, also after a panic of one of them.
func (t *Txn) commit() error {
	var errs []error
	for _, f := range t.onCommit {
		errs = append(errs, protect(func() error { f(); return nil }))
	}
	return errors.Join(errs...)
}

// rollback calls all functions of OnRollback, newest first. It returns the handlers with a failed undo.
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
	name     string
	internal bool // of the loop: not listed in records
	takes    func(Event) bool
	handle   func(context.Context, Event, *Txn) error
	resync   func(context.Context, *Txn) error
}

// registry holds the handlers in the order of their registration.
type registry struct {
	mu       sync.RWMutex
	handlers []handler
}

// On appends a handler for events of type E, which may be an interface. All handlers must be registered before Run.
// They run in the order of their registration, in reverse for a [Removal]. A handler only builds txn and changes its
// own memory: it must not wait for anything else.
func On[E Event](l *Loop, name string, h func(context.Context, E, *Txn) error) {
	l.registry.add(handler{
		name:   name,
		takes:  func(ev Event) bool { _, ok := ev.(E); return ok },
		handle: func(ctx context.Context, ev Event, txn *Txn) error { return h(ctx, ev.(E), txn) },
	})
}

// OnResync appends a handler that puts all its desired values, from its own memory, into an empty txn. It must change
// its memory only in Txn.OnCommit, because verification calls it too and discards the txn. If it fails, the resync does
// not commit.
func (l *Loop) OnResync(name string, h func(context.Context, *Txn) error) {
	l.registry.add(handler{name: name, resync: h})
}

func (r *registry) add(h handler) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handlers = append(r.handlers, h)
}

// inOrder returns all handlers.
func (r *registry) inOrder(reverse bool) []handler {
	r.mu.RLock()
	defer r.mu.RUnlock()
	handlers := slices.Clone(r.handlers)
	if reverse {
		slices.Reverse(handlers)
	}
	return handlers
}

// handles reports whether h handles ev, a resync of this kind.
func (h handler) handles(ev Event, kind Resync) bool {
	if kind != None {
		return h.resync != nil && kind.rebuilds()
	}
	return h.takes != nil && h.takes(ev)
}

func (r *registry) handles(ev Event, kind Resync) bool {
	return slices.ContainsFunc(r.inOrder(false), func(h handler) bool { return h.handles(ev, kind) })
}

// call returns a panic of h as an error.
func (h handler) call(ctx context.Context, ev Event, txn *Txn) error {
	return protect(func() error {
		if h.resync != nil {
			return h.resync(ctx, txn)
		}
		return h.handle(ctx, ev, txn)
	})
}

type insideHandler struct{}

// markInside marks the context of handlers.
func markInside(ctx context.Context) context.Context {
	return context.WithValue(ctx, insideHandler{}, true)
}

func isInside(ctx context.Context) bool { return ctx.Value(insideHandler{}) != nil }
