package kvscheduler

// there tells whether the object is on the machine for sure.
func (n *node) there() bool { return n.have != nil && !n.unknown }

// serves tells whether the candidate at the end of an Any edge matches as it is applied now, not only as it is desired.
func (g *graph) serves(n *node, e edge) bool {
	t := g.nodes[e.to]
	switch {
	case !t.there():
		return false
	case !e.any || t.foreign || t.orphan || t.haveRev == t.wantRev && !t.drifted:
		return true
	}
	sel := n.k.deps(n.ref.Name, n.want)[e.dep].Any
	return t.k.bucket(t.ref.Name, t.have) == sel.Bucket && (sel.Match == nil || sel.Match(t.ref.Name, t.have))
}

// bears is serves for what n has: an applied edge stays when its candidate has become another one.
func (g *graph) bears(n *node, e edge) bool {
	t := g.nodes[e.to]
	if !t.there() || n.have == nil {
		return false
	}
	sel := n.k.deps(n.ref.Name, n.have)[e.dep].Any
	return t.k.bucket(t.ref.Name, t.have) == sel.Bucket && (sel.Match == nil || sel.Match(t.ref.Name, t.have))
}

// leaves tells whether an update will stop t from serving the Any dependency of what n has.
func (g *graph) leaves(n *node, e edge) bool {
	t := g.nodes[e.to]
	if !e.any || t.mark != g.epoch || t.act != update {
		return false
	}
	if n.have == nil {
		return true
	}
	sel := n.k.deps(n.ref.Name, n.have)[e.dep].Any
	return t.k.bucket(t.ref.Name, t.want) != sel.Bucket || sel.Match != nil && !sel.Match(t.ref.Name, t.want)
}

// leanOn returns a present object that an update of id would leave without what it needs.
func (g *graph) leanOn(id int32) (int32, bool) {
	for _, r := range g.nodes[id].rdeps[applied] {
		d := g.nodes[r.from]
		e := d.deps[applied][r.slot]
		if d.present() && g.leaves(d, e) && !g.otherServes(d, e) {
			return r.from, true
		}
	}
	return 0, false
}

// wouldCycle: after failures, an update could make n depend on something that, as applied, still stands on n.
func (g *graph) wouldCycle(id int32) bool {
	seen := make(map[int32]bool)
	stack := g.targets(nil, id, wanted)
	for len(stack) > 0 {
		t := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if t == id {
			return true
		}
		if seen[t] {
			continue
		}
		seen[t] = true
		stack = g.targets(stack, t, applied)
		if n := g.nodes[t]; n.mark == g.epoch && n.act == update {
			stack = g.targets(stack, t, wanted)
		}
	}
	return false
}

func (g *graph) targets(out []int32, id int32, s int) []int32 {
	for _, e := range g.nodes[id].deps[s] {
		out = append(out, e.to)
	}
	return out
}
