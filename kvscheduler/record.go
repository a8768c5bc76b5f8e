package kvscheduler

import (
	"cmp"
	"encoding/json"
	"iter"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/weftnet/weft/kvscheduler/plan"
)

// Record tells what one request did: asked, planned, done, undone and left waiting. Values in it are redacted.
type Record struct {
	Seq   uint64 `json:"seq"`
	Event uint64 `json:"event,omitempty"` // Txn.Event
	// txn, plan, resync, report (a resync that is a dry run), retry
	Origin   string        `json:"origin"`
	Source   string        `json:"source,omitempty"`
	Label    string        `json:"label,omitempty"`
	Merged   []uint64      `json:"merged,omitempty"` // transactions served by the same plan
	Start    time.Time     `json:"start"`
	Queued   time.Duration `json:"queued"`
	PlanTook time.Duration `json:"plan_took"`
	Took     time.Duration `json:"took"`
	Changed  int           `json:"changed"` // desired values that changed
	Ops      []OpRecord    `json:"ops"`
	Pending  []Why         `json:"pending,omitempty"` // what waits after this record, and for what
	Undone   bool          `json:"undone,omitempty"`  // everything is as it was before
	// it failed after it had begun, and was taken back as far as that went
	Rollback bool   `json:"rollback,omitempty"`
	Err      string `json:"err,omitempty"`
}

// OpRecord is one planned or executed operation.
type OpRecord struct {
	Ref     string        `json:"ref"`
	Verb    string        `json:"verb"`
	Why     string        `json:"why"` // desired, dep:<ref>, recreate, drift, retry, undo
	Level   int           `json:"level"`
	Batch   int           `json:"batch"` // number of the backend call within the record, from 1; 0: not called
	At      time.Duration `json:"at"`
	Took    time.Duration `json:"took"`
	Attempt int           `json:"attempt,omitempty"`
	Old     any           `json:"old,omitempty"` // redacted
	New     any           `json:"new,omitempty"` // redacted
	Err     string        `json:"err,omitempty"`
	// applied, not applied, unknown, skipped, or the result of a read back
	Outcome string `json:"outcome,omitempty"`
}

// Why is an object that waits, and for what.
type Why struct {
	Ref     string   `json:"ref"`
	Missing []string `json:"missing"`
	Lost    bool     `json:"lost,omitempty"` // it was applied before
}

// TakenDown returns the objects that the record deleted although a source desires them, and that wait now.
func (r *Record) TakenDown() (refs []string) {
	for _, w := range r.Pending {
		isDeleted := func(op OpRecord) bool {
			return op.Ref == w.Ref && op.Verb == Delete.String() && op.Outcome == outcomeApplied
		}
		if w.Lost && slices.ContainsFunc(r.Ops, isDeleted) {
			refs = append(refs, w.Ref)
		}
	}
	return refs
}

// Difference is an object that is not as desired.
type Difference struct {
	Ref        Ref
	Want, Have any // redacted; nil: not desired, or missing
	Reason     string
}

// record begins the record of an operation. Values are redacted here, before they leave the state's goroutine.
func (r *run) record(o plan.Op) OpRecord {
	n := r.g.Node(o.ID)
	rec := OpRecord{Ref: n.Ref.String(), Verb: o.Verb.String(), Why: r.because(n), Level: int(o.Level)}
	if o.Verb != Create {
		rec.Old = kindOf(n).redact(n.Have)
	}
	if o.Verb != Delete {
		rec.New = kindOf(n).redact(n.Want)
	}
	return rec
}

// because says why an operation is in the plan.
func (r *run) because(n *plan.Node) string {
	if r.why == "undo" {
		return "undo"
	}
	if cause, torn := r.planned.Cause(n); torn {
		return "dep:" + cause.Ref.String()
	}
	switch {
	case n.Recreated():
		return "recreate"
	case n.Drifted:
		return "drift"
	case r.why == retreating:
		if id, unmet := r.g.Unmet(n); unmet && id >= 0 {
			return "dep:" + r.name(id)
		}
		return r.why
	case r.planned.Asked(n):
		return r.why
	}
	if t, follows := r.planned.Followed(n); follows {
		return "dep:" + t.Ref.String()
	}
	return r.why
}

