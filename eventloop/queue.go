package eventloop

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// request is an event in the queue or in the loop.
type request struct {
	traits
	ctx     context.Context // of the caller
	life    context.Context // of the running event: ends only if another event cancels it
	cancel  context.CancelCauseFunc
	event   Event
	arrived time.Time
	admit   Step // step 1, before the event was queued

	isHealing bool         // the loop itself made it: no caller waits
	early     bool         // may run before the end of the start-up resync
	plan      *planRequest // nil: the event is to happen
	done      chan answer  // of capacity 1; the goroutine that takes the request out of the queue answers it
}

// record returns the record of r before its first step in the loop.
func (r *request) record(now time.Time) Record {
	var requested map[string]string
	if e, ok := r.event.(interface{ Recorded() map[string]string }); ok {
		requested = e.Recorded()
	}
	return Record{
		Request: requested,
		Event:   r.name,
		Type:    r.typ,
		Arrived: r.arrived,
		Course:  Course{Queued: now.Sub(r.arrived), Steps: []Step{r.admit}},
	}
}

type answer struct {
	record *Record
	err    error
}

// cancelledError is the cancellation of an event by another event.
type cancelledError struct{ by string }

// Error names the event that cancelled this one.
func (c *cancelledError) Error() string { return "cancelled by " + c.by }

// Is reports whether target is ErrCancelled.
func (c *cancelledError) Is(target error) bool { return target == ErrCancelled }

// queue holds the waiting requests and the running one.
type queue struct {
	max  int
	wake chan struct{} // of capacity 1

	mu      sync.Mutex
	waiting []*request
	running *request
	gated   bool // until the start-up resync ended: only early requests run
	closed  bool
}

func newQueue(most int) *queue {
	return &queue{max: most, wake: make(chan struct{}, 1), gated: true}
}

// push queues r and returns the waiting requests that it supersedes. It cancels the running request if r supersedes
// that.
func (q *queue) push(r *request) (superseded []*request, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, ErrStopped
	}
	var rest []*request
	for _, w := range q.waiting {
		if r.supersedes(w.traits) {
			superseded = append(superseded, w)
		} else {
			rest = append(rest, w)
		}
	}
	if len(rest) >= q.max {
		return nil, fmt.Errorf("%w: %d events wait", ErrQueueFull, len(q.waiting))
	}
	q.waiting = append(rest, r)
	if q.running != nil && q.running.atomic() && r.supersedes(q.running.traits) {
		q.running.cancel(&cancelledError{r.name})
	}
	q.nudge()
	return superseded, nil
}

// pop removes the next request that may run and makes it the running one.
func (q *queue) pop() *request {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.waiting, func(r *request) bool { return !q.gated || r.early })
	if i < 0 {
		return nil
	}
	q.running = q.waiting[i]
	q.waiting = slices.Delete(q.waiting, i, i+1)
	return q.running
}

// start makes r, which was not queued, the running request.
func (q *queue) start(r *request) *request {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running = r
	return r
}

// finish ends the running request.
func (q *queue) finish() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running = nil
}

// drop removes r from the queue; false if it already runs.
func (q *queue) drop(r *request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, r)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	return true
}

// open is called when the start-up resync has ended.
func (q *queue) open() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.gated = false
}

func (q *queue) isGated() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.gated
}

// close makes push fail and returns the waiting requests.
func (q *queue) close() []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	left := q.waiting
	q.waiting = nil
	return left
}

// load returns the number of waiting requests and the name of the running one.
func (q *queue) load() (waiting int, running string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running != nil {
		running = q.running.name
	}
	return len(q.waiting), running
}

// nudge wakes the loop.
func (q *queue) nudge() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// supersedes reports whether the newer t cancels old: a removal cancels events of its subject, another event cancels
// events of its pod's other subjects.
func (t traits) supersedes(old traits) bool {
	if old.removal || old.resync != None {
		return false
	}
	if t.removal {
		return t.subject != "" && t.subject == old.subject
	}
	return t.pod != "" && t.pod == old.pod && t.subject != old.subject
}
