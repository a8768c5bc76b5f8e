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
}

// newCall returns a call that ends with ctx, or if it is cancelled.
func newCall(ctx context.Context, request *pod.Request) *call {
	c := &call{request: request}
	c.ended, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	c.attempt.Cancelled = c.err
	return c
}

// prepare completes the request by a function. The event is refused with its error.
func (c *call) prepare(complete func() error) {
	c.attempt.Began = time.Now()
	c.attempt.Refused = complete()
}

// err returns why the call is cancelled, or nil.
func (c *call) err() error { return context.Cause(c.ended) }

// Reasons to cancel an ADD.
var (
	errDeleted  = errors.New("a DEL for it arrived")
	errReplaced = errors.New("the pod has a newer sandbox")
)

// attempts handle the events of calls in the loop.
type attempts struct {
	loop     Loop
	refiller Refiller
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ended, cancel)()
	err := a.refiller.Refill(ctx, c.request, lacked)
	if cause := c.err(); cause != nil {
		return pod.Errorf(pod.CodeTryAgain, "%s: cancelled while it waited for addresses: %w", c.request, cause)
	}
	return err
}
