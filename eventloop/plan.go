package eventloop

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
)

// Planned is the change that an event would make.
type Planned struct {
	Change Change // what would be committed; empty after an error
	Record Record // of the handlers and of external configuration; without a number, and in no history
}

// Plan does what Do does up to the commit, and undoes it: the handlers decide, and external configuration is merged.
// Nothing is committed, saved, recorded or logged, no event is cancelled, and ev.Load is not called. An error is the
// one that Do would return up to that point. The event belongs to the loop until Plan returns; handlers may have
// completed its fields. The handlers named in without are left out. A resync cannot be planned.
//
// The loop is busy for the time of the handlers only, which is microseconds.
func (l *Loop) Plan(ctx context.Context, ev Event, without ...string) (*Planned, error) {
	p := &planRequest{without: without}
	r, err := l.intake.admitPlan(ctx, ev, p)
	if err == nil {
		err = l.intake.enqueue(r)
	}
	if err != nil {
		return nil, named(r.name, err)
	}
	select {
	case a := <-r.done:
		return &p.planned, a.err
	case <-ctx.Done():
	case <-l.stopped:
	}
	select {
	case a := <-r.done:
		return &p.planned, a.err
	default:
	}
	if l.queue.drop(r) || ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %w", r.name, l.intake.dropReason(ctx))
	}
	return nil, fmt.Errorf("%s: %w", r.name, ErrStopped)
}

// PlanExternal plans what SetExternal would change.
func (l *Loop) PlanExternal(ctx context.Context, source string, values map[string][]byte) (*Planned, error) {
	if l.cfg.External == nil {
		return nil, fmt.Errorf("external configuration %s: Config.External is missing", source)
	}
	return l.Plan(ctx, &configure{source, values})
}

// proposal sets desired values as a handler would. It is only planned.
type proposal struct{ settings []Setting }

// String contains no values.
func (p *proposal) String() string { return fmt.Sprintf("proposal: %d values", len(p.settings)) }

// BestEffort is true: values that cannot be applied would be retried.
func (p *proposal) BestEffort() bool { return true }

// PlanValues plans a change of desired values, as if a handler made it: external configuration is merged into them.
func (l *Loop) PlanValues(ctx context.Context, settings []Setting) (*Planned, error) {
	return l.Plan(ctx, &proposal{settings})
}

// proposals is the handler of proposals.
func proposals() handler {
	return handler{
		name: "proposal", internal: true,
		takes: func(ev Event) bool { _, ok := ev.(*proposal); return ok },
		handle: func(_ context.Context, ev Event, txn *Txn) error {
			for _, s := range ev.(*proposal).settings {
				if s.Value == nil {
					txn.Delete(s.Key)
				} else {
					txn.Put(s.Key, s.Value)
				}
			}
			return nil
		},
	}
}

// planRequest makes a request a plan.
type planRequest struct {
	without []string
	planned Planned
}

// admitPlan admits an event that is only planned. It supersedes no other event, and no other event supersedes it.
func (in *intake) admitPlan(ctx context.Context, ev Event, p *planRequest) (*request, error) {
	r, err := in.admit(ctx, ev)
	if err == nil && r.resync != None {
		err = invalid(fmt.Errorf("a %s resync cannot be planned", r.resync))
	}
	r.plan = p
	r.early = false
	r.subject = ""
	r.pod = ""
	return r, err
}

// plan runs the deciding steps of an event, undoes their changes, and answers the caller.
func (x *executor) plan(r *request) {
	f, end := x.start(r)
	defer end()
	f.txn.isPlan = true
	restore := x.external.suspend()
	defer restore()
	steps := []func(*flight) error{
		(*flight).kind, x.order, (*flight).leaveOut, r.plan.leaveOut, x.runHandlers, skipIfFailed(x.mergeExternal),
	}
	for _, do := range steps {
		if err := do(f); err != nil {
			f.errs = append(f.errs, err)
		}
	}
	stuck, err := f.txn.rollback()
	if err != nil {
		f.errs = append(f.errs, err)
	}
	if len(stuck) > 0 { // a defect of a handler: the memory differs from the machine
		x.healing.schedule(x.cfg.Now())
	}
	if !f.failed() {
		r.plan.planned.Change = f.change
	}
	r.plan.planned.Record = f.rec
	r.done <- answer{nil, f.answerErr()}
}

// leaveOut removes the handlers that the caller does not want.
func (p *planRequest) leaveOut(f *flight) error {
	f.handlers = slices.DeleteFunc(f.handlers, func(h handler) bool { return slices.Contains(p.without, h.name) })
	return nil
}

// suspend replaces the external configuration by a copy that does not log, until the returned function is called.
func (c *external) suspend() (restore func()) {
	kept := *c
	c.log = slog.New(slog.DiscardHandler)
	c.patches = maps.Clone(kept.patches)
	c.drops = maps.Clone(kept.drops)
	c.committed = maps.Clone(kept.committed)
	return func() { *c = kept }
}
