package eventloop

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// mostTogether bounds how many removals share a commit: each waits for all of them.
const mostTogether = 16

// together returns r and the removals of its type that wait right behind it, which share a commit and a durable step. Verification
// compares the state after each event, so that none are shared then.
func (x *executor) together(r *request) []*request {
	if !r.removal || !r.bestEffort || r.resync != None || x.cfg.Verify {
		return []*request{r}
	}
	return append([]*request{r}, x.queue.popAlike(r, mostTogether-1)...)
}

// popAlike takes up to n removals of r's type from the head of the queue. They are as good as running.
func (q *queue) popAlike(r *request, n int) []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.followUps) > 0 || q.gated {
		return nil
	}
	i := 0
	for i < min(n, len(q.waiting)) && q.waiting[i].removal && q.waiting[i].typ == r.typ && q.waiting[i].resync == None {
		i++
	}
	alike := slices.Clone(q.waiting[:i])
	q.waiting = slices.Delete(q.waiting, 0, i)
	return alike
}

// handleTogether takes removals through the steps. Handlers run for one after the other, each on the state that the one before left, as
// a removal stands whatever becomes of its commit. Then all are committed as one change, and made durable in one step.
func (x *executor) handleTogether(rs []*request) {
	var flights []*flight
	for _, r := range rs {
		f, end := x.takeOff(r)
		defer end()
		for _, s := range x.steps.deciding {
			x.take(f, s)
		}
		x.take(f, step{9, "adopt", x.conclude})
		flights = append(flights, f)
	}
	x.commitTogether(flights)
	x.saveTogether(flights)
	for _, f := range flights {
		for _, s := range x.steps.closing {
			x.take(f, s)
		}
		x.publish(f)
	}
}

// commitTogether commits one change of all. If that fails each is committed by itself, so that an error is that of its own event.
func (x *executor) commitTogether(flights []*flight) {
	change := Change{Event: flights[0].rec.Seq, Label: fmt.Sprintf("%s and %d more", flights[0].name, len(flights)-1)}
	at := map[string]int{}
	for _, f := range flights {
		change.Set = settle(change.Set, f.change.Set, at)
		change.External = append(change.External, f.change.External...)
	}
	if change.empty() {
		return
	}
	ctx, cancel := context.WithTimeout(flights[0].life, x.cfg.CommitTimeout)
	defer cancel()
	began := x.cfg.Now()
	out, err := x.committer.commit(ctx, change)
	took := x.cfg.Now().Sub(began)
	for _, f := range flights {
		if err != nil {
			x.commitAlone(f)
			continue
		}
		f.committed = true
		f.count(out)
		f.rec.Pending = f.own(out.Pending)
		x.external.dropRefused(f, f.ownRefused(out.Refused))
		f.rec.Steps = append(f.rec.Steps, Step{Number: 9, Name: "commit", Took: took})
	}
}

// commitAlone gives the event as much time as one that shares nothing.
func (x *executor) commitAlone(f *flight) {
	ctx, cancel := context.WithTimeout(f.life, x.cfg.CommitTimeout)
	defer cancel()
	f.run = ctx
	x.take(f, step{9, "commit", x.commit})
}

// settle adds later settings to earlier ones, in the place of those of the same key.
func settle(earlier, later []Setting, at map[string]int) []Setting {
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

// own returns the keys that the event has set.
func (f *flight) own(keys []string) []string {
	mine := keysOf(f.change.Set)
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return !slices.Contains(mine, key) })
}

// ownRefused returns the refused values of external configuration that came with the event.
func (f *flight) ownRefused(refused map[string]string) map[string]string {
	mine := keysOf(f.change.External)
	own := maps.Clone(refused)
	maps.DeleteFunc(own, func(key, _ string) bool { return !slices.Contains(mine, key) })
	return own
}

// saveTogether is the durable step of all.
func (x *executor) saveTogether(flights []*flight) {
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
			f.errs, done.Err = append(f.errs, err), err.Error()
			x.durable.owed = append(x.durable.owed, f.txn.saved...)
			f.unclean = true
		}
		f.rec.Steps = append(f.rec.Steps, done)
	}
}
