package eventloop

import (
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"strings"
	"time"
)

// Event is a notification or a request, with data that handlers fill in.
//
// An event may also have these methods, all optional:
//
//	Prepared() (since time.Time, refusal error)
//	                             when its caller began to collect its data (zero: now), and why the caller refuses it
//	Validate() error             refuses the event before it is queued
//	Subject() string             the attachment: a Removal of the same subject cancels the event
//	Pod() string                 the pod: a newer event of the same pod with another subject cancels the event
//	BestEffort() bool            a failure does not undo the rest; else the event is atomic
//	ResyncKind() Resync          makes the event a resync
//	ResyncScope() Scope          limits a downstream resync
//	Defers(error) bool           an atomic event that failed with this error before its commit is deferred: it makes no record, because its
//	                             caller repeats it, or reports the failure otherwise
//	Recorded() map[string]string the request, for the record; bounded, and without secrets
//
// All must be fast and pure. Each but Defers is called once, in the goroutine of the caller of Do.
type Event interface {
	// String names the event in one line for logs and records; it must not hold a secret.
	String() string
}

// Removal is an event that deletes something. Its handlers run in reverse order, and it is best effort.
type Removal interface {
	Event
	Removal()
}

// Resync is the kind of a resync.
type Resync uint8

// The kinds of resync.
const (
	None       Resync = iota // an update
	Upstream                 // rebuild the desired state, compare it with the known applied state
	Downstream               // read the applied state back, repair it
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

// rebuilds reports whether the handlers rebuild the whole desired state.
func (r Resync) rebuilds() bool { return r == Upstream || r == Full }

// Resynchronize is a resync event.
type Resynchronize struct {
	Kind   Resync
	Reason string
	Scope  Scope // for Downstream
}

// Scope limits a downstream resync. The zero value does not.
type Scope struct {
	Keys   []string // if set, only these keys and their dependents
	DryRun bool     // compare and report without a repair
	Force  bool     // prune any number of objects that are not desired; for Full too
}

func (s Scope) whole() bool { return len(s.Keys) == 0 && !s.DryRun }

// String returns, for example, "full resync: start". With a limited scope it returns only the reason.
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

// ResyncScope returns the scope.
func (r Resynchronize) ResyncScope() Scope { return r.Scope }

// ResyncKind returns the kind.
func (r Resynchronize) ResyncKind() Resync { return r.Kind }

// Validate rejects an unknown kind, and a scope of a kind that rebuilds the desired state.
func (r Resynchronize) Validate() error {
	if r.Kind == None || r.Kind > Full {
		return fmt.Errorf("unknown kind of resync: %d", r.Kind)
	}
	if r.Kind != Downstream && !r.Scope.whole() {
		return fmt.Errorf("a %s resync has no scope", r.Kind)
	}
	return nil
}

// traits are the results of the methods of an event.
type traits struct {
	name       string
	typ        string
	subject    string
	pod        string
	since      time.Time // when the caller began to prepare the event; zero: now
	refusal    error     // of the caller
	removal    bool
	bestEffort bool
	resync     Resync
	scope      Scope
}

// atomic reports whether a failure undoes the event.
func (t traits) atomic() bool { return !t.bestEffort && t.resync == None }

// traitsOf calls the methods of ev. The caller recovers from a panic.
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
	if p, ok := ev.(interface{ Prepared() (time.Time, error) }); ok {
		t.since, t.refusal = p.Prepared()
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
		t.removal = true
		t.bestEffort = true
	}
	return t
}

// Errors for errors.Is.
var (
	// ErrQueueFull: too many events are queued; the text has their number.
	ErrQueueFull = errors.New("event queue is full")
	// ErrCancelled: a removal or a newer event cancelled the event; the text names it.
	ErrCancelled = errors.New("cancelled")
	// ErrStopped: the loop has ended.
	ErrStopped = errors.New("event loop stopped")
	// ErrNotReady: the deadline of the event passed before the start-up resync ended.
	ErrNotReady = errors.New("start-up resync has not ended")
	// ErrInsideHandler: Do was called with a handler's context.
	ErrInsideHandler = errors.New("called from inside a handler")
	// ErrNotSaved: the event was committed but could not be made durable.
	ErrNotSaved = errors.New("state not saved")
	// ErrNoHandler: no handler handles the event.
	ErrNoHandler = errors.New("no handler for this event")
	// ErrInvalid: the validation of the event failed.
	ErrInvalid = errors.New("invalid event")
)

// maxStack limits the stack in a record: the frames near the panic matter.
const maxStack = 8 << 10

// panicError is a panic of a handler, a codec, the Committer or the Saver.
type panicError struct {
	value any
	stack string
}

// Error returns the value of the panic.
func (p *panicError) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// protect returns a panic of f as an error.
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