// weigh estimates the bytes of a record. Encoding each value would cost more than keeping it, so some of each kind
// stand for all.
func (r *run) weigh(rec *Record) int {
	const (
		perRecord = 300
		perOp     = 200
		sample    = 64
	)
	size := perRecord + len(rec.Err) + len(rec.Label)
	each := 0
	for i := range rec.Ops {
		o := &rec.Ops[i]
		if i%sample == 0 {
			each = r.weighValue(o.Ref, o.Old) + r.weighValue(o.Ref, o.New)
		}
		size += perOp + len(o.Ref) + len(o.Why) + len(o.Err) + each
	}
	for _, w := range rec.Pending {
		size += 50 + len(w.Ref)
		for _, m := range w.Missing {
			size += 16 + len(m)
		}
	}
	return size
}

func (r *run) weighValue(key string, v any) int {
	ref, err := ParseRef(key)
	if v == nil || err != nil || r.kinds[ref.Kind] == nil {
		return 0
	}
	b, err := r.kinds[ref.Kind].encode(v)
	if err != nil {
		return 0
	}
	return len(b)
}

// ring keeps the last records, bounded by number and by bytes.
type ring struct {
	mu      sync.Mutex
	records []*Record // oldest first
	sizes   []int
	bytes   int

	maxRecords, maxBytes int
	onDone               func(*Record)
	undelivered          []*Record
	delivering           bool
	delivered            sync.WaitGroup
}

func (l *ring) append(rec *Record, size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keepLocked(rec, size)
	if l.onDone == nil {
		return
	}
	l.undelivered = append(l.undelivered, rec)
	if more := len(l.undelivered) - l.maxRecords; more > 0 { // the hook is slow: as in the ring, the last ones stay
		l.undelivered = slices.Delete(l.undelivered, 0, more)
	}
	if !l.delivering {
		l.delivering = true
		l.delivered.Go(l.deliver)
	}
}

// keepLocked adds a record and drops the oldest ones over the bounds.
func (l *ring) keepLocked(rec *Record, size int) {
	l.records = append(l.records, rec)
	l.sizes = append(l.sizes, size)
	l.bytes += size
	drop := 0
	for drop < len(l.records)-1 && (len(l.records)-drop > l.maxRecords || l.bytes > l.maxBytes) {
		l.bytes -= l.sizes[drop]
		l.records[drop] = nil
		drop++
	}
	l.records = l.records[drop:]
	l.sizes = l.sizes[drop:]
}

// deliver calls the hook for each record in order, on a goroutine of its own: a slow hook does not delay the scheduler.
func (l *ring) deliver() {
	for {
		l.mu.Lock()
		if len(l.undelivered) == 0 {
			l.delivering = false
			l.mu.Unlock()
			return
		}
		rec := l.undelivered[0]
		l.undelivered = l.undelivered[1:]
		l.mu.Unlock()
		l.onDone(rec)
	}
}

func (l *ring) since(seq uint64) []*Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, r := range l.records {
		if r.Seq > seq {
			return append([]*Record(nil), l.records[i:]...)
		}
	}
	return nil
}

// Restore puts records of an earlier run into the log before Run: numbers continue after the highest of them. It skips
// damaged records: their number is zero, used twice, or above 2^63. Values in records are as JSON decodes them.
func (s *Scheduler) Restore(records []*Record) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	for _, r := range slices.SortedStableFunc(slices.Values(records), func(a, b *Record) int {
		return cmp.Compare(a.Seq, b.Seq)
	}) {
		raw, err := json.Marshal(r)
		if err != nil || r.Seq <= s.lastSeq || r.Seq > math.MaxInt64 {
			continue
		}
		s.log.keepLocked(r, len(raw))
		s.lastSeq = r.Seq
	}
}

// Log yields the records after since, oldest first.
func (s *Scheduler) Log(since uint64) iter.Seq[*Record] {
	return func(yield func(*Record) bool) {
		for _, r := range s.log.since(since) {
			if !yield(r) {
				return
			}
		}
	}
}
