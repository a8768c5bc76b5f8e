package kvscheduler

// disturb is pass 2, over applied edges: who is torn down because what it stands on goes away for a while.
func (g *graph) disturb(n *node) {
	if n.have == nil || n.foreign || n.unknown || n.act != none && n.act != update {
		return
	}
	if cause := g.shaken(n); cause >= 0 {
		n.cause, n.act = cause, recreate
		if n.want == nil || n.invalid != nil { // an orphan cannot come back, a held removal need not
			n.act = del
		}
	}
}

// shaken returns the dependency that makes n's present existence impossible, or -1.
func (g *graph) shaken(n *node) int32 {
	for _, e := range n.deps[applied] {
		t := g.nodes[e.to]
		if !e.any && g.going(t) || e.mode == Follow && g.moves(t) {
			return e.to
		}
	}
	for _, i := range n.anyDeps[applied] {
		stays, cause := false, int32(-1)
		for _, e := range n.deps[applied] {
			if e.dep != i {
				continue
			}
			if t := g.nodes[e.to]; g.going(t) {
				cause = e.to
			} else if t.present() {
				stays = true
			}
		}
		if !stays && cause >= 0 {
			return cause
		}
	}
	return -1
}

// going: absent for at least a moment of this plan. One that is created was lost, and what stood on it with it.
func (g *graph) going(t *node) bool {
	return t.mark == g.epoch && (t.act == del || t.act == recreate || t.act == create)
}

func (g *graph) moves(t *node) bool {
	return t.mark == g.epoch && (t.act == update || t.changed)
}

// obstacle returns why an operation cannot be done now, because another one failed or was left out: the other node.
func (g *graph) obstacle(o op) (int32, bool) {
	n := g.nodes[o.id]
	switch o.verb {
	case Delete:
		if !n.present() || n.unknown {
			return o.id, true
		}
		return g.standsOn(o.id)
	case Create:
		if n.present() {
			return o.id, true
		}
	case Update:
		if n.have == nil || n.unknown {
			return o.id, true
		}
		if !g.sameEdges(n.deps[applied], n.deps[wanted]) && g.wouldCycle(o.id) {
			return o.id, true
		}
	}
	return g.unmet(n)
}

// standsOn returns a present object that needs id.
func (g *graph) standsOn(id int32) (int32, bool) {
	for _, r := range g.nodes[id].rdeps[applied] {
		d := g.nodes[r.from]
		if !d.present() {
			continue
		}
		if e := d.deps[applied][r.slot]; e.any && g.otherServes(d, e) {
			continue
		}
		return r.from, true
	}
	return 0, false
}

func (g *graph) otherServes(d *node, gone edge) bool {
	for _, e := range d.deps[applied] {
		t := g.nodes[e.to]
		if e.dep == gone.dep && e.to != gone.to && t.have != nil && !t.unknown && !g.going(t) {
			return true
		}
	}
	return false
}

// unmet returns a dependency of the desired value that is not there now.
func (g *graph) unmet(n *node) (int32, bool) {
	there := func(t *node) bool { return t.have != nil && !t.unknown }
	for _, e := range n.deps[wanted] {
		if !e.any && !there(g.nodes[e.to]) {
			return e.to, true
		}
	}
	for _, i := range n.anyDeps[wanted] {
		served, candidate := false, int32(-1)
		for _, e := range n.deps[wanted] {
			if e.dep == i {
				candidate = e.to
				served = served || there(g.nodes[e.to])
			}
		}
		if !served {
			return candidate, true
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
