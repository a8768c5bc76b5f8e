package eventloop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// executor runs the steps of events. It belongs to the goroutine of Run.
type executor struct {
	cfg       Config
	registry  *registry
	queue     *queue
	history   *history
	status    *status
	intake    *intake
	committer committer
	state     state
	external  external
	durable   durable
	healing   healing
	steps     steps
}

func newExecutor(l *Loop) *executor {
	x := &executor{
		cfg: l.cfg, registry: l.registry, queue: l.queue, history: l.history, status: l.status, intake: l.intake,
		committer: committer{l.cfg.Committer},
		state:     newState(),
		external:  newExternal(l.cfg),
		durable:   durable{saver: l.cfg.Saver, timeout: l.cfg.UndoTimeout, history: l.history, log: l.cfg.Log},
		healing:   newHealing(l.cfg.Healing),
	}
	x.steps = steps{
		deciding: []step{
			{2, "kind", (*flight).kind},
			{3, "order", x.order},
			{4, "leave out", (*flight).leaveOut},
			{5, "open record", x.openRecord},
			{6, "announce", x.announce},
			{7, "run handlers", x.runHandlers},
			{8, "merge external", unlessFailed(x.mergeExternal)},
		},
		committing: []step{
			{9, "commit", unlessFailed(x.commit)},
			{9, "save", unlessFailed(x.save)},
		},
		closing: []step{
			{10, "undo", x.undo},
			{11, "close record", x.closeRecord},
			{12, "heal", x.heal},
			{13, "verify", x.verify},
		},
	}
	return x
}

// steps are the steps 2 to 13, in order. Removals that share a commit replace those of committing.
type steps struct{ deciding, committing, closing []step }

// handle runs all steps of one event, or of several removals, and answers its caller.
func (x *executor) handle(r *request) {
	defer x.queue.finish()
	if rs := x.together(r); len(rs) > 1 {
		x.handleTogether(rs)
		return
	}
	f, end := x.takeOff(r)
	defer end()
	for _, s := range slices.Concat(x.steps.deciding, x.steps.committing, x.steps.closing) {
		x.take(f, s)
	}
	x.publish(f)
}

// takeOff makes a flight of an event; end ends its contexts.
func (x *executor) takeOff(r *request) (f *flight, end func()) {
	ctx, cancel := context.WithTimeout(r.life, x.cfg.CommitTimeout)
	f = &flight{request: r, run: ctx, txn: newTxn(x.state.get), rec: r.record(x.cfg.Now())}
	return f, func() {
		r.cancel(nil)
		cancel()
	}
}

