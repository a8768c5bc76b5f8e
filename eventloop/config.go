package eventloop

import (
	"context"
	"log/slog"
	"time"
)

// Setting gives a key a value; a nil Value takes it away.
type Setting struct {
	Key   string
	Value any
}

// Change is what one event asks of the [Committer].
type Change struct {
	Event  uint64 // the sequence number of the event's record
	Label  string // the event, in one line
	Atomic bool   // any failure of Set returns to the state before; else failures stay desired and are retried
	Resync Resync
	Scope  Scope // of a downstream resync

	// Set holds the values that change; for Upstream and Full it is all that is
	// desired, and what it does not name is to go; for Downstream it is empty.
	Set []Setting

	// External holds values that exist in external configuration only: a source
	// of its own, best effort, committed after Set and never failing it. As Set it
	// is the whole for Upstream and Full. A key that moves from External to Set
	// stands in both, with no value here: it is to be given up first.
	External []Setting
}

func (c Change) empty() bool { return c.Resync == None && len(c.Set) == 0 && len(c.External) == 0 }

// Outcome is what became of a [Change].
type Outcome struct {
	Transactions []uint64 // the Committer's own numbers
	Operations   int
	Undone       bool     // an Atomic change failed, and all is as before but for Stuck
	Stuck        []string // keys that could be neither undone nor applied
	Pending      []string // keys that wait for something

	// Refused are the keys of External that could not be desired at all, with the reasons. They exist as little as dropped values.
	Refused map[string]string
}

// Committer applies changes: the scheduler, seen from here. It must return soon
// after ctx ends. If an Atomic change fails and the Outcome does not say Undone,
// the loop commits the inverse. An error of any other change means that some keys
// are not applied yet; they stay desired, or are Stuck.
//
// If it also has a method Drift(context.Context) ([]string, error), the plan of a
// downstream resync by key, verification expects that to be empty after each event.
type Committer interface {
	Commit(ctx context.Context, c Change) (Outcome, error)
}

// Saved is one durable value; a nil Value deletes it.
type Saved struct {
	Bucket, Key string
	Value       any
}

// RecordsBucket is the bucket of the [Record] values that the loop saves itself;
// their keys are sequence numbers of twenty digits.
const RecordsBucket = "records"

// Saver makes values durable, in order and all or none: the state file, seen from
// here. An error means that nothing was kept.
type Saver interface {
	Save(ctx context.Context, saved []Saved) error
}

// ExternalCodec turns values into JSON and back, to merge external configuration over them.
type ExternalCodec interface {
	Encode(key string, value any) ([]byte, error)
	Decode(key string, b []byte) (any, error)
	Validate(key string, value any) error
}

// Healing bounds the delay before a resync that follows a failure; it doubles from one to the next.
type Healing struct {
	Min, Max time.Duration // default 1 s and 5 min
}

// Config is what a [Loop] is made of. Only Committer is needed.
type Config struct {
	Committer Committer
	Saver     Saver
	External  ExternalCodec
	Log       *slog.Logger
	Now       func() time.Time

	QueueMax       int           // events that may wait; default 4096
	UndoTimeout    time.Duration // for undoing an event, and for saving one; default 10 s
	CommitTimeout  time.Duration // for handling and committing one event; default 30 s
	HistoryRecords int           // default 1000
	HistoryBytes   int           // of the records as JSON; default 8 MiB
	Healing        Healing

	// OnRecord is told of each event that ended, before its caller is, also of those that never ran. It must neither wait nor
	// change or keep what the record refers to.
	OnRecord func(Record)

	Verify   bool           // rebuild and compare everything after each event
	OnVerify func([]string) // told what verification found, when it found something
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.OnRecord == nil {
		c.OnRecord = func(Record) {}
	}
	orDefault(&c.QueueMax, 4096)
	orDefault(&c.UndoTimeout, 10*time.Second)
	orDefault(&c.CommitTimeout, 30*time.Second)
	orDefault(&c.HistoryRecords, 1000)
	orDefault(&c.HistoryBytes, 8<<20)
	orDefault(&c.Healing.Min, time.Second)
	orDefault(&c.Healing.Max, 5*time.Minute)
	return c
}

func orDefault[T int | time.Duration](v *T, otherwise T) {
	if *v <= 0 {
		*v = otherwise
	}
}
