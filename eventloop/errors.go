package eventloop

import (
	"errors"
	"fmt"
	"runtime/debug"
)

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
