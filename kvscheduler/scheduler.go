package kvscheduler

import (
	"context"
	"io"
	"iter"
)

// Scheduler keeps applied objects equal to desired ones. Make it with New, register the kinds, then start Run.
type Scheduler struct {
	cfg Config
}

// New returns a scheduler without kinds.
func New(cfg Config) *Scheduler {
	cfg.defaults()
	return &Scheduler{cfg: cfg}
}

// Register adds a kind; it must come before Run.
func Register[V, M any](s *Scheduler, d Descriptor[V, M]) (KindOf[V], error) {
	return KindOf[V]{id: Kind(d.Name)}, nil
}

// Run owns the state until ctx ends.
func (s *Scheduler) Run(ctx context.Context) error { return ErrStopped }

// Commit changes the desired state, executes the plan and returns what was done. The Record is nil only if ctx ended or
// the scheduler stopped while the transaction was queued. The error joins whatever failed; under BestEffort the
// transaction stands and failures are retried, under Atomic everything is as before unless the error is ErrIncomplete.
func (s *Scheduler) Commit(ctx context.Context, t Txn) (*Record, error) { return nil, ErrStopped }

// Submit queues a transaction and does not wait; its Record carries the ticket.
func (s *Scheduler) Submit(t Txn) (ticket uint64, err error) { return 0, ErrStopped }

// Plan returns what Commit would do, with no backend call.
func (s *Scheduler) Plan(ctx context.Context, t Txn) (*Record, error) { return nil, ErrStopped }

// Resync reads everything back and repairs what differs.
func (s *Scheduler) Resync(ctx context.Context, o ResyncOpt) (*Record, error) { return nil, ErrStopped }

// Ready says that the desired state of a source is complete: pruning needs all of Config.Sources ready.
func (s *Scheduler) Ready(source string) {}

// Observe reports what was seen on the machine. It never blocks and never drops; the last report of a ref wins.
func (s *Scheduler) Observe(o Object) {}

// Lost says that reports of these kinds may have been missed: they are read back.
func (s *Scheduler) Lost(kinds ...Kind) {}

// View returns the last published snapshot.
func (s *Scheduler) View() View { return nil }

// Wait returns when every ref is in one of the phases (default: InSync or Observed).
func (s *Scheduler) Wait(ctx context.Context, refs []Ref, want ...Phase) error { return ErrStopped }

// Watch yields each object of the kinds (none: all), then each that changed. It is level-triggered: it may skip
// intermediate states of an object, never the last one.
func (s *Scheduler) Watch(ctx context.Context, kinds ...Kind) iter.Seq2[Ref, Status] { return nil }

// Log yields the records after since, oldest first.
func (s *Scheduler) Log(since uint64) iter.Seq[*Record] { return nil }

// WriteDOT draws the desired objects and their dependencies; around narrows it to these and their neighbours.
func (s *Scheduler) WriteDOT(w io.Writer, around ...Ref) error { return nil }

// Object makes an Object from a key "kind/name" and a value of the kind's type; nil deletes.
func (s *Scheduler) Object(key string, value any) (Object, error) { return Object{}, ErrUnknownKind }

// Encode returns the stored form of a value.
func (s *Scheduler) Encode(key string, value any) ([]byte, error) { return nil, ErrUnknownKind }

// Decode reads the stored form of a value.
func (s *Scheduler) Decode(key string, b []byte) (any, error) { return nil, ErrUnknownKind }

// Validate checks a value as admission would.
func (s *Scheduler) Validate(key string, value any) error { return ErrUnknownKind }

// Verify reads the named objects back (none: all desired ones), changes nothing, and returns what differs.
func (s *Scheduler) Verify(ctx context.Context, refs ...Ref) ([]Difference, error) {
	return nil, ErrStopped
}

// Why tells in plain words why an object is not in sync.
func (s *Scheduler) Why(ref Ref) []string { return nil }
