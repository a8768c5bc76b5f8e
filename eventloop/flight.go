package eventloop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// flight is an event with steps in progress.
type flight struct {
	*request
	run      context.Context // of steps 7 to 9: ends with a cancellation or at the commit timeout
	txn      *Txn
	handlers []handler
	change   Change
	rec      Record
	errs     []error

	committed    bool // the Committer was called, and did not undo the change
	adopted      bool // the changes are part of the state
	saved        bool // with the record of that time
	needsHealing bool // without a stuck key
}

// step is one of the thirteen steps.
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
		durable:   durable{saver: l.cfg.Saver, timeout: undoTimeout, history: l.history, log: l.cfg.Log},
		healing:   newHealing(l.cfg.limits),
	}
	x.steps = steps{
		deciding: []step{
			{2, "kind", (*flight).kind},
			{3, "order", x.order},
			{4, "leave out", (*flight).leaveOut},
			{5, "open record", x.openRecord},
			{6, "announce", x.announce},
			{7, "run handlers", x.runHandlers},
			{8, "merge external", skipIfFailed(x.mergeExternal)},
		},
		committing: []step{
			{9, "commit", skipIfFailed(x.commit)},
			{9, "save", skipIfFailed(x.save)},
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

// steps are the steps 2 to 13, in order. Removals that share a commit replace the steps of committing.
type steps struct{ deciding, committing, closing []step }

// handle runs all steps of one event, or of a batch of removals, and answers the callers.
func (x *executor) handle(r *request) {
	defer x.queue.finish()
	if r.plan != nil {
		x.plan(r)
		return
	}
	if rs := x.batch(r); len(rs) > 1 {
		x.handleBatch(rs)
		return
	}
	f, end := x.start(r)
	defer end()
	for _, s := range slices.Concat(x.steps.deciding, x.steps.committing, x.steps.closing) {
		x.take(f, s)
	}
	x.publish(f)
}

// start returns the flight of an event; end ends its contexts.
func (x *executor) start(r *request) (f *flight, end func()) {
	ctx, cancel := context.WithTimeout(r.life, commitTimeout)
	f = &flight{request: r, run: ctx, txn: newTxn(x.state.get), rec: r.record(x.cfg.Now())}
	return f, func() {
		r.cancel(nil)
		cancel()
	}
}

// take runs one step. Its error becomes an error of the event.
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

// skipIfFailed skips a step of an event that will be undone.
func skipIfFailed(do func(*flight) error) func(*flight) error {
	return func(f *flight) error {
		if f.failed() {
			return nil
		}
		return do(f)
	}
}

// failed reports whether the event will be undone: an atomic event after any error, a resync if handlers failed,
// because it would delete the missing values.
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

// releaseExternal deletes a key, which handlers now desire, from the external values.
func (f *flight) releaseExternal(key string, external map[string]any) {
	if _, ok := external[key]; ok {
		f.change.External = append(f.change.External, Setting{Key: key})
	}
}

// snapshot returns the record so far.
func (f *flight) snapshot(now time.Time) Record {
	rec := f.rec.clone()
	rec.Took = now.Sub(rec.Started)
	return rec
}

// publish adds the closed record to the history and answers the caller.
func (x *executor) publish(f *flight) {
	if f.isDeferred() {
		x.cfg.Log.Info("event waits", "seq", f.rec.Seq, "event", f.name, "for", f.rec.Err)
		x.history.forget(f.rec.Seq)
		x.queue.finish()
		f.done <- answer{nil, f.answerErr()}
		return
	}
	x.history.add(f.rec, f.saved && f.rec.Err == "" && len(f.rec.Verify) == 0)
	x.status.handled(x.external.drops)
	x.cfg.OnRecord(f.ctx, f.rec)
	x.queue.finish()
	rec := f.rec.clone()
	f.done <- answer{&rec, f.answerErr()}
}

// isDeferred reports whether the event failed in its handlers, was undone completely, and waits for a condition outside
// the loop.
func (f *flight) isDeferred() bool {
	d, can := f.event.(interface{ Defers(err error) bool })
	return can && len(f.errs) > 0 && f.atomic() && !f.committed && f.rec.Undone && f.rec.CancelledBy == "" &&
		d.Defers(f.err())
}

// kind is step 2: it determines whether the event is an update or a resync.
func (f *flight) kind() error {
	f.rec.Kind = f.resync.String()
	f.rec.Atomic = f.atomic()
	return nil
}

// order is step 3: it orders the handlers, in reverse for a removal.
func (x *executor) order(f *flight) error {
	f.handlers = x.registry.inOrder(f.removal)
	f.rec.Direction = "forward"
	if f.removal {
		f.rec.Direction = "reverse"
	}
	return nil
}

// leaveOut is step 4: it removes the handlers that do not handle the event.
func (f *flight) leaveOut() error {
	all := f.handlers
	f.handlers = slices.DeleteFunc(slices.Clone(all), func(h handler) bool { return !h.handles(f.event, f.resync) })
	for _, h := range f.handlers {
		f.rec.Order = append(f.rec.Order, h.name)
	}
	for _, h := range all {
		if !h.internal && !slices.Contains(f.rec.Order, h.name) && !slices.Contains(f.rec.LeftOut, h.name) {
			f.rec.LeftOut = append(f.rec.LeftOut, h.name)
		}
	}
	return nil
}

// openRecord is step 5: it sets number and times of the record.
func (x *executor) openRecord(f *flight) error {
	f.rec.Seq = x.history.begin()
	f.rec.Arrived = f.arrived
	f.rec.Started = x.cfg.Now()
	f.rec.Queued = f.rec.Started.Sub(f.arrived)
	return nil
}

// announce is step 6: it logs that the event began.
func (x *executor) announce(f *flight) error {
	x.cfg.Log.Info("event began", "seq", f.rec.Seq, "event", f.name, "kind", f.rec.Kind,
		"direction", f.rec.Direction, "handlers", len(f.handlers), "queued", f.rec.Queued)
	return nil
}

// runHandlers is step 7: the handlers build the transaction. An error stops it, unless the event is best effort.
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

// closeRecord is step 11: it sets the outcome and the total time.
func (x *executor) closeRecord(f *flight) error {
	f.rec.Took = x.cfg.Now().Sub(f.rec.Started)
	if err := f.err(); err != nil {
		f.rec.Err = err.Error()
		f.rec.Stack = stackOf(err)
		if c, ok := errors.AsType[*cancelledError](err); ok {
			f.rec.CancelledBy = c.by
		}
	}
	slices.Sort(f.rec.Stuck)
	f.rec.Stuck = slices.Compact(f.rec.Stuck)
	f.logEnd(x.cfg.Log)
	return nil
}

// logEnd logs the outcome, an error as a warning only if no caller gets it.
func (f *flight) logEnd(log *slog.Logger) {
	log = log.With("seq", f.rec.Seq, "event", f.name, "took", f.rec.Took)
	if len(f.rec.TakenDown) > 0 {
		log.Warn("event took down objects that are desired", "objects", f.rec.TakenDown)
	}
	switch {
	case f.rec.Err == "":
		log.Debug("event handled", "changes", f.rec.Changes, "operations", f.rec.Operations)
	case f.isHealing:
		log.Warn("event failed", "err", f.rec.Err, "undone", f.rec.Undone)
	default:
		log.Debug("event failed", "err", f.rec.Err, "undone", f.rec.Undone)
	}
}

// answerErr returns the error for the caller.
func (f *flight) answerErr() error {
	if len(f.errs) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", f.name, f.err())
}

// commit is the first half of step 9: it commits the transaction. Values of a best-effort event stay desired after a
// failure.
func (x *executor) commit(f *flight) error {
	if f.atomic() && f.run.Err() != nil {
		return f.interrupted(f.run.Err())
	}
	if f.change.empty() {
		return nil
	}
	f.committed = true
	out, err := x.committer.commit(f.run, f.change)
	f.count(out)
	f.rec.Pending = out.Pending
	f.rec.TakenDown = out.TakenDown
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
		f.rec.Stuck = append(f.rec.Stuck, keysOf(f.change.Set)...) // the Committer may not have accepted them
		f.needsHealing = true
	}
	return fmt.Errorf("commit: %w", f.interrupted(err))
}

// count adds an outcome to the record.
func (f *flight) count(out Outcome) {
	f.rec.Transactions = append(f.rec.Transactions, out.Transactions...)
	f.rec.Operations += len(out.Operations)
	f.rec.Stuck = append(f.rec.Stuck, out.Stuck...)
}

// interrupted adds to err the event that cancelled this one, if any.
func (f *flight) interrupted(err error) error {
	cause, ok := errors.AsType[*cancelledError](context.Cause(f.life))
	if !ok || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// save is the second half of step 9, the durable step: it saves the event's values and its record. Then it concludes
// the event.
func (x *executor) save(f *flight) error {
	record := Saved{RecordsBucket, recordKey(f.rec.Seq), f.snapshot(x.cfg.Now())}
	err := x.durable.save(f.run, slices.Concat(f.txn.saved, []Saved{record}))
	f.saved = err == nil && x.cfg.Saver != nil
	if err != nil {
		if f.atomic() {
			return err
		}
		x.durable.owed.add(f.txn.saved)
		f.needsHealing = true
	}
	if concluding := x.conclude(f); concluding != nil {
		return concluding
	}
	return err
}

// conclude makes the changes of a committed event part of the state.
func (x *executor) conclude(f *flight) error {
	x.state.adopt(f.txn, f.change)
	x.external.adopt(f.change)
	f.adopted = true
	if f.resync == Full {
		x.queue.open()
	}
	err := f.txn.commit()
	if err != nil {
		f.needsHealing = true
		return fmt.Errorf("conclude: %w", err)
	}
	return nil
}

// undo is step 10: it undoes a failed event, newest change first: the commit, then the handlers' changes. A key or
// handler is stuck if its undo fails. A best-effort event is not undone.
func (x *executor) undo(f *flight) error {
	if !f.failed() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.run), undoTimeout)
	defer cancel()
	err := x.uncommit(ctx, f)
	stuck, undoErr := f.txn.rollback()
	f.rec.Stuck = append(f.rec.Stuck, stuck...)
	f.rec.Undone = len(f.rec.Stuck) == 0
	return errors.Join(err, undoErr)
}

// uncommit commits the inverse of the change.
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

// drift returns the keys that a downstream resync would repair.
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
