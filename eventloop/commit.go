package eventloop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

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
