package plan

import (
	"cmp"
	"slices"
	"time"
)

// action is the planned change of a node.
type action uint8

const (
	none     action = iota // it stays as it is
	create                 // it is made
	update                 // it is changed in place
	remove                 // it is deleted
	cascade                // it is deleted with a dependency, and does not come back
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

// Plan has the operations for some objects and for everything that depends on them, in their order. It is valid until
// the next plan of its graph is made.
type Plan struct {
	*links
	Ops []Op

	aff      []ID // the nodes that the plan affects
	cascaded bool // the present pass found an object that is deleted with a dependency

	stack, queue []ID
}

// Plan orders the operations for the dirty nodes and for everything that depends on them. It writes only the planned
// part of nodes. Its cost is linear in the affected nodes and edges, and a sort.
//
// An object counts as present while its delete is held back, until a cascade deletes it; then the plan is made again.
func (g *Graph) Plan(dirty []ID, now time.Time) *Plan {
	p := &g.last
	p.links = &g.links
	p.affected(dirty)
	for p.cascaded = true; p.cascaded; {
		p.cascaded = false
		p.topo(wanted, func(n *Node) { p.decide(n, now) })
		p.topo(applied, p.disturb)
	}
	p.Ops = p.operations(p.Ops[:0])
	return p
}

// operations appends the operations of the affected nodes: deletions, the deepest dependents first, and then creations
// and updates, dependencies first.
func (p *Plan) operations(ops []Op) []Op {
	var deepest, highest int32
	for _, id := range p.aff {
		deepest = max(deepest, p.nodes[id].level[applied])
		highest = max(highest, p.nodes[id].level[wanted])
	}
	for _, id := range p.aff {
		n := p.nodes[id]
		down := deepest - n.level[applied]
		up := deepest + 1 + n.level[wanted]
		if n.late {
			down = deepest + highest + 2
		}
		switch n.act {
		case remove, cascade:
			ops = append(ops, Op{id, down, Delete})
		case recreate:
			ops = append(ops, Op{id, down, Delete}, Op{id, up, Create})
		case create:
			ops = append(ops, Op{id, up, Create})
		case update:
			ops = append(ops, Op{id, up, Update})
		}
	}
	p.order(ops)
	return ops
}

// Obstacle returns the node for which an operation of the plan cannot be done now. The node is -1 if an Any dependency
// has no candidate.
func (p *Plan) Obstacle(o Op) (ID, bool) { return blocker{p}.obstacle(o) }

// Affected returns the nodes that the last plan affected. The next plan overwrites them.
func (p *Plan) Affected() []ID { return p.aff }

// Asked reports whether the last plan was asked for the node.
func (p *Plan) Asked(n *Node) bool { return n.dirty == p.epoch }

// Cause returns the node that the last plan changes n for; false: n is changed for its own sake.
func (p *Plan) Cause(n *Node) (*Node, bool) {
	if n.cause >= 0 {
		return p.nodes[n.cause], true
	}
	return nil, false
}

// Followed returns a dependency of n that the last plan changes, or that changed.
func (p *Plan) Followed(n *Node) (*Node, bool) {
	for _, e := range n.deps[wanted] {
		if t := p.nodes[e.to]; t.mark == p.epoch && t.act != none && t.act != hold {
			return t, true
		}
	}
	return nil, false
}

// order sorts by level, kind, verb (updates release what creates may need) and name: the same input gives the same
// plan.
func (p *Plan) order(ops []Op) {
	slices.SortFunc(ops, func(a, b Op) int {
		ra := &p.nodes[a.ID].Ref
		rb := &p.nodes[b.ID].Ref
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
func (p *Plan) affected(dirty []ID) {
	p.epoch++
	aff := p.aff[:0]
	stack := append(p.stack[:0], dirty...)
	for _, id := range dirty {
		p.nodes[id].dirty = p.epoch
	}
	for len(stack) > 0 {
		id := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		n := p.nodes[id]
		if n.mark == p.epoch {
			continue
		}
		n.mark = p.epoch
		n.act = none
		n.cause = noNode
		aff = append(aff, id)
		for s := range n.rdeps {
			for _, r := range n.rdeps[s] {
				stack = append(stack, r.from)
			}
		}
	}
	p.aff = aff
	p.stack = stack
}

// topo visits the affected nodes in the order of dependency of edge set s and sets their level (Kahn's algorithm).
// Desired edges have no cycle, because Cycle refuses it. If applied edges have one, the nodes on it are visited in any
// order.
func (p *Plan) topo(s int, visit func(n *Node)) {
	q := p.queue[:0]
	for _, id := range p.aff {
		n := p.nodes[id]
		n.indeg = 0
		n.level[s] = 0
		for _, e := range n.deps[s] {
			if p.nodes[e.to].mark == p.epoch {
				n.indeg++
			}
		}
		if n.indeg == 0 {
			q = append(q, id)
		}
	}
	for h := 0; h < len(q); h++ {
		n := p.nodes[q[h]]
		for _, e := range n.deps[s] {
			if t := p.nodes[e.to]; t.mark == p.epoch && t.level[s] >= n.level[s] {
				n.level[s] = t.level[s] + 1
			}
		}
		visit(n)
		for _, r := range n.rdeps[s] {
			d := p.nodes[r.from]
			if d.indeg--; d.indeg == 0 && d.mark == p.epoch {
				q = append(q, r.from)
			}
		}
	}
	if len(q) < len(p.aff) {
		for _, id := range p.aff {
			if n := p.nodes[id]; n.indeg > 0 {
				visit(n)
			}
		}
	}
	p.queue = q
}

// decide is the first pass, over desired edges: which objects may exist at the end of the plan, and which have to
// change for it.
func (p *Plan) decide(n *Node, now time.Time) {
	n.late = false
	n.fits = false
	if n.act == cascade {
		return
	}
	n.act = p.choose(n)
	n.cause = noNode
	n.fits = n.act == none && n.Matches()
	if n.act == none || n.act == pend || n.dirty == p.epoch || n.Err == nil || p.depActs(n) {
		return
	}
	if n.Permanent || n.RetryAt.After(now) { // the plan of a neighbour does not make the retry earlier
		n.act = hold
	}
}

func (p *Plan) choose(n *Node) action {
	if n.state == isDoubtful || n.Foreign() {
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
	met := p.met(n)
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

// met tells whether the dependencies of the desired value exist at the end of the plan.
func (p *Plan) met(n *Node) certainty {
	all := yes
	for _, e := range n.deps[wanted] {
		if !e.any {
			all = min(all, p.exists(p.nodes[e.to]))
		}
	}
	for _, i := range n.anyDeps[wanted] {
		one := no
		for _, e := range n.deps[wanted] {
			if e.dep == i {
				one = max(one, p.willServe(n, e))
			}
		}
		all = min(all, one)
	}
	return all
}

// exists tells whether an object exists at the end of the plan.
func (p *Plan) exists(t *Node) certainty {
	if t.mark == p.epoch {
		switch t.act {
		case create, recreate, update:
			return yes
		case remove, cascade:
			return no
		}
	}
	switch {
	case t.state == isDoubtful:
		return perhaps
	case t.Have != nil:
		return yes
	}
	return no
}

// willServe is exists for a candidate: one that stays as it is must match as it is.
func (p *Plan) willServe(n *Node, e edge) certainty {
	t := p.nodes[e.to]
	c := p.exists(t)
	if c == yes && (t.mark != p.epoch || t.act == none || t.act == hold) && !p.serves(n, e) {
		return no
	}
	return c
}

func (p *Plan) depActs(n *Node) bool {
	for s := range n.deps {
		for _, e := range n.deps[s] {
			t := p.nodes[e.to]
			if t.mark == p.epoch && t.act != none && t.act != pend && t.act != hold {
				return true
			}
		}
	}
	return false
}

// disturb is the second pass, over applied edges: an object is torn down because its dependency goes away for a
// while.
func (p *Plan) disturb(n *Node) {
	if !n.There() || n.Foreign() || n.act != none && n.act != hold && n.act != update {
		return
	}
	cause := p.disturbance(n)
	if cause < 0 {
		for _, e := range n.deps[applied] {
			if t := p.nodes[e.to]; p.going(t) && p.replaces(n, e) {
				t.late = true
			}
		}
		return
	}
	n.act = recreate
	n.cause = cause
	if !n.Desired() { // an orphan cannot come back; an object with a delete that is held back need not
		n.act = cascade
		p.cascaded = true
	}
}

// disturbance returns the dependency that makes the present existence of n impossible, or noNode.
func (p *Plan) disturbance(n *Node) ID {
	for _, e := range n.deps[applied] {
		t := p.nodes[e.to]
		if p.released(n, e) {
			continue
		}
		if !e.any && p.going(t) && !p.replaces(n, e) || e.mode != Exists && p.moves(t) {
			return e.to
		}
	}
	for _, i := range n.anyDeps[applied] {
		if cause, alone := p.lastCandidate(n, i); alone {
			return cause
		}
	}
	return noNode
}

// released reports whether n stays as it is although its desired value lacks the dependency of an applied edge. So n
// does not stand on the target any more, without an operation. A candidate that went away is not released while the
// desired value selects from the same bucket.
func (p *Plan) released(n *Node, e edge) bool {
	if n.mark != p.epoch || n.act != none || !n.fits {
		return false
	}
	if !e.any {
		return !n.needs(e.to)
	}
	was := n.Rules.Deps(n.Ref.Name, n.based)[e.dep].Any
	return !slices.ContainsFunc(n.Rules.Deps(n.Ref.Name, n.Want), func(d Dep) bool {
		return d.Any != nil && d.Any.Kind == was.Kind && d.Any.Bucket == was.Bucket
	})
}

// replaces reports whether an update of n lets go of a dependency that is deleted, so that its deletion can wait for
// the update. It cannot wait if something changes that it depends on itself.
func (p *Plan) replaces(n *Node, e edge) bool {
	t := p.nodes[e.to]
	if !e.swap || n.act != update || t.act != remove || n.needs(e.to) {
		return false
	}
	return !slices.ContainsFunc(t.deps[applied], func(e edge) bool {
		d := p.nodes[e.to]
		return d.mark == p.epoch && d.act != none && d.act != hold
	})
}

// lastCandidate reports whether every object that serves an Any dependency goes away, and returns one of them.
func (p *Plan) lastCandidate(n *Node, dep int32) (cause ID, alone bool) {
	cause = noNode
	for _, e := range n.deps[applied] {
		t := p.nodes[e.to]
		switch {
		case e.dep != dep || p.released(n, e):
		case p.going(t) || p.leaves(n, e):
			cause = e.to
		case t.state == isDoubtful || p.bears(n, e):
			return noNode, false
		}
	}
	return cause, cause >= 0
}

// going reports whether an object is absent for at least a moment of this plan. An object that is created was lost
// before, and what depends on it with it.
func (p *Plan) going(t *Node) bool {
	return t.mark == p.epoch && (t.act.deletes() || t.act == recreate || t.act == create)
}

// moves reports whether an object is updated in place so that its dependents notice. The present value of a stale
// object is not known.
func (p *Plan) moves(t *Node) bool {
	return t.mark == p.epoch && t.act == update && (t.Stale() || t.Rules.Disturbs(t.Have, t.Want))
}

// WaitsForWaiting reports whether everything that an object waits for is desired and waits itself.
func (p *Plan) WaitsForWaiting(n *Node) bool {
	found := false
	for _, e := range n.deps[wanted] {
		t := p.nodes[e.to]
		if p.serves(n, e) {
			continue
		}
		if found = true; t.Want == nil || !t.Waits() || t.mark != p.epoch {
			return false
		}
	}
	for _, i := range n.anyDeps[wanted] {
		if !slices.ContainsFunc(n.deps[wanted], func(e edge) bool { return e.dep == i }) {
			return false // there is no candidate
		}
	}
	return found && !n.Foreign()
}

// MissingAfter names the dependencies of the desired value that do not exist at the end of the last plan.
func (p *Plan) MissingAfter(n *Node) []string {
	return p.missing(n, func(e edge) bool { return p.exists(p.nodes[e.to]) == yes })
}

// leaves reports whether the planned update of a candidate ends its service for the applied value of n.
func (p *Plan) leaves(n *Node, e edge) bool {
	t := p.nodes[e.to]
	if !e.any || t.mark != p.epoch || t.act != update {
		return false
	}
	return n.based == nil || !n.selected(n.based, e.dep, t, t.Want)
}

type certainty uint8

const (
	no certainty = iota
	perhaps
	yes
)
