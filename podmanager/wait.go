package podmanager

import (
	"context"
	"errors"
	"time"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
)

// call is an ADD, or an edit, under way. Its events come and go: while it waits for addresses it has no event.
type call struct {
	request *pod.Request
	attempt pod.Attempt // how the first event begins
	ended   context.Context
	cancel  context.CancelCauseFunc
	until   time.Time // when it stops to wait for addresses; zero: it has not waited yet
}

// newCall returns a call that ends with ctx, or if it is cancelled.
func newCall(ctx context.Context, request *pod.Request) *call {
	c := &call{request: request}
	c.ended, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	c.attempt.Cancelled = c.err
	return c
}

// prepare completes the request by a function, until the call is cancelled. The event is refused with its error.
func (c *call) prepare(ctx context.Context, complete func(context.Context) error) {
	ctx, end := c.bound(ctx)
	defer end()
	c.attempt.Began = time.Now()
	err := complete(ctx)
	if cause := c.err(); err != nil && cause != nil {
		err = pod.Errorf(pod.CodeTryAgain, "%s: cancelled while it was prepared: %w", c.request, cause)
	}
	c.attempt.Refused = err
}

// err returns why the call is cancelled, or nil.
func (c *call) err() error { return context.Cause(c.ended) }

// bound returns ctx, which then also ends when the call is cancelled.
func (c *call) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ended, func() { cancel(c.err()) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// Reasons to cancel an ADD.
var (
	errDeleted  = errors.New("a DEL for it arrived")
	errReplaced = errors.New("the pod has a newer sandbox")
	errStopping = errors.New("the agent stops")
)

// attempts handle the events of calls in the loop.
type attempts struct {
	loop       Loop
	refiller   Refiller
	refillTime time.Duration // how long a call waits for addresses of all its networks
}

// attempted is an event of a call.
type attempted interface {
	eventloop.Event
	Defers(err error) bool
	Refuse(why error)
}

// refills bounds the number of Refill calls of one ADD, which may need addresses of several networks.
const refills = 20

// handle handles the event of a call, and repeats it after a successful Refill: each time with a copy that event
// returns, because handlers fill in an event. An attempt that lacks addresses makes no record: the event loop goes on
// with other events while the call waits. The record of a failed call describes its last attempt, or has the reason why
// the wait failed.
func handle[E attempted](
	ctx context.Context, by attempts, c *call, event func(pod.Attempt) E,
) (E, *eventloop.Record, error) {
	attempt := c.attempt
	for n := 0; ; n++ {
		attempt.Awaits = nil
		if n < refills {
			attempt.Awaits = by.refiller.Refillable
		}
		ev := event(attempt)
		rec, err := by.loop.Do(ctx, ev)
		if err == nil || rec != nil || !ev.Defers(err) {
			return ev, rec, err
		}
		attempt.Began = time.Time{} // what follows begins when it is queued
		if refused := by.await(ctx, c, err); refused != nil {
			ev.Refuse(refused)
			rec, err := by.loop.Do(ctx, ev)
			return ev, rec, err
		}
	}
}

// await waits until the addresses that a call lacked may be there. It returns nil if the event can be repeated, else
// the error of the call.
func (a attempts) await(ctx context.Context, c *call, lacked error) error {
	if c.until.IsZero() {
		c.until = time.Now().Add(a.refillTime)
	}
	ctx, end := c.bound(ctx)
	defer end()
	ctx, cancel := context.WithDeadline(ctx, c.until)
	defer cancel()
	err := a.refiller.Refill(ctx, c.request, lacked)
	if cause := c.err(); cause != nil {
		return pod.Errorf(pod.CodeTryAgain, "%s: cancelled while it waited for addresses: %w", c.request, cause)
	}
	return err
}
