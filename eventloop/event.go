package eventloop

import (
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"strings"
)

// Event is what happened or is asked, with the data that handlers fill in.
//
// An event may also have these methods, all optional:
//
//	Load(context.Context) error  fetches what it needs before it is queued; only for Do
//	Validate() error             refuses it before it is queued, after Load
//	Subject() string             the attachment it is about: a Removal of the same subject cancels it
//	Pod() string                 the pod it is about: a newer event of the same pod with another subject cancels it
//	Key() string                 a Post replaces a queued Post of the same key, in its place
//	BestEffort() bool            failures are joined and the rest goes on; else all or nothing
//	ResyncKind() Resync          makes it a resync
//	ResyncScope() Scope          limits a downstream resync
//
// All but Load must be quick and pure. Validate, Load and the others are called
// once, in the goroutine of the caller of Do or Post.
type Event interface {
	// String names the event in one line for logs and records; it must not hold a secret.
	String() string
}

// Removal is an event that takes something away: its handlers run in reverse
// order, and a failing one does not stop the others.
type Removal interface {
	Event
	Removal()
}

// Resync says how much of the state an event rebuilds.
type Resync uint8

// The kinds of resync.
const (
	None       Resync = iota // an update
	Upstream                 // rebuild what is desired, compare it with what is known to be applied
	Downstream               // read back what is applied, repair it
	Full                     // both
)

var resyncNames = [...]string{None: "update", Upstream: "upstream", Downstream: "downstream", Full: "full"}

// String returns the name that records use.
func (r Resync) String() string {
	if int(r) < len(resyncNames) {
		return resyncNames[r]
	}
	return fmt.Sprintf("resync(%d)", r)
}

// rebuilds tells whether the kind asks the handlers for everything desired.
func (r Resync) rebuilds() bool { return r == Upstream || r == Full }

// Resynchronize is the ready-made resync event.
type Resynchronize struct {
	Kind   Resync
	Reason string
	Scope  Scope // for Downstream
}

// Scope limits a downstream resync. The zero value is a whole one.
type Scope struct {
	Keys   []string // if set, only these keys and what depends on them
	DryRun bool     // compare and report, repair nothing
	Force  bool     // prune objects that are not desired, however many; for Full too
}

func (s Scope) whole() bool { return len(s.Keys) == 0 && !s.DryRun }

// String returns, for example, "full resync: start"; a resync with a limited scope is named by its reason alone.
func (r Resynchronize) String() string {
	if !r.Scope.whole() {
		return r.Reason
	}
	text := fmt.Sprintf("%s resync: %s", r.Kind, r.Reason)
	if r.Scope.Force {
		text += " (forced)"
	}
	return text
}

// ResyncScope returns the scope asked for.
func (r Resynchronize) ResyncScope() Scope { return r.Scope }

// ResyncKind returns the kind asked for.
func (r Resynchronize) ResyncKind() Resync { return r.Kind }

// Key lets a burst of equal requests be one. Requests with a scope are not equal.
func (r Resynchronize) Key() string {
	if !r.Scope.whole() || r.Scope.Force {
		return ""
	}
	return "resync/" + r.Kind.String()
}

// Validate refuses an unknown kind, and a scope of a resync that rebuilds what is desired.
func (r Resynchronize) Validate() error {
	if r.Kind == None || r.Kind > Full {
		return fmt.Errorf("unknown kind of resync: %d", r.Kind)
	}
	if r.Kind != Downstream && !r.Scope.whole() {
		return fmt.Errorf("a %s resync has no scope", r.Kind)
	}
	return nil
}

// traits is what an event says about itself, asked once.
type traits struct {
	name       string
	typ        string
	subject    string
	pod        string
	key        string
	removal    bool
	bestEffort bool
	resync     Resync
	scope      Scope
}

// atomic tells whether the event is undone when any part of it fails.
func (t traits) atomic() bool { return !t.bestEffort && t.resync == None }

// traitsOf asks ev about itself. A panic of one of its methods is the caller's to catch.
func traitsOf(ev Event) traits {
	t := traits{
		name: ev.String(),
		typ:  strings.TrimPrefix(reflect.TypeOf(ev).String(), "*"),
	}
	if s, ok := ev.(interface{ Subject() string }); ok {
		t.subject = s.Subject()
	}
	if p, ok := ev.(interface{ Pod() string }); ok {
		t.pod = p.Pod()
	}
	if k, ok := ev.(interface{ Key() string }); ok {
		t.key = k.Key()
	}
	if b, ok := ev.(interface{ BestEffort() bool }); ok {
		t.bestEffort = b.BestEffort()
	}
	if r, ok := ev.(interface{ ResyncKind() Resync }); ok {
		t.resync = r.ResyncKind()
	}
	if r, ok := ev.(interface{ ResyncScope() Scope }); ok {
		t.scope = r.ResyncScope()
	}
	if _, ok := ev.(Removal); ok {
		t.removal, t.bestEffort = true, true
	}
	return t
}

// Errors that callers decide on, to be found with errors.Is.
var (
	// ErrQueueFull refuses an event because too many wait; the text says how many.
	ErrQueueFull = errors.New("event queue is full")
	// ErrCancelled ends an event that a removal or a newer event has overtaken; the text says which.
	ErrCancelled = errors.New("cancelled")
	// ErrStopped answers events that a loop which no longer runs cannot handle.
	ErrStopped = errors.New("event loop stopped")
	// ErrNotReady says that an event's deadline passed before the start-up resync had ended.
	ErrNotReady = errors.New("start-up resync has not ended")
	// ErrInsideHandler refuses Do and Post with a handler's context: Txn.FollowUp is the way.
	ErrInsideHandler = errors.New("called from inside a handler, use Txn.FollowUp")
	// ErrNotSaved says that an event was committed but could not be made durable.
	ErrNotSaved = errors.New("state not saved")
	// ErrNoHandler refuses an event that no handler handles.
	ErrNoHandler = errors.New("no handler for this event")
	// ErrInvalid refuses an event whose own validation failed.
	ErrInvalid = errors.New("invalid event")
)

// maxStack bounds the stack kept in a record: the frames near the panic are what matters.
const maxStack = 8 << 10

// panicError is a panic of foreign code (a handler, a codec, the committer) turned into an error.
type panicError struct {
	value any
	stack string
}

// Error returns what the code panicked with.
func (p *panicError) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// protect calls f and turns its panic into an error, so that the loop outlives foreign code.
func protect(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			stack := debug.Stack()
			err = &panicError{v, string(stack[:min(len(stack), maxStack)])}
		}
	}()
	return f()
}

// stackOf returns the stack of the first panic in err.
func stackOf(err error) string {
	if p, ok := errors.AsType[*panicError](err); ok {
		return p.stack
	}
	return ""
}
