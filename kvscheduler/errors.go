package kvscheduler

import "errors"

// Outcome is what a backend knows about an operation that returned an error.
type Outcome uint8

const (
	// Unknown: timeout, lost connection. The object is read back before anything else happens to it.
	Unknown Outcome = iota
	// NotApplied: the backend refused and nothing changed.
	NotApplied
)

// String returns the word used in records.
func (o Outcome) String() string {
	if o == NotApplied {
		return "not applied"
	}
	return "unknown"
}

// OpError is how a backend tells more than "it failed".
type OpError struct {
	Err       error
	Outcome   Outcome
	Permanent bool // the same value can never succeed: no retry until it or a dependency changes
}

// Error returns the message of Err.
func (e *OpError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *OpError) Unwrap() error { return e.Err }

// Refused says that an operation changed nothing.
func Refused(err error) error { return &OpError{Err: err, Outcome: NotApplied} }

// Errors that callers decide on.
var (
	// ErrCycle is wrapped with the path of the dependency cycle.
	ErrCycle = errors.New("dependency cycle")
	// ErrConflict: the key belongs to another source, or is derived from an object.
	ErrConflict = errors.New("owned by another source")
	// ErrPruneGuard: a resync found more to prune than MaxPrune allows, and pruned nothing of that kind.
	ErrPruneGuard = errors.New("prune guard")
	// ErrIncomplete is wrapped with the refs of what a rollback could not return; they are retried.
	ErrIncomplete = errors.New("rollback incomplete")
	// ErrUnknownKind: nobody registered this kind.
	ErrUnknownKind = errors.New("unknown kind")
	// ErrInvalid: Validate refused a value.
	ErrInvalid = errors.New("invalid value")
	// ErrPending: a transaction with NoPending would leave an object waiting.
	ErrPending = errors.New("dependency not met")
	// ErrDown is for backends to wrap: the peer cannot be reached. The lane pauses, no attempt is counted, until Lost
	// is called for one of its kinds or a probe is due.
	ErrDown = errors.New("backend is down")
	// ErrStopped: Run has ended.
	ErrStopped = errors.New("scheduler stopped")
)
