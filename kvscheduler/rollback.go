package kvscheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weftnet/weft/kvscheduler/plan"
)

// rollback is the way back of an atomic transaction that failed.
type rollback struct {
	*run
	admitted *admission
	before   []snapshotOf
}

// undo undoes the transaction: it restores the previous desired values and executes a normal plan from the applied
// ones. So undo operations are ordered and batched by the same rules, however far the transaction came.
func (k rollback) undo() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.ctx), rollbackTimeout)
	defer cancel()
	k.rec.Rollback = true
	for i := len(k.admitted.undo) - 1; i >= 0; i-- {
		k.setDesire(k.admitted.undo[i].id, k.admitted.undo[i].Desire)
	}
	dirty := k.g.TakeStirred(slices.Clone(k.admitted.dirty))
	for _, b := range k.before {
		dirty = append(dirty, b.id)
		k.g.Node(b.id).Again = false
	}
	k.awaitLanes(ctx)
	back := &run{state: k.state, ctx: ctx, began: k.began, why: "undo", rec: k.rec, batches: k.batches}
	readBack{back}.readDoubtful(dirty)
	back.execute(back.plan(dirty))
	k.touched = append(k.touched, back.touched...)
	left := k.notReturned()
	k.rec.Undone = len(left) == 0
	if len(left) > 0 {
		fault := fmt.Errorf("%w: %s", ErrIncomplete, strings.Join(left, ", "))
		if len(back.errs) > 0 {
			fault = fmt.Errorf("%w: %w", fault, joined(back.errs))
		}
		k.fault(fault)
	}
	for _, b := range k.before {
		if k.g.Node(b.id).Phase() == plan.Absent {
			k.clearError(b.id)
		}
	}
}

// awaitLanes waits for calls that were abandoned: their objects can be read back only after the calls returned.
func (k rollback) awaitLanes(ctx context.Context) {
	for _, b := range k.before {
		n := k.g.Node(b.id)
		if kindOf(n) == nil {
			continue
		}
		for l := k.lanes[kindOf(n).lane]; l.hung.Load(); {
			select {
			case <-k.calls.freed:
				k.drainPosted()
			case <-ctx.Done():
				return
			}
		}
	}
}

// notReturned names the objects that are neither as before nor as their source desires.
func (k rollback) notReturned() (left []string) {
	for _, b := range k.before {
		n := k.g.Node(b.id)
		same := b.have == nil && n.Have == nil || b.have != nil && n.Have != nil && n.Rules.Equal(b.have, n.Have)
		if n.Phase() == plan.Doubtful || n.Again || !same && !n.Matches() {
			left = append(left, n.Ref.String())
		}
	}
	slices.Sort(left)
	return left
}
