package kvscheduler

// disturb is pass 2, over applied edges: who is torn down because what it stands on goes away for a while.
func (g *graph) disturb(n *node) {
	if n.have == nil || n.foreign || n.unknown || n.act != none && n.act != update {
		return
	}
	if cause := g.shaken(n); cause >= 0 {
		n.cause, n.act = cause, recreate
		if n.want == nil || n.invalid != nil { // an orphan cannot come back, a held removal need not
			n.act, n.doomed, g.dooms = del, true, true
		}
	}
}

// shaken returns the dependency that makes n's present existence impossible, or -1.
func (g *graph) shaken(n *node) int32 {
	for _, e := range n.deps[applied] {
		t := g.nodes[e.to]
		if !e.any && g.going(t) || e.mode != Exists && g.moves(t) {
			return e.to
		}
	}
	for _, i := range n.anyDeps[applied] {
		if cause, alone := g.forsaken(n, i); alone {
			return cause
		}
	}
	return -1
}

// forsaken tells whether every object that serves an Any dependency goes away, and names one.
func (g *graph) forsaken(n *node, dep int32) (cause int32, alone bool) {
	cause = -1
	for _, e := range n.deps[applied] {
		t := g.nodes[e.to]
		switch {
		case e.dep != dep:
		case g.going(t) || g.leaves(n, e):
			cause = e.to
		case t.unknown || g.bears(n, e):
			return -1, false
		}
	}
	return cause, cause >= 0
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
		if by, blocked := g.leanOn(o.id); blocked {
			return by, true
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
		if e.dep == gone.dep && e.to != gone.to && !g.going(t) && !g.leaves(d, e) && g.bears(d, e) {
			return true
		}
	}
	return false
}

// unmet returns a dependency of the desired value that is not there now.
func (g *graph) unmet(n *node) (int32, bool) {
	for _, e := range n.deps[wanted] {
		if !e.any && !g.nodes[e.to].there() {
			return e.to, true
		}
	}
	for _, i := range n.anyDeps[wanted] {
		served, candidate := false, int32(-1)
		for _, e := range n.deps[wanted] {
			if e.dep == i {
				candidate = e.to
				served = served || g.serves(n, e)
			}
		}
		if !served {
			return candidate, true
		}
	}
	return 0, false
}
