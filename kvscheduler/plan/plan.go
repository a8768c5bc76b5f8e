package plan

import (
	"cmp"
	"slices"
	"time"
)

// action is what a plan does with a node.
type action uint8

const (
	none     action = iota // it stays as it is
	create                 // it is made
	update                 // it is changed in place
	remove                 // it is deleted
	cascade                // it is deleted with what it depends on, and does not come back
	recreate               // it is deleted and made
	pend                   // it stays absent: a dependency is not met
	hold                   // it stays as it is until the retry of its failed operation is due
)

func (a action) deletes() bool { return a == remove || a == cascade }

// Op is one planned operation.
type Op struct {
	ID    ID
	Level int32 // operations of a level do not depend on each other
	Verb  Verb
}

// Plan orders what must be done for the dirty nodes and for everything that depends on them, and appends it to out. It writes only the
// planned part of nodes. Its cost is linear in the affected nodes and edges, and a sort.
//
// An object whose delete is held back counts as present, until a cascade deletes it; then the plan is made again.
func (g *Graph) Plan(dirty []ID, now time.Time, out []Op) []Op {
	g.affected(dirty)
	for g.cascaded = true; g.cascaded; {
		g.cascaded = false
		g.topo(wanted, func(n *Node) { g.decide(n, now) })
		g.topo(applied, g.disturb)
	}
	var deepest, highest int32
	for _, id := range g.aff {
		deepest = max(deepest, g.nodes[id].level[applied])
		highest = max(highest, g.nodes[id].level[wanted])
	}
	for _, id := range g.aff {
		n := g.nodes[id]
		down, up := deepest-n.level[applied], deepest+1+n.level[wanted]
		if n.late {
			down = deepest + highest + 2
		}
		switch n.act {
		case remove, cascade:
			out = append(out, Op{id, down, Delete})
		case recreate:
			out = append(out, Op{id, down, Delete}, Op{id, up, Create})
		case create:
			out = append(out, Op{id, up, Create})
		case update:
			out = append(out, Op{id, up, Update})
		}
	}
	g.order(out)
	return out
}

// Affected returns the nodes that the last plan affected. The next plan overwrites them.
func (g *Graph) Affected() []ID { return g.aff }

// Asked reports whether the last plan was asked for the node.
func (g *Graph) Asked(n *Node) bool { return n.dirty == g.epoch }

// Cause returns the node that the last plan changes n for; false: n is changed for its own sake.
func (g *Graph) Cause(n *Node) (*Node, bool) {
	if n.cause >= 0 {
		return g.nodes[n.cause], true
	}
	return nil, false
}

// Followed returns a dependency of n that the last plan changes, or that changed.
func (g *Graph) Followed(n *Node) (*Node, bool) {
	for _, e := range n.deps[wanted] {
		if t := g.nodes[e.to]; t.mark == g.epoch && (t.Changed || t.act != none && t.act != hold) {
			return t, true
		}
	}
	return nil, false
}

// order sorts by level, kind, verb (updates release what creates may need) and name: the same input gives the same plan.
func (g *Graph) order(ops []Op) {
	slices.SortFunc(ops, func(a, b Op) int {
		ra, rb := &g.nodes[a.ID].Ref, &g.nodes[b.ID].Ref
		if c := cmp.Compare(a.Level, b.Level); c != 0 {
			return c
		}
		if c := cmp.Compare(ra.Kind, rb.Kind); c != 0 {
			return c
		}
		if c := cmp.Compare(b.Verb, a.Verb); c != 0 {
			return c
		}
		return cmp.Compare(ra.Name, rb.Name)
	})
}

// affected collects the dirty nodes and their dependents, over both sets of edges.
func (g *Graph) affected(dirty []ID) {
	g.epoch++
	aff, stack := g.aff[:0], append(g.stack[:0], dirty...)
	for _, id := range dirty {
		g.nodes[id].dirty = g.epoch
	}
	for len(stack) > 0 {
		id := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		n := g.nodes[id]
		if n.mark == g.epoch {
			continue
		}
		n.mark, n.act, n.cause = g.epoch, none, noNode
		aff = append(aff, id)
		for s := range n.rdeps {
			for _, r := range n.rdeps[s] {
				stack = append(stack, r.from)
			}
		}
	}
	g.aff, g.stack = aff, stack
}

