package eventloop

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// maxBatch limits the removals that share a commit: each waits for all.
const maxBatch = 16

// batch returns r and the removals of its type that directly follow it in the queue. They share a commit and a durable
// step. With verification there are no batches, because it compares the state after each event.
func (x *executor) batch(r *request) []*request {
	if !r.removal || !r.bestEffort || r.resync != None || x.cfg.Verify {
		return []*request{r}
	}
	return append([]*request{r}, x.queue.popSameType(r, maxBatch-1)...)
}

// popSameType removes up to n removals of r's type, which runs, from the head of the queue. They cannot be dropped any
// more.
func (q *queue) popSameType(r *request, n int) []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := 0
	for i < min(n, len(q.waiting)) && q.waiting[i].removal && q.waiting[i].typ == r.typ &&
		q.waiting[i].resync == None &&
		q.waiting[i].plan == nil {
		i++
	}
	alike := slices.Clone(q.waiting[:i])
	q.waiting = slices.Delete(q.waiting, 0, i)
	return alike
}

// handleBatch runs the steps of several removals. Each is decided on the state that the previous one left, because a
// removal is never undone. Then all are committed as one change and saved in one step.
func (x *executor) handleBatch(rs []*request) {
	var flights []*flight
	for _, r := range rs {
		f, end := x.start(r)
		defer end()
		for _, s := range x.steps.deciding {
			x.take(f, s)
		}
		x.take(f, step{9, "adopt", x.conclude})
		flights = append(flights, f)
	}
	x.commitBatch(flights)
	x.saveBatch(flights)
	for _, f := range flights {
		for _, s := range x.steps.closing {
			x.take(f, s)
		}
		x.publish(f)
	}
}

// commitBatch commits one change. If that fails, it commits each event separately, so that an error belongs to its own
// event.
func (x *executor) commitBatch(flights []*flight) {
	change := Change{Event: flights[0].rec.Seq, Label: fmt.Sprintf("%s and %d more", flights[0].name, len(flights)-1)}
	at := map[string]int{}
	var events []uint64
	for _, f := range flights {
		events = append(events, f.rec.Seq)
		change.Set = mergeSettings(change.Set, f.change.Set, at)
		change.External = append(change.External, f.change.External...)
	}
	if change.empty() {
		return
	}
	ctx, cancel := context.WithTimeout(flights[0].life, commitTimeout)
	defer cancel()
	began := x.cfg.Now()
	out, err := x.committer.commit(ctx, change)
	took := x.cfg.Now().Sub(began)
	for _, f := range flights {
		if err != nil {
			x.commitSingle(f)
			continue
		}
		f.committed = true
		f.share(out, events)
		f.rec.Pending = f.ownKeys(out.Pending)
		f.rec.TakenDown = out.TakenDown
		x.external.dropRefused(f, f.refusedOf(out.Refused))
		f.rec.Steps = append(f.rec.Steps, Step{Number: 9, Name: "commit", Took: took})
	}
}

// share counts the outcome of a commit that events share: each has the operations on the keys that it set.
func (f *flight) share(out Outcome, events []uint64) {
	f.count(out)
	f.rec.Operations = len(f.ownKeys(out.Operations))
	for _, seq := range events {
		if seq != f.rec.Seq {
			f.rec.SharedWith = append(f.rec.SharedWith, seq)
		}
	}
}

// commitSingle commits one event with the full timeout.
func (x *executor) commitSingle(f *flight) {
	ctx, cancel := context.WithTimeout(f.life, commitTimeout)
	defer cancel()
	f.run = ctx
	x.take(f, step{9, "commit", x.commit})
}

// mergeSettings appends later settings to earlier ones, and replaces settings of the same key.
func mergeSettings(earlier, later []Setting, at map[string]int) []Setting {
	for _, s := range later {
		if i, known := at[s.Key]; known {
			earlier[i] = s
			continue
		}
		at[s.Key] = len(earlier)
		earlier = append(earlier, s)
	}
	return earlier
}

// ownKeys returns the keys that the event has set.
func (f *flight) ownKeys(keys []string) []string {
	mine := keysOf(f.change.Set)
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return !slices.Contains(mine, key) })
}

// refusedOf returns the refused external values that the event has set.
func (f *flight) refusedOf(refused map[string]string) map[string]string {
	mine := keysOf(f.change.External)
	own := maps.Clone(refused)
	maps.DeleteFunc(own, func(key, _ string) bool { return !slices.Contains(mine, key) })
	return own
}

// saveBatch is the durable step.
func (x *executor) saveBatch(flights []*flight) {
	began := x.cfg.Now()
	var saves []Saved
	for _, f := range flights {
		saves = append(saves, f.txn.saved...)
		saves = append(saves, Saved{RecordsBucket, recordKey(f.rec.Seq), f.snapshot(began)})
	}
	err := x.durable.save(flights[0].run, saves)
	took := x.cfg.Now().Sub(began)
	for _, f := range flights {
		done := Step{Number: 9, Name: "save", Took: took}
		f.saved = err == nil && x.cfg.Saver != nil
		if err != nil {
			f.errs = append(f.errs, err)
			done.Err = err.Error()
			x.durable.owed.add(f.txn.saved)
			f.needsHealing = true
		}
		f.rec.Steps = append(f.rec.Steps, done)
	}
}
