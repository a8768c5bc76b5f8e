package eventloop

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// kind is step 2: update or resync.
func (l *Loop) kind(f *flight) error {
	f.rec.Kind, f.rec.Atomic = f.resync.String(), f.atomic()
	return nil
}

// order is step 3: all handlers, forward, or in reverse for a removal.
func (l *Loop) order(f *flight) error {
	f.handlers = l.registry.inOrder(f.removal)
	f.rec.Direction = "forward"
	if f.removal {
		f.rec.Direction = "reverse"
	}
	return nil
}

// leaveOut is step 4: only the handlers that handle this event stay.
func (l *Loop) leaveOut(f *flight) error {
	all := f.handlers
	f.handlers = slices.DeleteFunc(slices.Clone(all), func(h handler) bool { return !h.handles(f.event, f.resync) })
	for _, h := range f.handlers {
		f.rec.Order = append(f.rec.Order, h.name)
	}
	for _, h := range all {
		if !h.own && !slices.Contains(f.rec.Order, h.name) && !slices.Contains(f.rec.LeftOut, h.name) {
			f.rec.LeftOut = append(f.rec.LeftOut, h.name)
		}
	}
	return nil
}

// openRecord is step 5: the record gets its number, its cause and its times.
func (l *Loop) openRecord(f *flight) error {
	f.rec.Seq = l.history.begin()
	f.rec.Cause = f.cause
	f.rec.Arrived = f.arrived
	f.rec.Started = l.cfg.Now()
	f.rec.Queued = f.rec.Started.Sub(f.arrived)
	return nil
}

// announce is step 6: one line that says that the event began.
func (l *Loop) announce(f *flight) error {
	l.cfg.Log.Info("event began", "seq", f.rec.Seq, "event", f.name, "kind", f.rec.Kind,
		"direction", f.rec.Direction, "handlers", len(f.handlers), "queued", f.rec.Queued)
	return nil
}

// runHandlers is step 7: the handlers build the transaction. After an error the
// others run only if the event is a best-effort one.
func (l *Loop) runHandlers(f *flight) error {
	ctx := markInside(f.run)
	var errs []error
	for _, h := range f.handlers {
		if err := l.runHandler(ctx, f, h); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", h.name, err))
			if f.atomic() || f.resync != None {
				break
			}
		}
	}
	return errors.Join(errs...)
}

func (l *Loop) runHandler(ctx context.Context, f *flight, h handler) error {
	began := l.cfg.Now()
	f.txn.begin(h.name)
	err := h.call(ctx, f.event, f.txn)
	changes, misuse := f.txn.end()
	err = errors.Join(err, misuse)
	run := HandlerRun{Name: h.name, Took: l.cfg.Now().Sub(began), Changes: changes}
	if err != nil {
		run.Err = err.Error()
	}
	f.rec.Handlers = append(f.rec.Handlers, run)
	return err
}

// closeRecord is step 11: the record gets the outcome and the time of the whole.
func (l *Loop) closeRecord(f *flight) error {
	f.rec.Took = l.cfg.Now().Sub(f.rec.Started)
	if err := f.err(); err != nil {
		f.rec.Err, f.rec.Stack = err.Error(), stackOf(err)
		if c, ok := errors.AsType[*cancelledError](err); ok {
			f.rec.CancelledBy = c.by
		}
	}
	slices.Sort(f.rec.Stuck)
	f.rec.Stuck = slices.Compact(f.rec.Stuck)
	l.logEnd(f)
	return nil
}

// logEnd logs an error at the place where it stops: here if no caller waits for it.
func (l *Loop) logEnd(f *flight) {
	log := l.cfg.Log.With("seq", f.rec.Seq, "event", f.name, "took", f.rec.Took)
	switch {
	case f.rec.Err == "":
		log.Debug("event handled", "changes", f.rec.Changes, "operations", f.rec.Operations)
	case f.posted:
		log.Warn("event failed", "err", f.rec.Err, "undone", f.rec.Undone)
	default:
		log.Debug("event failed", "err", f.rec.Err, "undone", f.rec.Undone)
	}
}

// answerErr is the event's error as its caller gets it.
func (f *flight) answerErr() error {
	if len(f.errs) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", f.name, f.err())
}
