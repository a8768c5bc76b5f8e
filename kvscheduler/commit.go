package kvscheduler

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weftnet/weft/kvscheduler/plan"
)

// Mode is the effect of a failure on a transaction.
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
	// KeepOthers, Atomic only: it is a failure, found before any backend call, if an applied object of the source that
	// is not in Set would have to be deleted although it stays desired.
	KeepOthers bool
	Set        []Object
	Timeout    time.Duration // of the execution, not of the time in the queue; 0: no limit of its own
}

// ResyncOpt narrows a resync.
type ResyncOpt struct {
	Label  string // for people
	Event  uint64 // number of the event that asked, shown in the Record
	Kinds  []Kind // nil: all
	Refs   []Ref  // if set, only these objects, their direct dependencies, and all that depends on them
	DryRun bool   // dump, compare and plan only
	// most that may be pruned, as a share of the known objects of a kind; 0: half, or 16 if that is more
	MaxPrune float64
	Force    bool // prune all found objects, once all sources are ready

	// Reopen is called when all was read back, before the repair. If it returns true, the lanes of the kinds open:
	// their backends are back, and no operation relies on their earlier content. nil: lanes stay as they are.
	Reopen func() bool
}

// begin starts the record of a request.
func (s *state) begin(ctx context.Context, origin, why string) *run {
	now := s.now()
	return &run{state: s, ctx: ctx, began: now, why: why, rec: &Record{Origin: origin, Start: now, Ops: []OpRecord{}}}
}

// commit serves Commit.
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
		if len(s.g.LeftOut) > 0 { // by other transactions; their callers got the failures
			r.own = s.dependents(dirty)
		}
		dirty = s.withSkipped(dirty)
		r.errs = append(r.errs, a.invalid...)
	}
	s.rev++
	r.rec.Changed = a.changed
	r.atomic = t.Mode == Atomic
	readBack{r}.readDoubtful(dirty)
	ops := r.plan(dirty)
	if r.atomic {
		if err := a.impossible(r.planned); err != nil {
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
		rollback{run: r, admitted: a, before: before}.undo()
	}
	return r.finish()
}

func (r *run) describe(q *request) {
	r.rec.Source = q.txn.Source
	r.rec.Label = q.txn.Label
	r.rec.Event = q.txn.Event
	r.rec.Queued = r.began.Sub(q.queued)
}

// refused records a transaction without effect.
func (r *run) refused(err error) (*Record, error) {
	r.errs = []error{err}
	r.rec.Undone = true
	return r.finish()
}

// impossible returns why an atomic transaction with this plan cannot succeed, before any backend call.
func (a *admission) impossible(p *plan.Plan) error {
	errs := a.takenDown(p)
	var dependents []error
	for _, f := range a.undo {
		n := a.g.Node(f.id)
		switch {
		case n.Phase() == plan.Doubtful:
			errs = append(errs, fmt.Errorf("%s: the outcome of an earlier operation is not known yet", n.Ref))
		case !a.txn.NoPending || n.Want == nil || !n.Waits():
		case n.WaitedBefore(f.Desire): // and is not changed
		case p.WaitsForWaiting(n):
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

// takenDown returns an error for each other applied object of the source that the plan would delete although it is
// desired. Objects of other sources may depend on objects that the transaction removes.
func (a *admission) takenDown(p *plan.Plan) (errs []error) {
	if !a.txn.KeepOthers {
		return nil
	}
	own := make(map[plan.ID]bool, len(a.undo))
	for _, f := range a.undo {
		own[f.id] = true
	}
	for _, id := range p.Affected() {
		n := a.g.Node(id)
		if !own[id] && n.Source == a.txn.Source && n.Desired() && n.There() && n.Deleted() {
			missing := strings.Join(p.MissingAfter(n), ", ")
			errs = append(errs, fmt.Errorf("%s is applied, and would wait for %s: %w", n.Ref, missing, ErrPending))
		}
	}
	return errs
}

// withSkipped adds the objects with an operation that was left out because another one failed.
func (s *state) withSkipped(dirty []plan.ID) []plan.ID {
	dirty = slices.AppendSeq(dirty, maps.Keys(s.g.LeftOut))
	clear(s.g.LeftOut)
	return dirty
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
		dirty = slices.AppendSeq(slices.Clone(dirty), maps.Keys(s.g.LeftOut))
	}
	for _, o := range r.plan(dirty) {
		r.rec.Ops = append(r.rec.Ops, r.record(o))
	}
	for _, id := range r.touched {
		if n := s.g.Node(id); n.Pends() && n.Want != nil {
			r.rec.Pending = append(r.rec.Pending, Why{Ref: n.Ref.String(), Missing: r.planned.MissingAfter(n)})
		}
	}
	if q.txn.Mode == Atomic {
		err = a.impossible(r.planned)
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
		if n := r.g.Node(id); n.Desired() && n.Have == nil && n.Err == nil {
			r.rec.Pending = append(r.rec.Pending, Why{Ref: n.Ref.String(), Missing: r.g.MissingNow(n), Lost: n.Lost})
		}
	}
	slices.SortFunc(r.rec.Pending, func(a, b Why) int { return cmp.Compare(a.Ref, b.Ref) })
	if err := r.journal.write(r.g); err != nil {
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

// worthLogging returns false for a resync or dry run that no event asked for, unless a resync changed something: the
// periodic audit must not push changes out of the log.
func (r *run) worthLogging() bool {
	happened := len(r.rec.Ops) > 0 || len(r.errs) > 0
	if r.dry {
		return r.rec.Event != 0 && happened
	}
	return r.rec.Origin != "resync" || r.rec.Event != 0 || happened
}

// tidy updates the record of an object for which a plan found no operation.
func (r *run) tidy(id plan.ID) {
	n := r.g.Node(id)
	if kindOf(n) == nil {
		return
	}
	if n.Phase() == plan.Absent {
		if n.Err != nil || !n.RetryAt.IsZero() {
			r.clearError(id)
		}
		delete(r.g.LeftOut, id)
		return
	}
	if n.Pends() && n.Phase() == plan.Failed { // an error of times when its dependencies were met
		r.clearError(id)
	}
	if n.Pends() && n.Have == nil && !r.dry { // it waits, whatever it was before
		n.Drifted = false
	}
	if !n.Stays() || !n.Matches() { // an operation was planned: its result stands
		return
	}
	before := n.HaveRev
	if r.g.Settle(id) {
		if before == 0 {
			r.journal.note(id)
		}
		r.clearError(id)
	}
}
