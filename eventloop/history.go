package eventloop

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// history is the ring of records. It has its own mutex, so that it can be read while a commit hangs.
type history struct {
	maxRecords, maxBytes int

	mu      sync.Mutex
	entries []*entry // by sequence number
	bytes   int
	last    uint64        // the last sequence number
	running []uint64      // of the running events, in order
	evicted []uint64      // removed from the ring, to be deleted from the state file
	grown   chan struct{} // closed and replaced by add
	closed  bool
}

type entry struct {
	record Record
	size   int
	dirty  bool // to be saved
	stored bool // the state file has it, perhaps with fewer repeats
}

func newHistory(maxRecords, maxBytes int) *history {
	return &history{maxRecords: maxRecords, maxBytes: maxBytes, grown: make(chan struct{})}
}

// begin returns the sequence number of an event that starts to run.
func (h *history) begin() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	h.running = append(h.running, h.last)
	return h.last
}

// add adds the complete record of an event that began; saved means that it is durable.
func (h *history) add(r Record, saved bool) {
	e := newEntry(r)
	e.dirty = !saved
	e.stored = saved
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addLocked(e)
}

// forget ends an event that began and makes no record.
func (h *history) forget(seq uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running = slices.DeleteFunc(h.running, func(s uint64) bool { return s == seq })
	close(h.grown) // a later record may have waited for it
	h.grown = make(chan struct{})
}

// addRefused numbers and adds the record of an event that did not begin. Both are one step: a reader that follows the
// records in their order would otherwise miss it if a later number was published first.
func (h *history) addRefused(r *Record) {
	e := newEntry(*r)
	e.dirty = true
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	e.record.Seq = h.last
	r.Seq = h.last
	h.addLocked(e)
}

func newEntry(r Record) *entry {
	e := &entry{record: r.clone()}
	if b, err := json.Marshal(e.record); err == nil {
		e.size = len(b)
	}
	return e
}

func (h *history) addLocked(e *entry) {
	h.running = slices.DeleteFunc(h.running, func(seq uint64) bool { return seq == e.record.Seq })
	h.last = max(h.last, e.record.Seq)
	i, _ := slices.BinarySearchFunc(h.entries, e.record.Seq, bySeq)
	h.entries = slices.Insert(h.entries, i, e)
	h.bytes += e.size
	h.evictLocked()
	close(h.grown)
	h.grown = make(chan struct{})
}

// maxRepeatAge is the number of newest records in which repeats are counted.
const maxRepeatAge = 256

// repeat counts a refusal in the last record of the same event, if that was refused for the same reason.
func (h *history) repeat(r *Record) (known Record, repeats bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range slices.Backward(h.entries[max(0, len(h.entries)-maxRepeatAge):]) {
		if e.record.Event != r.Event || e.record.Type != r.Type {
			continue
		}
		if !e.record.Started.IsZero() || e.record.Err != r.Err || r.CancelledBy != "" {
			return Record{}, false
		}
		e.record.Repeats++
		e.record.Last = r.Arrived
		// save it at powers of two only: a plugin may repeat an ADD every 50 ms
		e.dirty = e.dirty || e.record.Repeats&(e.record.Repeats-1) == 0
		return e.record.clone(), true
	}
	return Record{}, false
}

func bySeq(e *entry, seq uint64) int { return cmp.Compare(e.record.Seq, seq) }

// evictLocked enforces the limits, but keeps the newest record.
func (h *history) evictLocked() {
	n := 0
	for len(h.entries)-n > 1 && (len(h.entries)-n > h.maxRecords || h.bytes > h.maxBytes) {
		if h.entries[n].stored {
			h.evicted = append(h.evicted, h.entries[n].record.Seq)
		}
		h.bytes -= h.entries[n].size
		n++
	}
	h.entries = slices.Delete(h.entries, 0, n)
}

// afterLocked returns the index of the first record after seq.
func (h *history) afterLocked(seq uint64) int {
	i, found := slices.BinarySearchFunc(h.entries, seq, bySeq)
	if found {
		i++
	}
	return i
}

