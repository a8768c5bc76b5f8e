package eventloop

import (
	"context"
	"errors"
	"fmt"
)

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
