package kvscheduler

import "slices"

// publish makes the present state of the given nodes visible.
func (s *state) publish(ids []int32) {
	old := s.store.view()
	next := &snapshot{rev: old.rev + 1, kinds: s.kindIndex, roots: make([]*trie, len(s.kindIndex))}
	copy(next.roots, old.roots)
	var changed []Ref
	for _, id := range ids {
		if n := s.g.nodes[id]; n.k != nil && s.put(next, n) {
			changed = append(changed, n.ref)
		}
	}
	if len(changed) > 0 {
		s.store.publish(next, changed)
	}
}

func (s *state) put(v *snapshot, n *node) bool {
	i := s.kindIndex[n.ref.Kind]
	old := v.roots[i].find(n.ref.Name)
	e := &entry{ref: n.ref, want: n.want, have: n.have, meta: n.meta, touched: n.touched, source: n.source,
		foreign: n.foreign, status: s.status(n)}
	if e.status.Phase == Absent {
		if old != nil {
			v.roots[i] = v.roots[i].without(n.ref.Name, hashName(n.ref.Name), v.rev)
		}
		return old != nil
	}
	e.status.Since = s.now()
	if old != nil && old.status.Phase == e.status.Phase {
		e.status.Since = old.status.Since
	}
	if old != nil && old.touched == e.touched && old.status.equal(&e.status) {
		return false
	}
	v.roots[i] = v.roots[i].with(e, hashName(n.ref.Name), 0, v.rev)
	return true
}

func (a *Status) equal(b *Status) bool {
	return a.Phase == b.Phase && a.Attempt == b.Attempt && a.RetryAt.Equal(b.RetryAt) && a.Want == b.Want &&
		a.Have == b.Have && (a.Err == nil) == (b.Err == nil) &&
		slices.Equal(a.Missing, b.Missing) && slices.Equal(a.Children, b.Children)
}

func (s *state) status(n *node) Status {
	st := Status{Phase: n.phase(), Err: n.err, Attempt: n.attempt, RetryAt: n.retryAt, Want: n.wantRev, Have: n.haveRev}
	if n.invalid != nil && n.err == nil {
		st.Err = n.invalid
	}
	if st.Phase == Pending {
		st.Missing = s.missingNow(n)
	}
	for _, c := range n.children {
		st.Children = append(st.Children, s.g.nodes[c].ref)
	}
	return st
}

func (n *node) phase() Phase {
	switch {
	case n.want == nil && !n.present():
		return Absent
	case n.invalid != nil && n.present() && !n.foreign:
		return Removing
	case n.invalid != nil:
		return Invalid
	case n.foreign && n.want == nil:
		return Observed
	case n.foreign:
		return Pending
	case n.want == nil && n.orphan:
		return Observed
	case n.want == nil:
		return Removing
	case n.err != nil:
		return Failed
	case n.have == nil && !n.drifted:
		return Pending
	case n.haveRev == n.wantRev && !n.drifted && !n.unknown && !n.again:
		return InSync
	}
	return Drifted
}
