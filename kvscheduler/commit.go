package kvscheduler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weftnet/weft/kvscheduler/plan"
)

// Mode is what a failure does to a transaction.
type Mode uint8

const (
	// BestEffort: failures stay as Failed and are retried.
	BestEffort Mode = iota
	// Atomic: any failure, also of a dependent of another source, returns everything to the previous desired state.
	Atomic
)

// Txn is a change of the desired state.
type Txn struct {
	Source    string // owner of the keys; another source that sets one of them gets ErrConflict
	Label     string // for people
	Event     uint64 // number of the event that asked, shown in the Record
	Mode      Mode
	Replace   bool // Set is the whole desired state of Source
	NoPending bool // Atomic only: an object of Set that would have to wait is a failure, found before any backend call
	// KeepOthers, Atomic only: it is a failure, found before any backend call, if an applied object of the source that is not in Set would have
	// to be deleted although it stays desired.
	KeepOthers bool
	Set        []Object
	Timeout    time.Duration // of the execution, not of the time in the queue; 0: no limit of its own
}

// ResyncOpt narrows a resync.
type ResyncOpt struct {
	Label    string  // for people
	Event    uint64  // number of the event that asked, shown in the Record
	Kinds    []Kind  // nil: all
	Refs     []Ref   // if set, only these objects, what they depend on directly, and all that depends on them
	DryRun   bool    // dump, compare and plan only
	MaxPrune float64 // most that may be pruned, as a share of the known objects of a kind; 0: half, or 16 if that is more
	Force    bool    // prune all found objects, once all sources are ready

	// Reopen is called when all was read back, before the repair. If it returns true, the lanes of the kinds open: their
	// backends are back, and no operation relies on what they held before. nil: lanes stay as they are.
	Reopen func() bool
}

// begin starts the record of a request.
func (s *state) begin(ctx context.Context, origin, why string) *run {
	now := s.now()
	return &run{state: s, ctx: ctx, began: now, why: why, rec: &Record{Origin: origin, Start: now, Ops: []OpRecord{}}}
}

// commit serves Commit and Submit.
func (s *state) commit(ctx context.Context, q *request) (*Record, error) {
	t := q.txn
	if t.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t.Timeout)
		defer cancel()
	}
	r := s.begin(ctx, "txn", "desired")
	r.describe(q)
	a, err := s.admit(t)
	if err != nil {
		return r.refused(err)
	}
	dirty := a.dirty
	if t.Mode == BestEffort {
		if s.g.HasSkipped() { // by other transactions, whose callers got the failures
			r.own = s.dependents(dirty)
		}
		dirty = s.withSkipped(dirty)
		r.errs = append(r.errs, a.invalid...)
	}
	s.rev++
	r.rec.Changed = a.changed
	r.atomic = t.Mode == Atomic
	r.readDoubtful(dirty)
	ops := r.plan(dirty)
	if r.atomic {
		if err := a.impossible(); err != nil {
			a.unstage()
			return r.refused(err)
		}
	}
	before := s.remember(ops, dirty)
	r.execute(ops)
	switch {
	case !r.atomic:
		r.retreat()
	case len(r.errs) > 0:
		s.rollback(r, a, before)
	}
	return r.finish()
}

func (r *run) describe(q *request) {
	r.rec.Source, r.rec.Label, r.rec.Event = q.txn.Source, q.txn.Label, q.txn.Event
	r.rec.Ticket = q.ticket
	r.rec.Queued = r.began.Sub(q.queued)
}

// refused records a transaction that changed nothing.
func (r *run) refused(err error) (*Record, error) {
	r.errs = []error{err}
	r.rec.Undone = true
	return r.finish()
}

// impossible returns why an atomic transaction cannot succeed, before any backend call.
func (a *admission) impossible() error {
	errs := a.takenDown()
	var dependents []error
	for _, f := range a.undo {
		n := a.g.Node(f.id)
		switch {
		case n.State == plan.Doubtful:
			errs = append(errs, fmt.Errorf("%s: the outcome of an earlier operation is not known yet", n.Ref))
		case !a.txn.NoPending || n.Want == nil || !n.Waits():
		case n.WaitedBefore(f.Desire): // and is not changed
		case a.g.WaitsForWaiting(n):
			dependents = append(dependents, a.pendingError(n))
		default:
			errs = append(errs, a.pendingError(n))
		}
	}
	switch {
	case len(errs) == 0: // they wait for objects that this transaction does not change
		errs = dependents
	case len(dependents) > 0:
		errs = append(errs, fmt.Errorf("%d more objects wait for these", len(dependents)))
	}
	return joined(errs)
}

