package eventloop

import (
	"context"
	"errors"
	"fmt"
)

// maxChain bounds a chain of follow-ups, so that a handler that follows itself up cannot starve the queue.
const maxChain = 64

// intake admits events to the queue, in the goroutines of their callers, and answers events that do not run.
type intake struct {
	cfg      Config
	registry *registry
	queue    *queue
	history  *history
	status   *status
	stopped  <-chan struct{}
}

type loader interface {
	Load(ctx context.Context) error
}

// admitPosted admits an event that no caller waits for.
func (in *intake) admitPosted(ctx context.Context, ev Event) (*request, error) {
	r, err := in.admit(context.WithoutCancel(ctx), ev, func(context.Context, *request) error {
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
func (in *intake) admit(ctx context.Context, ev Event, load func(context.Context, *request) error) (*request, error) {
	r := &request{event: ev, ctx: ctx, arrived: in.cfg.Now(), done: make(chan answer, 1)}
	r.life, r.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	err := in.identify(ctx, r)
	if err == nil {
		err = load(ctx, r)
	}
	if err == nil {
		err = in.validate(r)
	}
	r.admit = Step{Number: 1, Name: "validate", Took: in.cfg.Now().Sub(r.arrived)}
	return r, err
}

// identify asks the event what it is.
func (in *intake) identify(ctx context.Context, r *request) error {
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

func (in *intake) validate(r *request) error {
	if v, ok := r.event.(interface{ Validate() error }); ok {
		if err := protect(v.Validate); err != nil {
			return invalid(err)
		}
	}
	if r.resync == None && !in.registry.handles(r.event, None) {
		return fmt.Errorf("%w: type %s", ErrNoHandler, r.typ)
	}
	return nil
}

// load fetches what the event needs, and asks whether its caller still waits.
func (in *intake) load(ctx context.Context, r *request) error {
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
func (in *intake) enqueue(r *request) error {
	overtaken, err := in.queue.push(r)
	for _, o := range overtaken {
		_, _ = in.refuse(o, &cancelledError{r.name})
	}
	return err
}

// wait waits for the end of r, or for that of its caller.
func (in *intake) wait(ctx context.Context, r *request) (*Record, error) {
	select {
	case a := <-r.done:
		return a.record, a.err
	case <-ctx.Done():
	case <-in.stopped:
	}
	select {
	case a := <-r.done:
		return a.record, a.err
	default:
	}
	if in.queue.drop(r) {
		return in.refuse(r, in.gone(ctx))
	}
	if ctx.Err() == nil {
		return nil, fmt.Errorf("%s: %w", r.name, ErrStopped)
	}
	return nil, fmt.Errorf("%s: not waited for, it goes on: %w", r.name, context.Cause(ctx))
}

// gone is why an event is dropped whose caller has gone.
func (in *intake) gone(ctx context.Context) error {
	if ctx.Err() == nil {
		return ErrStopped
	}
	if in.queue.isGated() {
		return fmt.Errorf("%w: %w", ErrNotReady, context.Cause(ctx))
	}
	return fmt.Errorf("dropped, its caller has gone: %w", context.Cause(ctx))
}

// refuse ends a request that has not run: with a record, an answer, and, if no
// caller waits for that, a log line. So that refusals do not evict all other records
// from the history, a full queue makes none, and a refusal that is repeated for the
// same reason is counted in the record of the first.
func (in *intake) refuse(r *request, err error) (*Record, error) {
	wrapped := fmt.Errorf("%s: %w", r.name, err)
	if r.posted {
		in.cfg.Log.Warn("event refused", "event", r.name, "err", err)
	}
	if errors.Is(err, ErrQueueFull) {
		in.status.refused()
		return nil, wrapped
	}
	rec := r.record(in.cfg.Now())
	rec.Err, rec.Stack = err.Error(), stackOf(err)
	if c, ok := errors.AsType[*cancelledError](err); ok {
		rec.CancelledBy = c.by
	}
	if known, repeats := in.history.repeat(&rec); repeats {
		rec = known
	} else {
		rec.Seq = in.history.next()
		in.history.add(rec, false)
	}
	in.cfg.OnRecord(rec)
	in.queue.nudge() // the loop makes the record durable when it is idle
	r.done <- answer{&rec, wrapped}
	return &rec, wrapped
}
