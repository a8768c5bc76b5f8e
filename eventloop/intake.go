package eventloop

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// intake validates and queues events, and refuses those that do not run. It runs in the callers' goroutines.
type intake struct {
	cfg      Config
	registry *registry
	queue    *queue
	history  *history
	status   *status
	stopped  <-chan struct{}
}

// admit is step 1: it validates ev. The request is valid also with an error, to be refused.
func (in *intake) admit(ctx context.Context, ev Event) (*request, error) {
	r := &request{event: ev, ctx: ctx, arrived: in.cfg.Now(), done: make(chan answer, 1)}
	r.life, r.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	err := in.identify(ctx, r)
	if !r.since.IsZero() {
		r.arrived = r.since
	}
	if err == nil {
		err = r.refusal
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = in.validate(r)
	}
	r.admit = Step{Number: 1, Name: "validate", Took: in.cfg.Now().Sub(r.arrived)}
	return r, err
}

// identify determines the traits of the event.
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

func invalid(err error) error {
	return fmt.Errorf("%w: %w", ErrInvalid, err)
}

// enqueue queues r and refuses the requests that it supersedes.
func (in *intake) enqueue(r *request) error {
	superseded, err := in.queue.push(r)
	for _, o := range superseded {
		_, _ = in.refuse(o, &cancelledError{r.name})
	}
	return err
}

// wait waits until r is answered, ctx ends, or the loop stops.
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
		return in.refuse(r, in.dropReason(ctx))
	}
	if ctx.Err() == nil {
		return nil, fmt.Errorf("%s: %w", r.name, ErrStopped)
	}
	return nil, fmt.Errorf("%s: the caller left, the event continues: %w", r.name, context.Cause(ctx))
}

// dropReason returns the error of an event that is dropped because its caller left.
func (in *intake) dropReason(ctx context.Context) error {
	if ctx.Err() == nil {
		return ErrStopped
	}
	if in.queue.isGated() {
		return fmt.Errorf("%w: %w", ErrNotReady, context.Cause(ctx))
	}
	return fmt.Errorf("dropped because the caller left: %w", context.Cause(ctx))
}

// named prefixes an error with the name of its event, unless the caller that refuses the event has named it.
func named(event string, err error) error {
	if strings.HasPrefix(err.Error(), event+": ") {
		return err
	}
	return fmt.Errorf("%s: %w", event, err)
}

// refuse ends a request that has not run: it makes a record, and answers the request.
// To keep other records in the history, a full queue makes no record, and repeats of a refusal are counted in the first
// record.
func (in *intake) refuse(r *request, err error) (*Record, error) {
	wrapped := named(r.name, err)
	if r.plan != nil {
		r.done <- answer{nil, wrapped}
		return nil, wrapped
	}
	if errors.Is(err, ErrQueueFull) {
		in.status.refused()
		return nil, wrapped
	}
	rec := r.record(in.cfg.Now())
	rec.Err = strings.TrimPrefix(err.Error(), r.name+": ") // the record has the name
	rec.Stack = stackOf(err)
	if c, ok := errors.AsType[*cancelledError](err); ok {
		rec.CancelledBy = c.by
	}
	if known, repeats := in.history.repeat(&rec); repeats {
		rec = known
	} else {
		in.history.addRefused(&rec)
	}
	in.cfg.OnRecord(r.ctx, rec)
	in.queue.nudge() // the idle loop saves the record
	r.done <- answer{&rec, wrapped}
	return &rec, wrapped
}
