package kvscheduler

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weftnet/weft/kvscheduler/plan"
)

// Outcome is a backend's knowledge about an operation that returned an error.
type Outcome uint8

const (
	// Unknown: timeout, lost connection. The object is read back before anything else happens to it.
	Unknown Outcome = iota
	// NotApplied: the backend refused the operation, which has no effect.
	NotApplied
)

// String returns the word used in records.
func (o Outcome) String() string {
	if o == NotApplied {
		return "not applied"
	}
	return "unknown"
}

// OpError is an error of a backend that knows more than that the operation failed.
type OpError struct {
	Err       error
	Outcome   Outcome
	Permanent bool // the same value can never succeed: no retry until it or a dependency changes
}

// Error returns the message of Err.
func (e *OpError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *OpError) Unwrap() error { return e.Err }

// Refused returns an error for an operation without effect.
func Refused(err error) error { return &OpError{Err: err, Outcome: NotApplied} }

// Errors that callers decide on.
var (
	// ErrCycle is wrapped with the path of the dependency cycle.
	ErrCycle = plan.ErrCycle
	// ErrConflict: the key belongs to another source.
	ErrConflict = errors.New("owned by another source")
	// ErrPruneGuard: a resync found more to prune than MaxPrune allows, and did not prune that kind.
	ErrPruneGuard = errors.New("prune guard")
	// ErrIncomplete is wrapped with the refs of objects that a rollback could not restore; they are retried.
	ErrIncomplete = errors.New("rollback incomplete")
	// ErrUnknownKind: the kind is not registered.
	ErrUnknownKind = errors.New("unknown kind")
	// ErrInvalid: Validate refused a value.
	ErrInvalid = errors.New("invalid value")
	// ErrPending: a transaction with NoPending would leave an object waiting.
	ErrPending = errors.New("dependency not met")
	// ErrDown is for backends to wrap: the peer cannot be reached. The lane pauses, no attempt is counted, until a
	// resync reopens it or a probe is due.
	ErrDown = errors.New("backend is down")
	// ErrStopped: Run has ended.
	ErrStopped = errors.New("scheduler stopped")
)

// failedOps are operations that failed for the same cause.
type failedOps struct {
	verb  Verb
	refs  []Ref
	cause error
}

// mostNamed is how many objects an error names, and how many different errors it holds.
const mostNamed = 8

// Error names the objects, and the cause once.
func (f *failedOps) Error() string {
	names := make([]string, 0, mostNamed)
	for _, r := range f.refs[:min(len(f.refs), mostNamed)] {
		names = append(names, r.String())
	}
	text := f.verb.String() + " " + strings.Join(names, ", ")
	if more := len(f.refs) - mostNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + ": " + f.cause.Error()
}

// Unwrap returns the cause.
func (f *failedOps) Unwrap() error { return f.cause }

// joined joins errors, and merges operations that failed for the same cause into one error.
func joined(errs []error) error {
	var list []error
	same := make(map[string]*failedOps)
	for _, err := range errs {
		f, isOps := err.(*failedOps) //nolint:errorlint // one that is wrapped says more than its cause
		if !isOps {
			list = append(list, err)
			continue
		}
		key := f.verb.String() + " " + f.cause.Error()
		if known := same[key]; known != nil {
			known.refs = append(known.refs, f.refs...)
			continue
		}
		group := &failedOps{verb: f.verb, refs: append([]Ref(nil), f.refs...), cause: f.cause}
		same[key] = group
		list = append(list, group)
	}
	if more := len(list) - mostNamed; more > 0 {
		list = append(list[:mostNamed:mostNamed], fmt.Errorf("and %d more", more))
	}
	return errors.Join(list...)
}