// topo visits the affected nodes in the order of dependency of edge set s and sets their level (Kahn's algorithm). Desired edges have no
// cycle, because Cycle refuses it. If applied edges have one, the nodes on it are visited in any order.
func (g *Graph) topo(s int, visit func(n *Node)) {
	q := g.queue[:0]
	for _, id := range g.aff {
		n := g.nodes[id]
		n.indeg, n.level[s] = 0, 0
		for _, e := range n.deps[s] {
			if g.nodes[e.to].mark == g.epoch {
				n.indeg++
			}
		}
		if n.indeg == 0 {
			q = append(q, id)
		}
	}
	for h := 0; h < len(q); h++ {
		n := g.nodes[q[h]]
		for _, e := range n.deps[s] {
			if t := g.nodes[e.to]; t.mark == g.epoch && t.level[s] >= n.level[s] {
				n.level[s] = t.level[s] + 1
			}
		}
		visit(n)
		for _, r := range n.rdeps[s] {
			d := g.nodes[r.from]
			if d.indeg--; d.indeg == 0 && d.mark == g.epoch {
				q = append(q, r.from)
			}
		}
	}
	if len(q) < len(g.aff) {
		for _, id := range g.aff {
			if n := g.nodes[id]; n.indeg > 0 {
				visit(n)
			}
		}
	}
	g.queue = q
}

// decide is the first pass, over desired edges: what may exist at the end of the plan, and what has to change for it.
func (g *Graph) decide(n *Node, now time.Time) {
	n.late = false
	n.fits = false
	if n.act == cascade {
		return
	}
	n.act, n.cause = g.choose(n), noNode
	n.fits = n.act == none && n.InSync()
	if n.act == none || n.act == pend || n.dirty == g.epoch || n.Err == nil || g.depActs(n) {
		return
	}
	if n.Permanent || n.RetryAt.After(now) { // the plan of a neighbour does not make the retry earlier
		n.act = hold
	}
}

func (g *Graph) choose(n *Node) action {
	if n.State == Doubtful || n.State == Foreign {
		if n.Have == nil {
			return pend
		}
		return none
	}
	if !n.Desired() {
		if n.Have == nil || n.Orphan {
			return none
		}
		return remove
	}
	met := g.met(n)
	switch {
	case n.Have == nil && met == yes:
		return create
	case n.Have == nil:
		return pend
	case met == no:
		return remove
	case met == perhaps:
		return none
	case n.Again:
		return recreate
	case !n.Stale() && n.Rules.Equal(n.Want, n.Have):
		return none
	case n.Rules.Recreate(n.Have, n.Want):
		return recreate
	}
	return update
}

type certainty uint8

const (
	no certainty = iota
	perhaps
	yes
)

// met tells whether the dependencies of the desired value exist at the end of the plan.
func (g *Graph) met(n *Node) certainty {
	all := yes
	for _, e := range n.deps[wanted] {
		if !e.any {
			all = min(all, g.exists(g.nodes[e.to]))
		}
	}
	for _, i := range n.anyDeps[wanted] {
		one := no
		for _, e := range n.deps[wanted] {
			if e.dep == i {
				one = max(one, g.willServe(n, e))
			}
		}
		all = min(all, one)
	}
	return all
}

// exists tells whether an object exists at the end of the plan.
func (g *Graph) exists(t *Node) certainty {
	if t.mark == g.epoch {
		switch t.act {
		case create, recreate, update:
			return yes
		case remove, cascade:
			return no
		}
	}
	switch {
	case t.State == Doubtful:
		return perhaps
	case t.Have != nil:
		return yes
	}
	return no
}

// willServe is exists for a candidate: one that stays as it is must match as it is.
func (g *Graph) willServe(n *Node, e edge) certainty {
	t := g.nodes[e.to]
	c := g.exists(t)
	if c == yes && (t.mark != g.epoch || t.act == none || t.act == hold) && !g.serves(n, e) {
		return no
	}
	return c
}

