package kvscheduler

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// inbox holds the requests and functions for the state's goroutine. Adding to it never blocks.
type inbox struct {
	mu       sync.Mutex
	requests []*request
	posted   []func(*state)
	closed   bool
	wake     chan struct{}
}

const (
	queued int32 = iota
	started
	withdrawn
)

// request is a transaction or a plan in the queue.
type request struct {
	ctx    context.Context
	txn    Txn
	serve  func(s *state, ctx context.Context, q *request) (*Record, error)
	queued time.Time
	where  atomic.Int32
	reply  chan reply
}

type reply struct {
	rec *Record
	err error
}

func (b *inbox) nudge() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *inbox) post(f func(*state)) {
	b.mu.Lock()
	b.posted = append(b.posted, f)
	b.mu.Unlock()
	b.nudge()
}

func (b *inbox) enqueue(q *request) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrStopped
	}
	b.requests = append(b.requests, q)
	b.nudge()
	return nil
}

// next removes and returns the oldest request that was not withdrawn.
func (b *inbox) next() *request {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.requests) > 0 {
		q := b.requests[0]
		b.requests[0] = nil
		b.requests = b.requests[1:]
		if q.where.CompareAndSwap(queued, started) {
			return q
		}
	}
	return nil
}

func (b *inbox) takePosted() []func(*state) {
	b.mu.Lock()
	defer b.mu.Unlock()
	posted := b.posted
	b.posted = nil
	return posted
}

func (b *inbox) close() []*request {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	left := b.requests
	b.requests = nil
	return left
}

// Commit changes the desired state, executes the plan and returns the record of it. The error joins all failures. Under
// BestEffort the transaction stands and failures are retried; objects that wait for a dependency are no failure. Under
// Atomic everything is as before, unless the error is ErrIncomplete.
//
// When ctx ends while the transaction is queued, it has no effect and the Record is nil. When it ends later, a
// best-effort transaction goes on without the caller (its Record is in the log), and an atomic one is rolled back:
// Commit waits for that, at most rollbackTimeout and the grace time of a call more.
func (s *Scheduler) Commit(ctx context.Context, t Txn) (*Record, error) {
	return s.request(ctx, t, (*state).commit)
}

// Plan returns the record that Commit would make now if no operation fails, and the error with which Commit would
// refuse the transaction. It makes no backend call, has no side effects and no record in the log.
func (s *Scheduler) Plan(ctx context.Context, t Txn) (*Record, error) {
	return s.request(ctx, t, (*state).dry)
}

type serve = func(s *state, ctx context.Context, q *request) (*Record, error)

func (s *Scheduler) request(ctx context.Context, t Txn, f serve) (*Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: not begun: %w", t.Label, context.Cause(ctx))
	}
	q := &request{ctx: ctx, txn: t, serve: f, queued: s.cfg.Now(), reply: make(chan reply, 1)}
	if err := s.enqueue(q); err != nil {
		return nil, err
	}
	select {
	case a := <-q.reply:
		return a.rec, a.err
	case <-s.stopped:
		return s.afterStop(q)
	case <-ctx.Done():
	}
	if q.where.CompareAndSwap(queued, withdrawn) {
		return nil, fmt.Errorf("%s: withdrawn from the queue: %w", t.Label, context.Cause(ctx))
	}
	if t.Mode == BestEffort {
		select {
		case a := <-q.reply:
			return a.rec, a.err
		default:
			return nil, fmt.Errorf("%s: goes on without its caller: %w", t.Label, context.Cause(ctx))
		}
	}
	a := <-q.reply
	return a.rec, a.err
}

func (s *Scheduler) afterStop(q *request) (*Record, error) {
	select {
	case a := <-q.reply:
		return a.rec, a.err
	default:
		return nil, ErrStopped
	}
}
