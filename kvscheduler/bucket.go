package kvscheduler

import "slices"

type bucketKey struct {
	kind Kind
	name string
}

// bucket knows who may serve an Any dependency and who has one.
type bucket struct {
	members []int32
	waiters map[waiter]*Select
}

type waiter struct{ node, dep int32 }

func (g *graph) bucketOf(kind Kind, name string) *bucket {
	key := bucketKey{kind, name}
	b := g.buckets[key]
	if b == nil {
		b = &bucket{waiters: make(map[waiter]*Select)}
		g.buckets[key] = b
	}
	return b
}

func (g *graph) trimBucket(key bucketKey) {
	if b := g.buckets[key]; b != nil && len(b.members) == 0 && len(b.waiters) == 0 {
		delete(g.buckets, key)
	}
}

// effective is the value by which a node can serve an Any dependency: what it will be, or what is there to stay.
func (n *node) effective() any {
	switch {
	case n.want != nil && n.invalid == nil:
		return n.want
	case n.foreign || n.orphan:
		return n.have
	}
	return nil
}

// resolve turns dependencies into edges (in scratch memory) and returns the indexes of the Any ones.
func (g *graph) resolve(id int32, deps []Dep) (edges []edge, anyDeps []int32) {
	n := g.nodes[id]
	edges = g.edges[:0]
	for i, d := range deps {
		if d.Any == nil {
			edges = append(edges, edge{to: g.intern(d.On), dep: int32(i), mode: d.Mode})
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
	if n.parent >= 0 {
		edges = append(edges, edge{to: n.parent, dep: -1})
	}
	g.edges = edges
	return edges, anyDeps
}

func (g *graph) matches(member int32, sel *Select) bool {
	n := g.nodes[member]
	v := n.effective()
	return v != nil && (sel.Match == nil || sel.Match(n.ref.Name, v))
}

// wantEdges sets the edges of the desired value and enters or leaves the waiting lists of buckets.
func (g *graph) wantEdges(id int32, deps []Dep) {
	n := g.nodes[id]
	edges, anyDeps := g.resolve(id, deps)
	g.setEdges(id, wanted, edges)
	n.anyDeps[wanted], n.ndeps = anyDeps, int32(len(deps))
	for _, i := range anyDeps {
		sel := deps[i].Any
		g.bucketOf(sel.Kind, sel.Bucket).waiters[waiter{id, i}] = sel
	}
}

// stopWaiting leaves the waiting lists that the present desired value entered.
func (g *graph) stopWaiting(id int32, deps []Dep) {
	for _, i := range g.nodes[id].anyDeps[wanted] {
		key := bucketKey{deps[i].Any.Kind, deps[i].Any.Bucket}
		if b := g.buckets[key]; b != nil {
			delete(b.waiters, waiter{id, i})
			g.trimBucket(key)
		}
	}
	g.nodes[id].anyDeps[wanted] = nil
}

// member tells the buckets that the effective value of a node changed. Only this node is matched again.
func (g *graph) member(id int32) {
	n := g.nodes[id]
	if n.k == nil || !n.k.buckets {
		return
	}
	v := n.effective()
	name := ""
	if v != nil {
		name = n.k.bucket(n.ref.Name, v)
	}
	if n.inBucket && (v == nil || name != n.bucket) {
		key := bucketKey{n.ref.Kind, n.bucket}
		b := g.buckets[key]
		b.members = slices.DeleteFunc(b.members, func(m int32) bool { return m == id })
		n.inBucket = false
		g.rematch(id, b)
		g.trimBucket(key)
	}
	if v == nil {
		return
	}
	b := g.bucketOf(n.ref.Kind, name)
	if !n.inBucket {
		b.members = append(b.members, id)
		n.inBucket, n.bucket = true, name
	}
	g.rematch(id, b)
}

func (g *graph) rematch(id int32, b *bucket) {
	for w, sel := range b.waiters {
		if w.node == id {
			continue
		}
		d := g.nodes[w.node]
		slot := slices.IndexFunc(d.deps[wanted], func(e edge) bool { return e.to == id && e.dep == w.dep })
		serves := g.nodes[id].inBucket && g.matches(id, sel)
		switch {
		case serves && slot < 0:
			mode := g.depMode(w)
			g.addEdge(w.node, wanted, edge{to: id, dep: w.dep, any: true, mode: mode})
		case !serves && slot >= 0:
			g.dropEdge(w.node, wanted, slot)
		default:
			continue
		}
		g.stirred = append(g.stirred, w.node)
	}
}

func (g *graph) depMode(w waiter) DepMode {
	n := g.nodes[w.node]
	return n.k.deps(n.ref.Name, n.want)[w.dep].Mode
}
