package eventloop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// request is an event on its way through the loop.
type request struct {
	traits
	ctx     context.Context // of the caller
	life    context.Context // of the event once it runs: ends only by being overtaken
	cancel  context.CancelCauseFunc
	event   Event
	arrived time.Time
	admit   Step // the first step, made before the event was queued

	cause     uint64 // the event that this one follows up
	depth     int    // of a chain of follow-ups
	posted    bool   // no caller waits
	early     bool   // may run before the start-up resync
	coalesced int
	done      chan answer // of capacity 1; who takes the request out of the queue answers it
}

type answer struct {
	record *Record
	err    error
}

// cancelledError is the cause of an event's end by another one.
type cancelledError struct{ by string }

// Error names the event that cancelled this one.
func (c *cancelledError) Error() string { return "cancelled by " + c.by }

// Is makes it an ErrCancelled.
func (c *cancelledError) Is(target error) bool { return target == ErrCancelled }

// queue holds what waits and what runs.
type queue struct {
	max  int
	wake chan struct{} // of capacity 1

	mu        sync.Mutex
	waiting   []*request
	followUps []*request // run before any other
	running   *request
	gated     bool // until the start-up resync
	closed    bool
}

func newQueue(most int) *queue {
	return &queue{max: most, wake: make(chan struct{}, 1), gated: true}
}

// push queues r and returns the waiting requests that it overtakes. The running
// one, if r overtakes that, is cancelled.
func (q *queue) push(r *request) (overtaken []*request, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, ErrStopped
	}
	if q.coalesceLocked(r) {
		return nil, nil
	}
	rest := slices.DeleteFunc(slices.Clone(q.waiting), func(w *request) bool { return r.overtakes(w.traits) })
	if len(rest) >= q.max {
		return nil, fmt.Errorf("%w: %d events wait", ErrQueueFull, len(q.waiting))
	}
	for _, w := range q.waiting {
		if r.overtakes(w.traits) {
			overtaken = append(overtaken, w)
		}
	}
	q.waiting = append(rest, r)
	if q.running != nil && q.running.atomic() && r.overtakes(q.running.traits) {
		q.running.cancel(&cancelledError{r.name})
	}
	q.nudge()
	return overtaken, nil
}

// coalesceLocked lets a posted event take the place of a waiting one of the same key.
func (q *queue) coalesceLocked(r *request) bool {
	if !r.posted || r.key == "" {
		return false
	}
	for _, w := range q.waiting {
		if w.posted && w.key == r.key && w.typ == r.typ {
			w.event, w.traits, w.early = r.event, r.traits, r.early
			w.coalesced++
			return true
		}
	}
	return false
}

// pushFollowUps queues what an event asked to be done next.
func (q *queue) pushFollowUps(rs []*request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.followUps = append(rs, q.followUps...)
	q.nudge()
}

// pop takes the next request that may run and makes it the running one.
func (q *queue) pop() *request {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, list := range []*[]*request{&q.followUps, &q.waiting} {
		i := slices.IndexFunc(*list, func(r *request) bool { return !q.gated || r.early })
		if i >= 0 {
			q.running = (*list)[i]
			*list = slices.Delete(*list, i, i+1)
			return q.running
		}
	}
	return nil
}

// start makes r, which was never queued, the running request.
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

// drop takes r out, whose caller has gone; false if it runs already.
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

// open lets all events pass: the start-up resync has ended.
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

// close refuses all later requests and returns those that wait.
func (q *queue) close() []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	left := append(q.followUps, q.waiting...)
	q.followUps, q.waiting = nil, nil
	return left
}

// load returns how many requests wait, and the name of the running one.
func (q *queue) load() (waiting int, running string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running != nil {
		running = q.running.name
	}
	return len(q.waiting) + len(q.followUps), running
}

// nudge wakes the loop.
func (q *queue) nudge() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// overtakes tells whether t, which is newer, cancels old: a removal does so of its
// subject, another event of its pod's other subjects.
func (t traits) overtakes(old traits) bool {
	if old.removal || old.resync != None {
		return false
	}
	if t.removal {
		return t.subject != "" && t.subject == old.subject
	}
	return t.pod != "" && t.pod == old.pod && t.subject != old.subject
}

// maxChain bounds a chain of follow-ups, so that a handler that follows itself up cannot starve the queue.
const maxChain = 64

type loader interface {
	Load(ctx context.Context) error
}

// Do queues ev, waits until it has been handled, and returns its record. The event
// belongs to the loop until Do returns; if ctx ends first it is dropped if it still
// waits, and finished if it runs already: then the record is nil, and ev must not be
// read. The record is also nil if the queue was full.
func (l *Loop) Do(ctx context.Context, ev Event) (*Record, error) {
	r, err := l.admit(ctx, ev, l.load)
	if err == nil {
		err = l.enqueue(r)
	}
	if err != nil {
		return l.refuse(r, err)
	}
	return l.wait(ctx, r)
}

// Post queues ev and does not wait. An error says that it was not queued; what
// becomes of it later is in its record. Of ctx only the values count.
func (l *Loop) Post(ctx context.Context, ev Event) error {
	r, err := l.admitPosted(ctx, ev)
	if err == nil {
		err = l.enqueue(r)
	}
	if err != nil {
		_, err = l.refuse(r, err)
	}
	return err
}