// take takes one step; its error becomes one of the event.
func (x *executor) take(f *flight, s step) {
	began := x.cfg.Now()
	err := s.do(f)
	done := Step{Number: s.number, Name: s.name, Took: x.cfg.Now().Sub(began)}
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
func (x *executor) publish(f *flight) {
	x.history.add(f.rec, f.saved && f.rec.Err == "" && len(f.rec.Verify) == 0)
	x.status.handled(x.external.drops)
	x.cfg.OnRecord(f.rec)
	x.queue.finish()
	rec := f.rec.clone()
	f.done <- answer{&rec, f.answerErr()}
}

// kind is step 2: update or resync.
func (f *flight) kind() error {
	f.rec.Kind, f.rec.Atomic = f.resync.String(), f.atomic()
	return nil
}

// order is step 3: all handlers, forward, or in reverse for a removal.
func (x *executor) order(f *flight) error {
	f.handlers = x.registry.inOrder(f.removal)
	f.rec.Direction = "forward"
	if f.removal {
		f.rec.Direction = "reverse"
	}
	return nil
}

// leaveOut is step 4: only the handlers that handle this event stay.
func (f *flight) leaveOut() error {
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
func (x *executor) openRecord(f *flight) error {
	f.rec.Seq = x.history.begin()
	f.rec.Cause = f.cause
	f.rec.Arrived = f.arrived
	f.rec.Started = x.cfg.Now()
	f.rec.Queued = f.rec.Started.Sub(f.arrived)
	return nil
}

// announce is step 6: one line that says that the event began.
func (x *executor) announce(f *flight) error {
	x.cfg.Log.Info("event began", "seq", f.rec.Seq, "event", f.name, "kind", f.rec.Kind,
		"direction", f.rec.Direction, "handlers", len(f.handlers), "queued", f.rec.Queued)
	return nil
}

// runHandlers is step 7: the handlers build the transaction. After an error the
// others run only if the event is a best-effort one.
func (x *executor) runHandlers(f *flight) error {
	ctx := markInside(f.run)
	var errs []error
	for _, h := range f.handlers {
		if err := f.runHandler(ctx, h, x.cfg.Now); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", h.name, err))
			if f.atomic() || f.resync != None {
				break
			}
		}
	}
	return errors.Join(errs...)
}

func (f *flight) runHandler(ctx context.Context, h handler, now func() time.Time) error {
	began := now()
	f.txn.begin(h.name)
	err := h.call(ctx, f.event, f.txn)
	changes, misuse := f.txn.end()
	err = errors.Join(err, misuse)
	run := HandlerRun{Name: h.name, Took: now().Sub(began), Changes: changes}
	if err != nil {
		run.Err = err.Error()
	}
	f.rec.Handlers = append(f.rec.Handlers, run)
	return err
}

// closeRecord is step 11: the record gets the outcome and the time of the whole.
func (x *executor) closeRecord(f *flight) error {
	f.rec.Took = x.cfg.Now().Sub(f.rec.Started)
	if err := f.err(); err != nil {
		f.rec.Err, f.rec.Stack = err.Error(), stackOf(err)
		if c, ok := errors.AsType[*cancelledError](err); ok {
			f.rec.CancelledBy = c.by
		}
	}
	slices.Sort(f.rec.Stuck)
	f.rec.Stuck = slices.Compact(f.rec.Stuck)
	f.logEnd(x.cfg.Log)
	return nil
}

// logEnd logs an error at the place where it stops: here if no caller waits for it.
func (f *flight) logEnd(log *slog.Logger) {
	log = log.With("seq", f.rec.Seq, "event", f.name, "took", f.rec.Took)
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
func (x *executor) commit(f *flight) error {
	if f.atomic() && f.run.Err() != nil {
		return f.interrupted(f.run.Err())
	}
	if f.change.empty() {
		return nil
	}
	f.committed = true
	out, err := x.committer.commit(f.run, f.change)
	f.outcome = out
	f.count(out)
	f.rec.Pending = out.Pending
	x.external.dropRefused(f, out.Refused)
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
func (x *executor) save(f *flight) error {
	record := Saved{RecordsBucket, recordKey(f.rec.Seq), f.snapshot(x.cfg.Now())}
	err := x.durable.save(f.run, slices.Concat(f.txn.saved, []Saved{record}))
	f.saved = err == nil && x.cfg.Saver != nil
	if err != nil {
		if f.atomic() {
			return err
		}
		x.durable.owed = append(x.durable.owed, f.txn.saved...)
		f.unclean = true
	}
	if concluding := x.conclude(f); concluding != nil {
		return concluding
	}
	return err
}

// conclude makes a committed event the state.
func (x *executor) conclude(f *flight) error {
	x.state.adopt(f.txn, f.change)
	x.external.adopt(f.change)
	f.adopted = true
	if f.resync == Full {
		x.queue.open()
	}
	err := f.txn.commit()
	x.followUp(f)
	if err != nil {
		f.unclean = true
		return fmt.Errorf("conclude: %w", err)
	}
	return nil
}

// followUp queues what the handlers asked to be done next.
func (x *executor) followUp(f *flight) {
	var next []*request
	for _, ev := range f.txn.followUps {
		r, err := x.intake.admitPosted(f.ctx, ev)
		r.cause, r.depth = f.rec.Seq, f.depth+1
		if err == nil && r.depth > maxChain {
			err = fmt.Errorf("%w: follow-up of %d others", ErrInvalid, maxChain)
		}
		if err != nil {
			_, _ = x.intake.refuse(r, err)
			continue
		}
		next = append(next, r)
	}
	if len(next) > 0 {
		x.queue.pushFollowUps(next)
	}
}

// undo is step 10: it takes an event that failed back, newest first: the commit,
// then the handlers' own changes. What fails meanwhile is stuck. A best-effort event
// goes on with its errors.
func (x *executor) undo(f *flight) error {
	if !f.failed() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.run), x.cfg.UndoTimeout)
	defer cancel()
	err := x.uncommit(ctx, f)
	stuck, undoErr := f.txn.rollback()
	f.rec.Stuck = append(f.rec.Stuck, stuck...)
	f.rec.Undone = len(f.rec.Stuck) == 0
	return errors.Join(err, undoErr)
}

// uncommit commits the inverse of what was committed.
func (x *executor) uncommit(ctx context.Context, f *flight) error {
	if !f.committed {
		return nil
	}
	inverse := Change{
		Event:    f.change.Event,
		Label:    "undo " + f.change.Label,
		Set:      oldValues(x.state.merged, f.change.Set),
		External: oldValues(x.external.committed, f.change.External),
	}
	out, err := x.committer.commit(ctx, inverse)
	f.count(out)
	if err == nil {
		return nil
	}
	if len(out.Stuck) == 0 {
		f.rec.Stuck = append(f.rec.Stuck, keysOf(inverse.Set)...)
	}
	return fmt.Errorf("undo of the commit: %w", err)
}

// committer calls the Committer and returns its panics as errors.
type committer struct{ Committer }

func (c committer) commit(ctx context.Context, change Change) (out Outcome, err error) {
	err = protect(func() (err error) {
		out, err = c.Commit(ctx, change)
		return err
	})
	return out, err
}

// drift asks the Committer what a repair of the machine would do.
func (c committer) drift(ctx context.Context) []string {
	d, ok := c.Committer.(interface {
		Drift(ctx context.Context) ([]string, error)
	})
	if !ok {
		return nil
	}
	var found []string
	err := protect(func() (err error) { found, err = d.Drift(ctx); return err })
	if err != nil {
		found = append(found, fmt.Sprintf("drift: %v", err))
	}
	return found
}
