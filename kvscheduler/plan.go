package kvscheduler

import (
	"cmp"
	"slices"
	"time"
)

type action uint8

const (
	none action = iota
	create
	update
	del
	recreate
	pend
)

// op is one planned operation.
type op struct {
	id    int32
	level int32
	verb  Verb
}

// plan orders what must be done for the dirty nodes and everything that depends on them. It reads the graph, writes only
// the nodes' planned part, and calls no backend. It costs O(V+E) of the affected part and a sort.
func (g *graph) plan(dirty []int32, now time.Time, out []op) []op {
	g.affected(dirty)
	for g.dooms = true; g.dooms; { // a node whose delete is postponed counts as present until a cascade deletes it
		g.dooms = false
		g.topo(wanted, func(n *node) { g.decide(n, now) })
		g.topo(applied, g.disturb)
	}
	var deepest int32
	for _, id := range g.aff {
		deepest = max(deepest, g.nodes[id].level[applied])
	}
	for _, id := range g.aff {
		n := g.nodes[id]
		down, up := deepest-n.level[applied], deepest+1+n.level[wanted]
		switch n.act {
		case del:
			out = append(out, op{id, down, Delete})
		case recreate:
			out = append(out, op{id, down, Delete}, op{id, up, Create})
		case create:
			out = append(out, op{id, up, Create})
		case update:
			out = append(out, op{id, up, Update})
		}
	}
	g.order(out)
	return out
}

// order sorts by level, kind, verb (updates free what creates may need), name: the same input gives the same plan.
func (g *graph) order(ops []op) {
	slices.SortFunc(ops, func(a, b op) int {
		ra, rb := &g.nodes[a.id].ref, &g.nodes[b.id].ref
		if c := cmp.Compare(a.level, b.level); c != 0 {
			return c
		}
		if c := cmp.Compare(ra.Kind, rb.Kind); c != 0 {
			return c
		}
		if c := cmp.Compare(b.verb, a.verb); c != 0 {
			return c
		}
		return cmp.Compare(ra.Name, rb.Name)
	})
}

// affected collects the dirty nodes and their dependents, over both edge sets.
func (g *graph) affected(dirty []int32) {
	g.epoch++
	aff, stack := g.aff[:0], append(g.stack[:0], dirty...)
	for _, id := range dirty {
		g.nodes[id].dirty = g.epoch
	}
	for len(stack) > 0 {
		n := g.nodes[stack[len(stack)-1]]
		id := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if n.mark == g.epoch {
			continue
		}
		n.mark, n.act, n.held, n.doomed, n.cause = g.epoch, none, false, false, -1
		aff = append(aff, id)
		for s := range n.rdeps {
			for _, r := range n.rdeps[s] {
				stack = append(stack, r.from)
			}
		}
	}
	g.aff, g.stack = aff, stack
}

// topo visits the affected nodes in dependency order of edge set s and sets their level. Desired edges have no cycle
// (admission); should dumped ones have, the rest is visited in any order rather than not at all.
func (g *graph) topo(s int, visit func(n *node)) {
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

// decide is pass 1: what may exist at the end of the plan, and what has to change for it.
func (g *graph) decide(n *node, now time.Time) {
	if n.doomed {
		return
	}
	n.act, n.held, n.cause = g.choose(n), false, -1
	if n.act == none || n.act == pend || n.dirty == g.epoch || n.err == nil || g.depActs(n) {
		return
	}
	if n.permanent || n.retryAt.After(now) { // its retry is planned: a neighbour's plan does not hurry it
		n.held, n.act = true, pend
		if n.have != nil {
			n.act = none
		}
	}
}

func (g *graph) choose(n *node) action {
	if n.unknown || n.foreign && n.have != nil {
		if n.have == nil {
			return pend
		}
		return none
	}
	if n.want == nil || n.invalid != nil {
		if n.have == nil || n.orphan {
			return none
		}
		return del
	}
	met := g.met(n)
	switch {
	case n.have == nil && met == yes:
		return create
	case n.have == nil:
		return pend
	case met == no:
		return del
	case met == perhaps:
		return none
	case n.again:
		return recreate
	case !n.stale && n.k.equal(n.want, n.have):
		return none
	case n.k.recreate(n.have, n.want):
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
func (g *graph) met(n *node) certainty {
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

func (g *graph) exists(t *node) certainty {
	if t.mark == g.epoch {
		switch t.act {
		case create, recreate, update:
			return yes
		case del:
			return no
		}
	}
	switch {
	case t.unknown:
		return perhaps
	case t.have != nil:
		return yes
	}
	return no
}

// willServe is exists for a candidate: one that stays as it is must match as it is.
func (g *graph) willServe(n *node, e edge) certainty {
	t := g.nodes[e.to]
	c := g.exists(t)
	if c == yes && (t.mark != g.epoch || t.act == none) && !g.serves(n, e) {
		return no
	}
	return c
}

func (g *graph) depActs(n *node) bool {
	for s := range n.deps {
		for _, e := range n.deps[s] {
			t := g.nodes[e.to]
			if t.mark == g.epoch && (t.changed || t.act != none && t.act != pend) {
				return true
			}
		}
	}
	return false
}