// admitPosted admits an event that no caller waits for.
func (l *Loop) admitPosted(ctx context.Context, ev Event) (*request, error) {
	r, err := l.admit(context.WithoutCancel(ctx), ev, func(context.Context, *request) error {
		if _, loads := ev.(loader); loads {
			return invalid(errors.New("it needs loading, which only Do waits for"))
		}
		return nil
	})
	r.posted = true
	return r, err
}

// admit is step 1: it makes ev a request, loads and validates it, or says why it is refused. It runs in the
// goroutine of the caller, so that a slow one delays no other event.
func (l *Loop) admit(ctx context.Context, ev Event, load func(context.Context, *request) error) (*request, error) {
	r := &request{event: ev, ctx: ctx, arrived: l.cfg.Now(), done: make(chan answer, 1)}
	r.life, r.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	err := l.identify(ctx, r)
	if err == nil {
		err = load(ctx, r)
	}
	if err == nil {
		err = l.validate(r)
	}
	r.admit = Step{Number: 1, Name: "validate", Took: l.cfg.Now().Sub(r.arrived)}
	return r, err
}

// identify asks the event what it is.
func (l *Loop) identify(ctx context.Context, r *request) error {
	if r.event == nil {
		r.name = "no event"
		return invalid(errors.New("it is nil"))
	}
	if err := protect(func() error { r.traits = traitsOf(r.event); return nil }); err != nil {
		r.name = fmt.Sprintf("%T", r.event)
		return invalid(err)
	}
	_, configures := r.event.(*configure)
	r.early = configures || r.resync == Full
	if isInside(ctx) {
		return ErrInsideHandler
	}
	return nil
}

func (l *Loop) validate(r *request) error {
	if v, ok := r.event.(interface{ Validate() error }); ok {
		if err := protect(v.Validate); err != nil {
			return invalid(err)
		}
	}
	if r.resync == None && !l.registry.handles(r.event, None) {
		return fmt.Errorf("%w: type %s", ErrNoHandler, r.typ)
	}
	return nil
}

// load fetches what the event needs, and asks whether its caller still waits.
func (l *Loop) load(ctx context.Context, r *request) error {
	if e, ok := r.event.(loader); ok {
		if err := protect(func() error { return e.Load(ctx) }); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

func invalid(err error) error {
	return fmt.Errorf("%w: %w", ErrInvalid, err)
}

// enqueue queues r and answers those that it overtakes.
func (l *Loop) enqueue(r *request) error {
	overtaken, err := l.queue.push(r)
	for _, o := range overtaken {
		_, _ = l.refuse(o, &cancelledError{r.name})
	}
	return err
}

// wait waits for the end of r, or for that of its caller.
func (l *Loop) wait(ctx context.Context, r *request) (*Record, error) {
	select {
	case a := <-r.done:
		return a.record, a.err
	case <-ctx.Done():
	case <-l.stopped:
	}
	select {
	case a := <-r.done:
		return a.record, a.err
	default:
	}
	if l.queue.drop(r) {
		return l.refuse(r, l.gone(ctx))
	}
	if ctx.Err() == nil {
		return nil, fmt.Errorf("%s: %w", r.name, ErrStopped)
	}
	return nil, fmt.Errorf("%s: not waited for, it goes on: %w", r.name, context.Cause(ctx))
}

// gone is why an event is dropped whose caller has gone.
func (l *Loop) gone(ctx context.Context) error {
	if ctx.Err() == nil {
		return ErrStopped
	}
	if l.queue.isGated() {
		return fmt.Errorf("%w: %w", ErrNotReady, context.Cause(ctx))
	}
	return fmt.Errorf("dropped, its caller has gone: %w", context.Cause(ctx))
}

// refuse ends a request that has not run: with a record, an answer, and, if no
// caller waits for that, a log line. So that refusals do not evict all other records
// from the history, a full queue makes none, and a refusal that is repeated for the
// same reason is counted in the record of the first.
func (l *Loop) refuse(r *request, err error) (*Record, error) {
	wrapped := fmt.Errorf("%s: %w", r.name, err)
	if r.posted {
		l.cfg.Log.Warn("event refused", "event", r.name, "err", err)
	}
	if errors.Is(err, ErrQueueFull) {
		l.status.refused()
		return nil, wrapped
	}
	rec := r.record(l.cfg.Now())
	rec.Err, rec.Stack = err.Error(), stackOf(err)
	if c, ok := errors.AsType[*cancelledError](err); ok {
		rec.CancelledBy = c.by
	}
	if known, repeats := l.history.repeat(&rec); repeats {
		rec = known
	} else {
		rec.Seq = l.history.next()
		l.history.add(rec, false)
	}
	l.cfg.OnRecord(rec)
	l.queue.nudge() // the loop makes the record durable when it is idle
	r.done <- answer{&rec, wrapped}
	return &rec, wrapped
}

// record begins the record of r, with what is known before the loop takes it.
func (r *request) record(now time.Time) Record {
	return Record{
		Cause:     r.cause,
		Event:     r.name,
		Type:      r.typ,
		Coalesced: r.coalesced,
		Arrived:   r.arrived,
		Queued:    now.Sub(r.arrived),
		Steps:     []Step{r.admit},
	}
}
