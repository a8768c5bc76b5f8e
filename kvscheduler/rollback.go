package kvscheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// rollback returns an atomic transaction: the previous desired values are put back, and a normal plan from what is
// applied now leads there. So the way back is ordered and batched by the same rules, whatever was done, half done or lost.
func (s *state) rollback(r *run, a *admission, before []snapshotOf) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), s.cfg.RollbackTimeout)
	defer cancel()
	r.rec.Rollback = true
	for i := len(a.undo) - 1; i >= 0; i-- {
		s.setWant(a.undo[i].id, a.undo[i])
	}
	dirty := append(slices.Clone(a.dirty), s.g.stirred...)
	for _, b := range before {
		dirty = append(dirty, b.id)
		s.g.nodes[b.id].again = false
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
		if n := s.g.nodes[b.id]; n.want == nil && n.have == nil && !n.unknown {
			s.clearError(b.id)
		}
	}
}

// awaitLanes waits for calls that were given up: their objects can be read back only after they returned.
func (s *state) awaitLanes(ctx context.Context, before []snapshotOf) {
	for _, b := range before {
		n := s.g.nodes[b.id]
		if n.k == nil {
			continue
		}
		for l := s.lanes[n.k.lane]; l.hung.Load(); {
			select {
			case <-s.freed:
				s.drainPosted()
			case <-ctx.Done():
				return
			}
		}
	}
}

// notReturned names the objects that are neither as before nor as their owner wants them.
func (s *state) notReturned(before []snapshotOf) (left []string) {
	for _, b := range before {
		n := s.g.nodes[b.id]
		same := b.have == nil && n.have == nil || b.have != nil && n.have != nil && n.k.equal(b.have, n.have)
		if n.unknown || n.again || !same && !n.inSync() {
			left = append(left, n.ref.String())
		}
	}
	slices.Sort(left)
	return left
}
