package kvscheduler

import "time"

// Mode says what a failure does to a transaction.
type Mode uint8

const (
	// BestEffort: failures stay as Failed and are retried.
	BestEffort Mode = iota
	// Atomic: any failure, also of a dependent of another source, returns everything to the previous desired state.
	Atomic
)

// Txn is a change of the desired state.
type Txn struct {
	Source    string // owner of the keys; another source that sets one of them gets ErrConflict
	Label     string // for people
	Event     uint64 // number of the event that asked, shown in the Record
	Mode      Mode
	Replace   bool // Set is the whole desired state of Source
	NoPending bool // Atomic only: an object of Set that would have to wait is a failure, found before any backend call
	Set       []Object
	Timeout   time.Duration // of the execution, not of the time in the queue; 0: no limit of its own
}

// ResyncOpt narrows a resync.
type ResyncOpt struct {
	Label    string  // for people
	Event    uint64  // number of the event that asked, shown in the Record
	Kinds    []Kind  // nil: all
	Refs     []Ref   // if set, only these objects, what they depend on directly, and all that depends on them
	DryRun   bool    // dump, compare and plan only
	MaxPrune float64 // most that may be pruned, as a share of the known objects of a kind; 0: half, or 16 if that is more
	Force    bool    // prune whatever was found, once all sources are ready

	// Reopen is called when all was read back, before the repair. If it returns true, the lanes of the kinds open: their
	// backends are back, and no operation relies on what they held before. nil: lanes stay as they are.
	Reopen func() bool
}

// Verb is what is done to an object.
type Verb uint8

// The verbs of an operation.
const (
	Create Verb = iota + 1
	Update
	Delete
	Read
)

// String returns the verb in lower case.
func (v Verb) String() string {
	return [...]string{"", "create", "update", "delete", "read"}[v]
}
