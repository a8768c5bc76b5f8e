package kvscheduler

import (
	"fmt"
	"slices"
	"time"
)

// former is what a node desired before it was staged.
type former struct {
	id        int32
	want      any
	wantRev   uint64
	source    string
	parent    int32
	children  []int32
	invalid   error
	orphan    bool
	err       error
	permanent bool
	attempt   int
	retryAt   time.Time
}

// stage writes the desired values into the graph: first what goes, then what comes, so that a child may change its
// parent and a key its role within one transaction.
func (a *admission) stage() error {
	for _, id := range a.removed {
		a.remove(id, nil)
	}
	keep := make(map[Ref]bool, len(a.desires))
	for _, d := range a.desires {
		if keep[d.ref] {
			return fmt.Errorf("%s is derived twice: %w", d.ref, ErrConflict)
		}
		keep[d.ref] = true
	}
	for _, d := range a.desires {
		if id, known := a.g.ids[d.ref]; known && d.parent < 0 {
			for _, c := range slices.Clone(a.g.nodes[id].children) {
				a.remove(c, keep)
			}
		}
	}
	ids := make([]int32, len(a.desires))
	for i, d := range a.desires {
		id, err := a.put(d, ids)
		if err != nil {
			return err
		}
		ids[i] = id
	}
	return nil
}

// remove takes back the desire for a node and what was derived from it. Children that will be derived again keep
// their value for the comparison, but lose their parent.
func (a *admission) remove(id int32, keep map[Ref]bool) {
	n := a.g.nodes[id]
	children := slices.Clone(n.children)
	a.remember(id)
	n.children = nil
	if keep[n.ref] {
		n.parent = -1
		a.adrift[id] = true
	} else {
		a.setWant(id, desire{ref: n.ref}, -1)
		a.dirty = append(a.dirty, id)
		a.changed++
	}
	for _, c := range children {
		a.remove(c, keep)
	}
}

func (a *admission) put(d desire, ids []int32) (int32, error) {
	id := a.g.intern(d.ref)
	n := a.g.nodes[id]
	parent := int32(-1)
	if d.parent >= 0 {
		parent = ids[d.parent]
	}
	if n.want != nil && !a.adrift[id] && d.parent >= 0 {
		return 0, fmt.Errorf("%s, derived from %s, is desired already: %w", d.ref, a.g.nodes[parent].ref, ErrConflict)
	}
	delete(a.adrift, id)
	same := a.unchanged(id, d.v) && d.invalid == nil
	a.remember(id)
	n.children = nil
	if parent >= 0 {
		p := a.g.nodes[parent]
		p.children = append(p.children, id)
	}
	if !same {
		a.changed++
	}
	if !same || n.haveRev != n.wantRev || n.err != nil {
		a.dirty = append(a.dirty, id)
	}
	if same {
		d.v = n.want
	}
	a.setWant(id, d, parent)
	if same {
		n.wantRev = a.undo[len(a.undo)-1].wantRev
	}
	return id, nil
}

func (a *admission) remember(id int32) {
	n := a.g.nodes[id]
	a.undo = append(a.undo, former{id: id, want: n.want, wantRev: n.wantRev, source: n.source, parent: n.parent,
		children: n.children, invalid: n.invalid, orphan: n.orphan,
		err: n.err, permanent: n.permanent, attempt: n.attempt, retryAt: n.retryAt})
}

// setWant writes one desired value with its edges, bucket and owner.
func (a *admission) setWant(id int32, d desire, parent int32) {
	n := a.g.nodes[id]
	a.state.setWant(id, former{want: d.v, wantRev: a.rev + 1, source: a.txn.Source, parent: parent, children: n.children,
		invalid: d.invalid})
}

// setWant is the one place where a desired value changes.
func (s *state) setWant(id int32, f former) {
	n := s.g.nodes[id]
	if len(n.anyDeps[wanted]) > 0 {
		s.g.stopWaiting(id, n.k.deps(n.ref.Name, n.want))
	}
	s.disown(id)
	n.want, n.wantRev, n.invalid, n.orphan = f.want, f.wantRev, f.invalid, f.orphan
	n.source, n.parent, n.children = f.source, f.parent, f.children
	n.err, n.permanent, n.attempt, n.retryAt = f.err, f.permanent, f.attempt, f.retryAt
	s.touch(n)
	if n.want == nil {
		n.source, n.parent = "", -1
	}
	n.prove()
	s.own(id)
	s.g.member(id)
	var deps []Dep
	if n.want != nil && n.invalid == nil {
		deps = n.k.deps(n.ref.Name, n.want)
	}
	s.g.wantEdges(id, deps)
	s.retries.fix(id)
}

func (s *state) own(id int32) {
	n := s.g.nodes[id]
	if n.want == nil || n.parent >= 0 {
		return
	}
	if s.owned[n.source] == nil {
		s.owned[n.source] = make(map[int32]struct{})
	}
	s.owned[n.source][id] = struct{}{}
}

func (s *state) disown(id int32) {
	n := s.g.nodes[id]
	delete(s.owned[n.source], id)
	if len(s.owned[n.source]) == 0 {
		delete(s.owned, n.source)
	}
}

// unstage returns every staged node to what it desired before.
func (a *admission) unstage() {
	for i := len(a.undo) - 1; i >= 0; i-- {
		a.state.setWant(a.undo[i].id, a.undo[i])
	}
	ids := make([]int32, len(a.undo))
	for i, f := range a.undo {
		ids[i] = f.id
	}
	a.g.sweep(ids)
}