func (a *admission) pendingError(n *plan.Node) error {
	return fmt.Errorf("%s waits for %s: %w", n.Ref, strings.Join(a.g.MissingNow(n), ", "), ErrPending)
}

// takenDown returns an error for each other applied object of the source that the plan would delete although it is desired. Objects of
// other sources may depend on what the transaction removes.
func (a *admission) takenDown() (errs []error) {
	if !a.txn.KeepOthers {
		return nil
	}
	own := make(map[plan.ID]bool, len(a.undo))
	for _, f := range a.undo {
		own[f.id] = true
	}
	for _, id := range a.g.Affected() {
		n := a.g.Node(id)
		if !own[id] && n.Source == a.txn.Source && n.Desired() && n.There() && n.Deleted() {
			missing := strings.Join(a.g.MissingAfter(n), ", ")
			errs = append(errs, fmt.Errorf("%s is applied, and would wait for %s: %w", n.Ref, missing, ErrPending))
		}
	}
	return errs
}

// withSkipped adds the objects with an operation that was left out because another one failed.
func (s *state) withSkipped(dirty []plan.ID) []plan.ID {
	return s.g.TakeSkipped(dirty, func(*plan.Node) bool { return true })
}

// dry serves Plan: it records what commit would do if no operation fails, and restores the graph.
func (s *state) dry(ctx context.Context, q *request) (*Record, error) {
	r := s.begin(ctx, "plan", "desired")
	r.describe(q)
	a, err := s.admit(q.txn)
	if err != nil {
		r.rec.Err = err.Error()
		return r.rec, err
	}
	r.rec.Changed = a.changed
	dirty := a.dirty
	if q.txn.Mode == BestEffort {
		dirty = append(slices.Clone(dirty), s.skippedNow()...)
	}
	for _, o := range r.plan(dirty) {
		r.rec.Ops = append(r.rec.Ops, r.record(o))
	}
	for _, id := range r.touched {
		if n := s.g.Node(id); n.Pends() && n.Want != nil {
			r.rec.Pending = append(r.rec.Pending, Why{Ref: n.Ref.String(), Missing: s.g.MissingAfter(n)})
		}
	}
	if q.txn.Mode == Atomic {
		err = a.impossible()
	} else {
		err = joined(a.invalid)
	}
	a.unstage()
	if err != nil {
		r.rec.Err = err.Error()
	}
	return r.rec, err
}

// dependents returns objects and all that depends on them.
func (s *state) dependents(ids []plan.ID) map[plan.ID]bool {
	all := make(map[plan.ID]bool)
	s.g.Dependents(ids, func(id plan.ID) { all[id] = true })
	return all
}

// skippedNow returns the objects that withSkipped would add, and leaves them noted.
func (s *state) skippedNow() (ids []plan.ID) {
	s.g.TakeSkipped(nil, func(n *plan.Node) bool {
		if id, known := s.g.Lookup(n.Ref); known {
			ids = append(ids, id)
		}
		return false
	})
	return ids
}

// snapshotOf is the applied value of an object before a plan changes it.
type snapshotOf struct {
	id   plan.ID
	have any
}

func (s *state) remember(ops []plan.Op, dirty []plan.ID) []snapshotOf {
	ids := slices.Clone(dirty)
	for _, o := range ops {
		ids = append(ids, o.ID)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	out := make([]snapshotOf, len(ids))
	for i, id := range ids {
		out[i] = snapshotOf{id: id, have: s.g.Node(id).Have}
	}
	return out
}

// rollback undoes an atomic transaction: it restores the previous desired values and executes a normal plan from what is applied now. So
// undo operations are ordered and batched by the same rules, however far the transaction came.
func (s *state) rollback(r *run, a *admission, before []snapshotOf) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), s.cfg.RollbackTimeout)
	defer cancel()
	r.rec.Rollback = true
	for i := len(a.undo) - 1; i >= 0; i-- {
		s.setDesire(a.undo[i].id, a.undo[i].Desire)
	}
	dirty := s.g.TakeStirred(slices.Clone(a.dirty))
	for _, b := range before {
		dirty = append(dirty, b.id)
		s.g.Node(b.id).Again = false
	}
	s.awaitLanes(ctx, before)
	back := &run{state: s, ctx: ctx, began: r.began, why: "undo", rec: r.rec, batches: r.batches}
	back.readDoubtful(dirty)
	back.execute(back.plan(dirty))
	r.touched = append(r.touched, back.touched...)
	left := s.notReturned(before)
	r.rec.Undone = len(left) == 0
	if len(left) > 0 {
		fault := fmt.Errorf("%w: %s", ErrIncomplete, strings.Join(left, ", "))
		if len(back.errs) > 0 {
			fault = fmt.Errorf("%w: %w", fault, joined(back.errs))
		}
		r.fault(fault)
	}
	for _, b := range before {
		if n := s.g.Node(b.id); n.Want == nil && !n.Present() {
			s.clearError(b.id)
		}
	}
}