// since returns copies of the records after seq.
func (h *history) since(seq uint64) []Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.afterLocked(seq)
	records := make([]Record, 0, len(h.entries)-i)
	for _, e := range h.entries[i:] {
		records = append(records, e.record.clone())
	}
	return records
}

// after returns the first record after seq, unless an event with a lower number still runs. Without a record, it
// returns the channel to wait for.
func (h *history) after(seq uint64) (r Record, ok bool, grown <-chan struct{}, closed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.afterLocked(seq)
	if i == len(h.entries) || len(h.running) > 0 && h.entries[i].record.Seq > h.running[0] {
		return Record{}, false, h.grown, h.closed
	}
	return h.entries[i].record.clone(), true, nil, false
}

func (h *history) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.running = nil
	close(h.grown)
	h.grown = make(chan struct{})
}

// unsaved returns the changes of records that are not durable yet, and a function to be called once they are.
func (h *history) unsaved() (saves []Saved, saved func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	evicted := slices.Clone(h.evicted)
	for _, seq := range evicted {
		saves = append(saves, Saved{Bucket: RecordsBucket, Key: recordKey(seq)})
	}
	var dirty []uint64
	for _, e := range h.entries {
		if e.dirty {
			dirty = append(dirty, e.record.Seq)
			saves = append(saves, Saved{RecordsBucket, recordKey(e.record.Seq), e.record.clone()})
		}
	}
	return saves, func() { h.markSaved(dirty, len(evicted)) }
}

func (h *history) markSaved(seqs []uint64, evicted int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.evicted = slices.Delete(h.evicted, 0, evicted)
	for _, seq := range seqs {
		if i, ok := slices.BinarySearchFunc(h.entries, seq, bySeq); ok {
			h.entries[i].dirty = false
			h.entries[i].stored = true
		}
	}
}

// History returns copies of the records with a sequence number above since. It does not wait for a running event.
func (l *Loop) History(since uint64) []Record { return l.history.since(since) }

// Watch yields the records with a sequence number above since, in order, and then new records, until ctx ends or the
// loop has stopped. It does not delay the loop: a slow reader loses the oldest records, which leaves a gap in Seq.
func (l *Loop) Watch(ctx context.Context, since uint64) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for ctx.Err() == nil {
			r, ok, grown, closed := l.history.after(since)
			if ok {
				since = r.Seq
				if !yield(r) {
					return
				}
				continue
			}
			if closed {
				return
			}
			select {
			case <-grown:
			case <-ctx.Done():
			}
		}
	}
}

// Restore adds saved records, before Run; sequence numbers continue after them. It skips damaged records: their number
// is zero, used twice, or above 2^63.
func (l *Loop) Restore(records []Record) {
	known := map[uint64]bool{0: true}
	for _, r := range records {
		if known[r.Seq] || r.Seq > math.MaxInt64 {
			continue
		}
		known[r.Seq] = true
		l.history.add(r, true)
	}
}

// Record describes one event. It contains keys, never values.
type Record struct {
	Seq     uint64            `json:"seq"`
	Event   string            `json:"event"`
	Type    string            `json:"type"`
	Arrived time.Time         `json:"arrived"`
	Request map[string]string `json:"request,omitempty"`

	Course
	Effect
	Failure
	Repetition
}

// Course is how an event ran.
type Course struct {
	Kind      string       `json:"kind,omitempty"`      // update, or the kind of resync; empty if the event did not run
	Direction string       `json:"direction,omitempty"` // forward or reverse
	Atomic    bool         `json:"atomic,omitempty"`
	Order     []string     `json:"order,omitempty"`    // the handlers of the event
	LeftOut   []string     `json:"left_out,omitempty"` // the other handlers
	Steps     []Step       `json:"steps,omitempty"`
	Handlers  []HandlerRun `json:"handlers,omitempty"`

	Started time.Time     `json:"started,omitzero"` // zero if the event did not run
	Queued  time.Duration `json:"queued"`
	Took    time.Duration `json:"took"` // since it started
}