func (g *Graph) depActs(n *Node) bool {
	for s := range n.deps {
		for _, e := range n.deps[s] {
			t := g.nodes[e.to]
			if t.mark == g.epoch && (t.Changed || t.act != none && t.act != pend && t.act != hold) {
				return true
			}
		}
	}
	return false
}

// disturb is the second pass, over applied edges: an object is torn down because what it depends on goes away for a while.
func (g *Graph) disturb(n *Node) {
	if !n.There() || n.State == Foreign || n.act != none && n.act != hold && n.act != update {
		return
	}
	cause := g.disturbance(n)
	if cause < 0 {
		for _, e := range n.deps[applied] {
			if t := g.nodes[e.to]; g.going(t) && g.replaces(n, e) {
				t.late = true
			}
		}
		return
	}
	n.act, n.cause = recreate, cause
	if !n.Desired() { // an orphan cannot come back; an object whose delete is held back need not
		n.act, g.cascaded = cascade, true
	}
}

// disturbance returns the dependency that makes the present existence of n impossible, or noNode.
func (g *Graph) disturbance(n *Node) ID {
	for _, e := range n.deps[applied] {
		t := g.nodes[e.to]
		if g.released(n, e) {
			continue
		}
		if !e.any && g.going(t) && !g.replaces(n, e) || e.mode != Exists && g.moves(t) {
			return e.to
		}
	}
	for _, i := range n.anyDeps[applied] {
		if cause, alone := g.lastCandidate(n, i); alone {
			return cause
		}
	}
	return noNode
}

// released reports whether n stays as it is although its desired value lacks the dependency of an applied edge. So n does not stand on the
// target any more, without an operation. A candidate that went away is not released while the desired value selects from the same bucket. A
// parent is never released, because its object holds that of its child.
func (g *Graph) released(n *Node, e edge) bool {
	if n.mark != g.epoch || n.act != none || !n.fits || e.dep == parentDep {
		return false
	}
	if !e.any {
		return !g.dependsOn(n, e.to)
	}
	was := n.Rules.Deps(n.Ref.Name, n.based)[e.dep].Any
	return !slices.ContainsFunc(n.Rules.Deps(n.Ref.Name, n.Want), func(d Dep) bool {
		return d.Any != nil && d.Any.Kind == was.Kind && d.Any.Bucket == was.Bucket
	})
}

// replaces reports whether an update of n lets go of a dependency that is deleted, so that its deletion can wait for the update. It
// cannot wait if something changes that it depends on itself.
func (g *Graph) replaces(n *Node, e edge) bool {
	t := g.nodes[e.to]
	if !e.swap || n.act != update || t.act != remove || g.dependsOn(n, e.to) {
		return false
	}
	return !slices.ContainsFunc(t.deps[applied], func(e edge) bool {
		d := g.nodes[e.to]
		return d.mark == g.epoch && d.act != none && d.act != hold
	})
}

// dependsOn reports whether the desired value of n depends on an object.
func (g *Graph) dependsOn(n *Node, on ID) bool {
	return slices.ContainsFunc(n.deps[wanted], func(e edge) bool { return e.to == on })
}

// lastCandidate reports whether every object that serves an Any dependency goes away, and returns one of them.
func (g *Graph) lastCandidate(n *Node, dep int32) (cause ID, alone bool) {
	cause = noNode
	for _, e := range n.deps[applied] {
		t := g.nodes[e.to]
		switch {
		case e.dep != dep || g.released(n, e):
		case g.going(t) || g.leaves(n, e):
			cause = e.to
		case t.State == Doubtful || g.bears(n, e):
			return noNode, false
		}
	}
	return cause, cause >= 0
}

// going reports whether an object is absent for at least a moment of this plan. An object that is created was lost before, and what
// depends on it with it.
func (g *Graph) going(t *Node) bool {
	return t.mark == g.epoch && (t.act.deletes() || t.act == recreate || t.act == create)
}

func (g *Graph) moves(t *Node) bool {
	return t.mark == g.epoch && (t.act == update || t.Changed)
}
