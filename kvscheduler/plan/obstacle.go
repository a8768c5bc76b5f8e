package plan

import "slices"

// Obstacle returns the node for which an operation of the last plan cannot be done now, because another operation failed or was left out.
// The node is -1 if an Any dependency has no candidate.
func (g *Graph) Obstacle(o Op) (ID, bool) {
	n := g.nodes[o.ID]
	switch o.Verb {
	case Delete:
		if !n.There() {
			return o.ID, true
		}
		return g.dependent(o.ID)
	case Create:
		if n.Present() {
			return o.ID, true
		}
	case Update:
		if !n.There() {
			return o.ID, true
		}
		if by, blocked := g.strandedByUpdate(o.ID); blocked {
			return by, true
		}
		if !sameEdges(n.deps[applied], n.deps[wanted]) && g.wouldCycle(o.ID) {
			return o.ID, true
		}
	}
	return g.Unmet(n)
}

// dependent returns a present object that needs id.
func (g *Graph) dependent(id ID) (ID, bool) {
	for _, r := range g.nodes[id].rdeps[applied] {
		d := g.nodes[r.from]
		e := d.deps[applied][r.slot]
		if !d.Present() || g.released(d, e) {
			continue
		}
		if !e.any || !g.otherServes(d, e) {
			return r.from, true
		}
	}
	return 0, false
}

// strandedByUpdate returns a present object that an update of id would leave without what it needs.
func (g *Graph) strandedByUpdate(id ID) (ID, bool) {
	for _, r := range g.nodes[id].rdeps[applied] {
		d := g.nodes[r.from]
		e := d.deps[applied][r.slot]
		if d.Present() && g.leaves(d, e) && !g.otherServes(d, e) && !g.released(d, e) {
			return r.from, true
		}
	}
	return 0, false
}

// otherServes reports whether another candidate than that of the edge goes on serving the same Any dependency.
func (g *Graph) otherServes(d *Node, gone edge) bool {
	for _, e := range d.deps[applied] {
		t := g.nodes[e.to]
		if e.dep == gone.dep && e.to != gone.to && !g.going(t) && !g.leaves(d, e) && g.bears(d, e) {
			return true
		}
	}
	return false
}

// wouldCycle reports whether an update makes id depend on an object that still depends on id as it is applied. Failed operations can lead
// there.
func (g *Graph) wouldCycle(id ID) bool {
	seen := make(map[ID]bool)
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

// Unmet returns a dependency of the desired value that is not applied now; -1 if an Any dependency has no candidate.
func (g *Graph) Unmet(n *Node) (ID, bool) {
	for _, e := range n.deps[wanted] {
		if !e.any && !g.nodes[e.to].There() {
			return e.to, true
		}
	}
	for _, i := range n.anyDeps[wanted] {
		served, candidate := false, noNode
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

// WaitsForWaiting reports whether everything that an object waits for is desired and waits itself.
func (g *Graph) WaitsForWaiting(n *Node) bool {
	found := false
	for _, e := range n.deps[wanted] {
		t := g.nodes[e.to]
		if g.serves(n, e) {
			continue
		}
		if found = true; t.Want == nil || !t.Waits() || t.mark != g.epoch {
			return false
		}
	}
	for _, i := range n.anyDeps[wanted] {
		if !slices.ContainsFunc(n.deps[wanted], func(e edge) bool { return e.dep == i }) {
			return false // there is no candidate
		}
	}
	return found && n.State != Foreign
}

// MissingNow names the dependencies of the desired value that are not applied.
func (g *Graph) MissingNow(n *Node) []string {
	return g.missing(n, func(e edge) bool { return g.serves(n, e) })
}

// MissingAfter names the dependencies of the desired value that do not exist at the end of the last plan.
func (g *Graph) MissingAfter(n *Node) []string {
	return g.missing(n, func(e edge) bool { return g.exists(g.nodes[e.to]) == yes })
}

func (g *Graph) missing(n *Node, there func(edge) bool) (out []string) {
	if n.State == Foreign {
		return []string{"an object that is not ours holds this name"}
	}
	if !n.Desired() {
		return nil
	}
	served := make(map[int32]bool, len(n.deps[wanted]))
	for _, e := range n.deps[wanted] {
		if there(e) {
			served[e.dep] = true
		} else if e.dep < 0 {
			out = append(out, g.nodes[e.to].Ref.String()+" (parent)")
		}
	}
	for i, d := range n.Rules.Deps(n.Ref.Name, n.Want) {
		if !served[int32(i)] {
			out = append(out, d.String())
		}
	}
	return out
}

// WaitedBefore reports whether the object pends in the last plan, and pended with the same value before.
func (n *Node) WaitedBefore(before Desire) bool {
	return n.Waits() && n.Have == nil && before.Want != nil && before.WantRev == n.WantRev
}