// Effect has the changes of an event.
type Effect struct {
	Changes  int    `json:"changes,omitempty"`
	External int    `json:"external,omitempty"` // values of external configuration that were merged
	Drops    []Drop `json:"drops,omitempty"`    // invalid values of external configuration

	Transactions []uint64 `json:"transactions,omitempty"`
	// events that were committed in the same transactions: removals
	SharedWith []uint64 `json:"shared_with,omitempty"`
	// of the transactions; of shared ones those on the keys that this event set
	Operations int      `json:"operations,omitempty"`
	Pending    []string `json:"pending,omitempty"`
	TakenDown  []string `json:"taken_down,omitempty"` // of the pending keys, those that were applied before the event
}

// Failure has the error of an event, and the fate of its changes.
type Failure struct {
	Err         string   `json:"err,omitempty"`
	Stack       string   `json:"stack,omitempty"` // of a panic
	CancelledBy string   `json:"cancelled_by,omitempty"`
	Verify      []string `json:"verify,omitempty"` // differences that verification found
	Undone      bool     `json:"undone,omitempty"`
	Stuck       []string `json:"stuck,omitempty"` // keys and handlers that could not be applied or undone
}

// Repetition counts further refusals for the same reason, of an event that did not run.
type Repetition struct {
	Repeats int       `json:"repeats,omitempty"`
	Last    time.Time `json:"last,omitzero"` // when the last one arrived
}

// Drop is an invalid value of external configuration. Every event that changes its key has it in its record.
type Drop struct {
	Key    string `json:"key"`
	Source string `json:"source"`
	Reason string `json:"reason"`
}

// Step is the time of one of the thirteen steps. Number 9 is there twice: commit and save. Removals that share a commit
// have the time of the shared steps, and "adopt" before them.
type Step struct {
	Number int           `json:"number"`
	Name   string        `json:"name"`
	Took   time.Duration `json:"took"`
	Err    string        `json:"err,omitempty"`
}

// HandlerRun is the part of one handler in an event.
type HandlerRun struct {
	Name    string        `json:"name"`
	Took    time.Duration `json:"took"`
	Err     string        `json:"err,omitempty"`
	Changes []string      `json:"changes,omitempty"` // "put KEY", "delete KEY"
}

// String returns the record in one line.
func (r Record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#%d %s", r.Seq, r.Event)
	switch {
	case r.Started.IsZero():
		b.WriteString(": not handled")
	case r.Err != "" && r.Undone:
		fmt.Fprintf(&b, ": undone after %s", r.Took)
	case r.Err != "":
		fmt.Fprintf(&b, ": failed after %s", r.Took)
	case len(r.TakenDown) > 0:
		fmt.Fprintf(&b, ": took down %s, %d changes, %d operations, %s", strings.Join(r.TakenDown, ", "), r.Changes,
			r.Operations, r.Took)
	default:
		fmt.Fprintf(&b, ": ok, %d changes, %d operations, %s", r.Changes, r.Operations, r.Took)
	}
	if r.Err != "" {
		b.WriteString(": " + strings.ReplaceAll(r.Err, "\n", "; "))
	}
	if len(r.Stuck) > 0 {
		b.WriteString(", left behind: " + strings.Join(r.Stuck, ", "))
	}
	if len(r.Verify) > 0 {
		fmt.Fprintf(&b, ", verification found %d differences", len(r.Verify))
	}
	return b.String()
}

// clone returns a deep copy.
func (r Record) clone() Record {
	r.Order = slices.Clone(r.Order)
	r.LeftOut = slices.Clone(r.LeftOut)
	r.Steps = slices.Clone(r.Steps)
	r.Handlers = slices.Clone(r.Handlers)
	for i := range r.Handlers {
		r.Handlers[i].Changes = slices.Clone(r.Handlers[i].Changes)
	}
	r.Drops = slices.Clone(r.Drops)
	r.Verify = slices.Clone(r.Verify)
	r.Transactions = slices.Clone(r.Transactions)
	r.Pending = slices.Clone(r.Pending)
	r.Stuck = slices.Clone(r.Stuck)
	r.TakenDown = slices.Clone(r.TakenDown)
	r.SharedWith = slices.Clone(r.SharedWith)
	return r
}

func recordKey(seq uint64) string { return fmt.Sprintf("%020d", seq) }
