package eventloop

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// commit is the first half of step 9: everything that the handlers want, in one
// change. Failures of a best-effort event are joined, its values stay desired.
func (l *Loop) commit(f *flight) error {
	if f.atomic() && f.run.Err() != nil {
		return f.interrupted(f.run.Err())
	}
	if f.change.empty() {
		return nil
	}
	f.committed = true
	out, err := l.callCommitter(f.run, f.change)
	f.outcome = out
	f.count(out)
	f.rec.Pending = out.Pending
	l.dropRefused(f, out.Refused)
	if err == nil {
		if f.atomic() && context.Cause(f.life) != nil {
			return f.interrupted(context.Cause(f.life))
		}
		return nil
	}
	if f.atomic() {
		f.committed = !out.Undone
	} else if len(out.Transactions)+len(out.Stuck)+len(out.Pending) == 0 {
		f.rec.Stuck = append(f.rec.Stuck, keysOf(f.change.Set)...) // nothing says that it was taken
		f.unclean = true
	}
	return fmt.Errorf("commit: %w", f.interrupted(err))
}

// dropRefused records the values of external configuration that the committer refused, for each source that has one.
func (l *Loop) dropRefused(f *flight, refused map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(refused)) {
		for _, source := range slices.Sorted(maps.Keys(l.state.patches)) {
			if _, has := l.state.patches[source][key]; has {
				l.drop(f, Drop{Key: key, Source: source, Reason: refused[key]})
			}
		}
	}
}

func (l *Loop) callCommitter(ctx context.Context, c Change) (out Outcome, err error) {
	err = protect(func() (err error) {
		out, err = l.cfg.Committer.Commit(ctx, c)
		return err
	})
	return out, err
}

// count adds an outcome to the record.
func (f *flight) count(out Outcome) {
	f.rec.Transactions = append(f.rec.Transactions, out.Transactions...)
	f.rec.Operations += out.Operations
	f.rec.Stuck = append(f.rec.Stuck, out.Stuck...)
}

// interrupted names in err what overtook the event, if anything did.
func (f *flight) interrupted(err error) error {
	cause, ok := errors.AsType[*cancelledError](context.Cause(f.life))
	if !ok || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// save is the second half of step 9, the durable step: the event's values, its
// record, and what earlier events still owe, all or none. Then the event stands.
func (l *Loop) save(f *flight) error {
	record := Saved{RecordsBucket, recordKey(f.rec.Seq), f.snapshot(l.cfg.Now())}
	err := l.saveAll(context.WithoutCancel(f.run), slices.Concat(f.txn.saved, []Saved{record}))
	f.saved = err == nil && l.cfg.Saver != nil
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrNotSaved, err)
		if f.atomic() {
			return err
		}
		l.owed = append(l.owed, f.txn.saved...)
		f.unclean = true
	}
	if concluding := l.conclude(f); concluding != nil {
		return concluding
	}
	return err
}

// saveAll saves what is owed, then saves, then the records not yet durable.
func (l *Loop) saveAll(ctx context.Context, saves []Saved) error {
	if l.cfg.Saver == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.UndoTimeout)
	defer cancel()
	records, saved := l.history.unsaved()
	all := slices.Concat(l.owed, saves, records)
	if len(all) == 0 {
		return nil
	}
	if err := protect(func() error { return l.cfg.Saver.Save(ctx, all) }); err != nil {
		return err
	}
	l.owed = nil
	saved()
	return nil
}

// saveLeft makes durable, while the loop is idle, what no event's own durable step did.
func (l *Loop) saveLeft(ctx context.Context) {
	if err := l.saveAll(context.WithoutCancel(ctx), nil); err != nil {
		l.cfg.Log.Warn("records not saved", "err", err)
	}
}

// conclude makes a committed event the state.
func (l *Loop) conclude(f *flight) error {
	l.state.adopt(f.txn, f.change)
	f.adopted = true
	if f.resync == Full {
		l.queue.open()
	}
	err := f.txn.commit()
	l.followUp(f)
	if err != nil {
		f.unclean = true
		return fmt.Errorf("conclude: %w", err)
	}
	return nil
}

// followUp queues what the handlers asked to be done next.
func (l *Loop) followUp(f *flight) {
	var next []*request
	for _, ev := range f.txn.followUps {
		r, err := l.admitPosted(f.ctx, ev)
		r.cause, r.depth = f.rec.Seq, f.depth+1
		if err == nil && r.depth > maxChain {
			err = fmt.Errorf("%w: follow-up of %d others", ErrInvalid, maxChain)
		}
		if err != nil {
			_, _ = l.refuse(r, err)
			continue
		}
		next = append(next, r)
	}
	if len(next) > 0 {
		l.queue.pushFollowUps(next)
	}
}

// undo is step 10: it takes an event that failed back, newest first: the commit,
// then the handlers' own changes. What fails meanwhile is stuck. A best-effort event
// goes on with its errors.
func (l *Loop) undo(f *flight) error {
	if !f.failed() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.run), l.cfg.UndoTimeout)
	defer cancel()
	err := l.uncommit(ctx, f)
	stuck, undoErr := f.txn.rollback()
	f.rec.Stuck = append(f.rec.Stuck, stuck...)
	f.rec.Undone = len(f.rec.Stuck) == 0
	return errors.Join(err, undoErr)
}

// uncommit commits the inverse of what was committed.
func (l *Loop) uncommit(ctx context.Context, f *flight) error {
	if !f.committed {
		return nil
	}
	inverse := l.state.inverse(f.change)
	out, err := l.callCommitter(ctx, inverse)
	f.count(out)
	if err == nil {
		return nil
	}
	if len(out.Stuck) == 0 {
		f.rec.Stuck = append(f.rec.Stuck, keysOf(inverse.Set)...)
	}
	return fmt.Errorf("undo of the commit: %w", err)
}
