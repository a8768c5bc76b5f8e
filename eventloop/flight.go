package eventloop

import (
	"context"
	"errors"
	"slices"
	"time"
)

// flight is an event on its way through the steps.
type flight struct {
	*request
	run      context.Context // of steps 7 to 9: cancelled when overtaken, and at the commit's deadline
	txn      *Txn
	handlers []handler
	change   Change
	outcome  Outcome
	rec      Record
	errs     []error

	committed bool // the Committer was asked, and has not said that it undid everything
	adopted   bool // the event is the state now
	saved     bool // with the record as it was then
	unclean   bool // something asks for healing though no key is stuck
}

// step is one of the thirteen.
type step struct {
	number int
	name   string
	do     func(*flight) error
}

// deciding are the steps up to what is to be committed, in order.
func (l *Loop) deciding() []step {
	return []step{
		{2, "kind", l.kind},
		{3, "order", l.order},
		{4, "leave out", l.leaveOut},
		{5, "open record", l.openRecord},
		{6, "announce", l.announce},
		{7, "run handlers", l.runHandlers},
		{8, "merge external", unlessFailed(l.mergeExternal)},
	}
}

// committing are those by which the event becomes the state.
func (l *Loop) committing() []step {
	return []step{
		{9, "commit", unlessFailed(l.commit)},
		{9, "save", unlessFailed(l.save)},
	}
}

// closing are the last ones.
func (l *Loop) closing() []step {
	return []step{
		{10, "undo", l.undo},
		{11, "close record", l.closeRecord},
		{12, "heal", l.heal},
		{13, "verify", l.verify},
	}
}

// handle runs all steps of one event, or of several removals, and answers its caller.
func (l *Loop) handle(r *request) {
	defer l.queue.finish()
	if rs := l.together(r); len(rs) > 1 {
		l.handleTogether(rs)
		return
	}
	f, end := l.takeOff(r)
	defer end()
	for _, s := range slices.Concat(l.deciding(), l.committing(), l.closing()) {
		l.take(f, s)
	}
	l.publish(f)
}

// takeOff makes a flight of an event; end ends its contexts.
func (l *Loop) takeOff(r *request) (f *flight, end func()) {
	ctx, cancel := context.WithTimeout(r.life, l.cfg.CommitTimeout)
	f = &flight{request: r, run: ctx, txn: newTxn(l.desired), rec: r.record(l.cfg.Now())}
	return f, func() {
		r.cancel(nil)
		cancel()
	}
}

// take takes one step; its error becomes one of the event.
func (l *Loop) take(f *flight, s step) {
	began := l.cfg.Now()
	err := s.do(f)
	done := Step{Number: s.number, Name: s.name, Took: l.cfg.Now().Sub(began)}
	if err != nil {
		f.errs = append(f.errs, err)
		done.Err = err.Error()
	}
	f.rec.Steps = append(f.rec.Steps, done)
}

// unlessFailed leaves a step out once the event is to be undone.
func unlessFailed(do func(*flight) error) func(*flight) error {
	return func(f *flight) error {
		if f.failed() {
			return nil
		}
		return do(f)
	}
}

// failed tells whether the event is to be undone: an atomic one for any error, a
// resync if it does not know all that is desired, since what it left out would go.
func (f *flight) failed() bool {
	if len(f.errs) == 0 || f.adopted {
		return false
	}
	return f.atomic() || f.resync != None && !f.committed
}

func (f *flight) err() error { return errors.Join(f.errs...) }

func (f *flight) set(key string, value any) {
	f.change.Set = append(f.change.Set, Setting{key, value})
}

// giveUp takes a key, which the handlers now desire, from external configuration.
func (f *flight) giveUp(key string, external map[string]any) {
	if _, ok := external[key]; ok {
		f.change.External = append(f.change.External, Setting{Key: key})
	}
}

// snapshot returns the record as far as it is known.
func (f *flight) snapshot(now time.Time) Record {
	rec := f.rec.clone()
	rec.Took = now.Sub(rec.Started)
	return rec
}

// publish puts the closed record into the history and answers the caller.
func (l *Loop) publish(f *flight) {
	l.history.add(f.rec, f.saved && f.rec.Err == "" && len(f.rec.Verify) == 0)
	l.status.handled(l.state.drops)
	l.cfg.OnRecord(f.rec)
	l.queue.finish()
	rec := f.rec.clone()
	f.done <- answer{&rec, f.answerErr()}
}