// awaitLanes waits for calls that were abandoned: their objects can be read back only after the calls returned.
func (s *state) awaitLanes(ctx context.Context, before []snapshotOf) {
	for _, b := range before {
		n := s.g.Node(b.id)
		if kindOf(n) == nil {
			continue
		}
		for l := s.lanes[kindOf(n).lane]; l.hung.Load(); {
			select {
			case <-s.freed:
				s.drainPosted()
			case <-ctx.Done():
				return
			}
		}
	}
}

// notReturned names the objects that are neither as before nor as their source desires.
func (s *state) notReturned(before []snapshotOf) (left []string) {
	for _, b := range before {
		n := s.g.Node(b.id)
		same := b.have == nil && n.Have == nil || b.have != nil && n.Have != nil && n.Rules.Equal(b.have, n.Have)
		if n.State == plan.Doubtful || n.Again || !same && !n.InSync() {
			left = append(left, n.Ref.String())
		}
	}
	slices.Sort(left)
	return left
}

// finish settles the objects that the plans affected, publishes them, and completes the record.
func (r *run) finish() (*Record, error) {
	slices.Sort(r.touched)
	r.touched = slices.Compact(r.touched)
	for _, id := range r.touched {
		r.tidy(id)
	}
	r.publish(r.touched)
	r.rec.Took = r.now().Sub(r.began)
	for _, id := range r.touched {
		if n := r.g.Node(id); n.Want != nil && n.Have == nil && n.Invalid == nil && n.Err == nil {
			r.rec.Pending = append(r.rec.Pending, Why{Ref: n.Ref.String(), Missing: r.g.MissingNow(n), Lost: n.Lost})
		}
	}
	slices.SortFunc(r.rec.Pending, func(a, b Why) int { return cmp.Compare(a.Ref, b.Ref) })
	if err := r.writeJournal(); err != nil {
		r.fault(err)
	}
	r.g.Sweep(r.touched)
	err := joined(r.errs)
	if err != nil {
		r.rec.Err = err.Error()
	}
	if r.worthLogging() {
		r.seq++
		r.rec.Seq = r.seq
		r.log.append(r.rec, r.weigh(r.rec))
	}
	return r.rec, err
}

// worthLogging returns false for a resync or dry run that no event asked for, unless a resync changed something: the periodic audit must
// not push changes out of the log.
func (r *run) worthLogging() bool {
	happened := len(r.rec.Ops) > 0 || len(r.errs) > 0
	if r.dry {
		return r.rec.Event != 0 && happened
	}
	return r.rec.Origin != "resync" || r.rec.Event != 0 || happened
}

// tidy updates what is known of an object for which a plan found no operation.
func (r *run) tidy(id plan.ID) {
	n := r.g.Node(id)
	n.Changed = false
	if kindOf(n) == nil {
		return
	}
	if n.Want == nil && !n.Present() {
		if n.Err != nil || !n.RetryAt.IsZero() {
			r.clearError(id)
		}
		r.g.Unskip(id)
		return
	}
	if n.Pends() && n.Err != nil && n.State != plan.Doubtful { // an error of times when its dependencies were met
		r.clearError(id)
	}
	if n.Pends() && n.Have == nil && !r.dry { // it waits, whatever it was before
		n.Drifted = false
	}
	if !n.Stays() || !n.InSync() { // an operation was planned: its result stands
		return
	}
	before := n.HaveRev
	if r.g.Settle(id) {
		if before == 0 {
			r.note(id)
		}
		r.clearError(id)
	}
}
