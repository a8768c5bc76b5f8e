package plan

import "slices"

type bucketKey struct {
	kind Kind
	name string
}

// bucket holds the objects that can serve an Any dependency, and the dependencies that they may serve.
type bucket struct {
	key     bucketKey
	members []ID
	waiters map[waiter]*Select
}

// waiter is an Any dependency of a node.
type waiter struct {
	node ID
	dep  int32
}

// selections has the candidates of Any dependencies.
type selections struct {
	links
	buckets map[bucketKey]*bucket
	stirred []ID // nodes with Any edges that changed because a candidate did
}

// effective is the value by which a node can serve an Any dependency: its desired value, or the value that stays on the
// machine.
func (n *Node) effective() any {
	switch {
	case n.Desired():
		return n.Want
	case n.Foreign() || n.Orphan:
		return n.Have
	}
	return nil
}

// selected reports whether a value of t matches the Any dependency with this index of a value of n.
func (n *Node) selected(value any, dep int32, t *Node, candidate any) bool {
	sel := n.Rules.Deps(n.Ref.Name, value)[dep].Any
	name, _ := t.Rules.Bucket(t.Ref.Name, candidate)
	return name == sel.Bucket && (sel.Match == nil || sel.Match(t.Ref.Name, candidate))
}

// current is the value by which an object on the machine serves. The desired value has also the fields that Rules.Equal
// ignores.
func (n *Node) current() any {
	if n.HaveRev == n.WantRev && n.Desired() && n.state == isApplied && !n.Drifted {
		return n.Want
	}
	return n.Have
}

func (g *selections) bucketOf(kind Kind, name string) *bucket {
	key := bucketKey{kind, name}
	b := g.buckets[key]
	if b == nil {
		b = &bucket{key: key, waiters: make(map[waiter]*Select)}
		g.buckets[key] = b
	}
	return b
}

func (g *selections) trimBucket(b *bucket) {
	if len(b.members) == 0 && len(b.waiters) == 0 {
		delete(g.buckets, b.key)
	}
}

// resolve turns dependencies into edges (in memory that is used again) and returns the indexes of the Any dependencies.
func (g *selections) resolve(id ID, deps []Dep) (edges []edge, anyDeps []int32) {
	edges = g.edges[:0]
	for i, d := range deps {
		if d.Any == nil {
			edges = append(edges, edge{to: g.Intern(d.On), dep: int32(i), mode: d.Mode, swap: d.Swap})
			continue
		}
		anyDeps = append(anyDeps, int32(i))
		b := g.buckets[bucketKey{d.Any.Kind, d.Any.Bucket}]
		if b == nil {
			continue
		}
		for _, m := range b.members {
			if m != id && g.matches(m, d.Any) {
				edges = append(edges, edge{to: m, dep: int32(i), any: true, mode: d.Mode})
			}
		}
	}
	g.edges = edges
	return edges, anyDeps
}

func (g *selections) matches(member ID, sel *Select) bool {
	n := g.nodes[member]
	v := n.effective()
	return v != nil && (sel.Match == nil || sel.Match(n.Ref.Name, v))
}

// wantEdges sets the edges of the desired value, and its waiters. It reports whether there are other edges than before.
func (g *selections) wantEdges(id ID, deps []Dep) (moved bool) {
	n := g.nodes[id]
	edges, anyDeps := g.resolve(id, deps)
	moved = g.setEdges(id, wanted, edges)
	n.anyDeps[wanted] = anyDeps
	n.ndeps = int32(len(deps))
	for _, i := range anyDeps {
		sel := deps[i].Any
		g.bucketOf(sel.Kind, sel.Bucket).waiters[waiter{id, i}] = sel
	}
	return moved
}

// stopWaiting removes the waiters of the present desired value.
func (g *selections) stopWaiting(id ID, deps []Dep) {
	for _, i := range g.nodes[id].anyDeps[wanted] {
		if b := g.buckets[bucketKey{deps[i].Any.Kind, deps[i].Any.Bucket}]; b != nil {
			delete(b.waiters, waiter{id, i})
			g.trimBucket(b)
		}
	}
	g.nodes[id].anyDeps[wanted] = nil
}

// member moves a node to the bucket of its effective value, and matches it against the waiters there.
func (g *selections) member(id ID) {
	n := g.nodes[id]
	if n.Rules == nil {
		return
	}
	v := n.effective()
	var to *bucket
	if v != nil {
		name, has := n.Rules.Bucket(n.Ref.Name, v)
		if !has {
			return
		}
		to = g.bucketOf(n.Ref.Kind, name)
	}
	if from := n.bucket; from != nil && from != to {
		from.members = slices.DeleteFunc(from.members, func(m ID) bool { return m == id })
		n.bucket = nil
		g.rematch(id, from)
		g.trimBucket(from)
	}
	if to == nil {
		return
	}
	if n.bucket == nil {
		to.members = append(to.members, id)
		n.bucket = to
	}
	g.rematch(id, to)
}

func (g *selections) rematch(id ID, b *bucket) {
	for w, sel := range b.waiters {
		if w.node == id {
			continue
		}
		d := g.nodes[w.node]
		slot := slices.IndexFunc(d.deps[wanted], func(e edge) bool { return e.to == id && e.dep == w.dep })
		serves := g.nodes[id].bucket != nil && g.matches(id, sel)
		switch {
		case serves && slot < 0:
			mode := d.Rules.Deps(d.Ref.Name, d.Want)[w.dep].Mode
			g.addEdge(w.node, wanted, edge{to: id, dep: w.dep, any: true, mode: mode})
		case !serves && slot >= 0:
			g.dropEdge(w.node, wanted, slot)
		default:
			continue
		}
		g.stirred = append(g.stirred, w.node)
	}
}

// TakeStirred appends the nodes that gained or lost a candidate of an Any dependency since the last call.
func (g *selections) TakeStirred(ids []ID) []ID {
	ids = append(ids, g.stirred...)
	g.stirred = g.stirred[:0]
	return ids
}
