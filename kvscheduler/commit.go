package kvscheduler

import (
	"context"
	"fmt"
	"slices"
)

// begin opens the record of a request.
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
	if r.atomic && len(r.errs) > 0 {
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

// impossible returns why an atomic transaction cannot succeed, known before any backend call.
func (a *admission) impossible() error {
	var errs, dependents []error
	for _, f := range a.undo {
		n := a.g.nodes[f.id]
		switch {
		case n.unknown:
			errs = append(errs, fmt.Errorf("%s: the outcome of an earlier operation is not known yet", n.ref))
		case !a.txn.NoPending || n.want == nil || !n.waits():
		case n.act == pend && n.have == nil && f.want != nil && f.wantRev == n.wantRev: // it waited before, and is not changed
		case a.waitsForWaiting(n):
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

func (a *admission) pendingError(n *node) error {
	return fmt.Errorf("%s waits for %s: %w", n.ref, oneLine(a.missingNow(n)), ErrPending)
}

// waits reports whether the last plan leaves a desired object without being applied.
func (n *node) waits() bool { return n.have == nil && n.act == pend || n.act == del || n.foreign }

// waitsForWaiting reports whether all that an object waits for is desired and waits itself.
func (a *admission) waitsForWaiting(n *node) bool {
	found := false
	for _, e := range n.deps[wanted] {
		t := a.g.nodes[e.to]
		if a.g.serves(n, e) {
			continue
		}
		if found = true; t.want == nil || !t.waits() || t.mark != a.g.epoch {
			return false
		}
	}
	for _, i := range n.anyDeps[wanted] {
		if !slices.ContainsFunc(n.deps[wanted], func(e edge) bool { return e.dep == i }) {
			return false // there is no candidate
		}
	}
	return found && !n.foreign
}

// withSkipped adds the objects with an operation that an earlier failure kept from being done.
func (s *state) withSkipped(dirty []int32) []int32 {
	for id := range s.skipped {
		s.g.nodes[id].skipped = false
		dirty = append(dirty, id)
	}
	clear(s.skipped)
	return dirty
}

// withStaged adds those of the left out, or only staged, objects whose kinds were just read.
func (s *state) withStaged(dirty []int32, dumps map[Kind]found) []int32 {
	for id := range s.skipped {
		if n := s.g.nodes[id]; n.k != nil && (dumps[n.ref.Kind] != nil || !n.k.backed) {
			n.skipped = false
			delete(s.skipped, id)
			dirty = append(dirty, id)
		}
	}
	return dirty
}

// dry serves Plan: what commit would do, and the graph as it was.
func (s *state) dry(ctx context.Context, q *request) (*Record, error) {
	r := s.begin(ctx, "plan", "desired")
	r.describe(q)
	a, err := s.admit(q.txn)
	if err != nil {
		r.rec.Err = err.Error()
		return r.rec, err
	}
	r.rec.Changed = a.changed
	for _, o := range r.plan(a.dirty) {
		r.rec.Ops = append(r.rec.Ops, r.record(o))
	}
	for _, id := range r.touched {
		if n := s.g.nodes[id]; n.act == pend && n.want != nil {
			r.rec.Pending = append(r.rec.Pending, Why{Ref: n.ref.String(), Missing: s.missingAfter(n)})
		}
	}
	a.unstage()
	return r.rec, joined(a.invalid)
}

// former state of what a plan is going to change.
type snapshotOf struct {
	id   int32
	have any
}

func (s *state) remember(ops []op, dirty []int32) []snapshotOf {
	ids := slices.Clone(dirty)
	for _, o := range ops {
		ids = append(ids, o.id)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	out := make([]snapshotOf, len(ids))
	for i, id := range ids {
		out[i] = snapshotOf{id: id, have: s.g.nodes[id].have}
	}
	return out
}
