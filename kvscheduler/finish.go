package kvscheduler

import (
	"cmp"
	"slices"
)

// finish settles what was looked at, publishes it, and closes the record.
func (r *run) finish() (*Record, error) {
	slices.Sort(r.touched)
	r.touched = slices.Compact(r.touched)
	for _, id := range r.touched {
		r.tidy(id)
	}
	r.publish(r.touched)
	r.rec.Took = r.now().Sub(r.began)
	for _, id := range r.touched {
		if n := r.g.nodes[id]; n.want != nil && n.have == nil && n.invalid == nil && n.err == nil {
			r.rec.Pending = append(r.rec.Pending, Why{Ref: n.ref.String(), Missing: r.missingNow(n)})
		}
	}
	slices.SortFunc(r.rec.Pending, func(a, b Why) int { return cmp.Compare(a.Ref, b.Ref) })
	if err := r.writeJournal(); err != nil {
		r.fault(err)
	}
	r.g.sweep(r.touched)
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

// worthLogging is false for resyncs and dry runs that no event asked for, unless a resync changed something: the audit must not push
// changes out of the log.
func (r *run) worthLogging() bool {
	happened := len(r.rec.Ops) > 0 || len(r.errs) > 0
	if r.dry {
		return r.rec.Event != 0 && happened
	}
	return r.rec.Origin != "resync" || r.rec.Event != 0 || happened
}

// tidy brings in line what a plan found to need no operation.
func (r *run) tidy(id int32) {
	n := r.g.nodes[id]
	n.changed = false
	if n.k == nil {
		return
	}
	if n.want == nil && !n.present() {
		if n.err != nil || !n.retryAt.IsZero() {
			r.clearError(id)
		}
		n.skipped = false
		delete(r.skipped, id)
		return
	}
	if n.act == pend && !n.held && !n.unknown && n.err != nil { // an error of times when its dependencies were met
		r.clearError(id)
	}
	if n.act == pend && n.have == nil && !n.held && !r.dry { // it waits, whatever it was before
		n.drifted = false
	}
	if n.act != none || n.held { // an operation was planned: its result stands
		return
	}
	settled := n.haveRev == n.wantRev && n.err == nil && !n.drifted
	if settled && len(n.anyDeps[wanted]) == 0 || !n.inSync() {
		return
	}
	if _, missing := r.g.unmet(n); missing {
		return
	}
	if n.haveRev == 0 {
		r.note(id)
	}
	n.haveRev, n.drifted = n.wantRev, false
	r.copyEdges(id)
	r.clearError(id)
}
