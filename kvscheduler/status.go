package kvscheduler

import (
	"iter"
	"time"
)

// Phase is where an object stands.
type Phase uint8

const (
	// Absent: neither desired nor known.
	Absent Phase = iota
	// Pending: desired, some dependency is not applied; Status.Missing says which.
	Pending
	// Invalid: Validate refused the value, and nothing of an earlier one is left.
	Invalid
	// InSync: desired and applied.
	InSync
	// Drifted: read back different or missing, repair is planned.
	Drifted
	// Failed: the last operation failed; see Err, Attempt and RetryAt.
	Failed
	// Removing: no longer desired, or invalid, but its deletion failed or waits.
	Removing
	// Observed: an object that is not ours.
	Observed
)

// String returns the name of the phase.
func (p Phase) String() string {
	return [...]string{"Absent", "Pending", "Invalid", "InSync", "Drifted", "Failed", "Removing", "Observed"}[p]
}

// Status is what is known about one object.
type Status struct {
	Phase    Phase
	Err      error
	Missing  []string  // unmet dependencies
	Attempt  int       // failures in a row
	RetryAt  time.Time // zero: no retry by time
	Want     uint64    // revision of the desired value
	Have     uint64    // revision of the desired value that is applied
	Since    time.Time // when Phase was entered
	Children []Ref     // what was derived from it
}

// View is an immutable snapshot of the state. It never waits for a backend.
type View interface {
	// Applied returns the value and the backend's meta of an applied or observed object.
	Applied(Ref) (v, meta any, ok bool)
	// Desired returns the desired value.
	Desired(Ref) (v any, ok bool)
	// Status returns false for an object that no source desires and nobody has seen.
	Status(Ref) (Status, bool)
	// All yields the objects of a kind, in no particular order.
	All(Kind) iter.Seq2[string, Status]
	// Rev counts the changes of the state.
	Rev() uint64
}

// Applied returns the typed value of an applied object.
func Applied[V any](v View, k KindOf[V], name string) (V, bool) {
	if a, _, ok := v.Applied(k.Ref(name)); ok {
		t, is := a.(V)
		return t, is
	}
	var zero V
	return zero, false
}
