package plan

// blocker tells which operations of a plan cannot be done now, because others failed or were left out.
type blocker struct{ *Plan }

// obstacle returns the node for which an operation of the last plan cannot be done now, because another operation
// failed or was left out. The node is -1 if an Any dependency has no candidate.
func (b blocker) obstacle(o Op) (ID, bool) {
	n := b.nodes[o.ID]
	switch o.Verb {
	case Delete:
		if !n.There() {
			return o.ID, true
		}
		return b.dependent(o.ID)
	case Create:
		if n.Present() {
			return o.ID, true
		}
	case Update:
		if !n.There() {
			return o.ID, true
		}
		if by, blocked := b.strandedByUpdate(o.ID); blocked {
			return by, true
		}
		if !sameEdges(n.deps[applied], n.deps[wanted]) && b.wouldCycle(o.ID) {
			return o.ID, true
		}
	}
	return b.Unmet(n)
}

// dependent returns a present object that needs id.
func (b blocker) dependent(id ID) (ID, bool) {
	for _, r := range b.nodes[id].rdeps[applied] {
		d := b.nodes[r.from]
		e := d.deps[applied][r.slot]
		if !d.Present() || b.released(d, e) {
			continue
		}
		if !e.any || !b.otherServes(d, e) {
			return r.from, true
		}
	}
	return 0, false
}

// strandedByUpdate returns a present object that an update of id would leave without a dependency.
func (b blocker) strandedByUpdate(id ID) (ID, bool) {
	for _, r := range b.nodes[id].rdeps[applied] {
		d := b.nodes[r.from]
		e := d.deps[applied][r.slot]
		if d.Present() && b.leaves(d, e) && !b.otherServes(d, e) && !b.released(d, e) {
			return r.from, true
		}
	}
	return 0, false
}

// otherServes reports whether another candidate than the target of the edge goes on serving the same Any dependency.
func (b blocker) otherServes(d *Node, gone edge) bool {
	for _, e := range d.deps[applied] {
		t := b.nodes[e.to]
		if e.dep == gone.dep && e.to != gone.to && !b.going(t) && !b.leaves(d, e) && b.bears(d, e) {
			return true
		}
	}
	return false
}

// wouldCycle reports whether an update makes id depend on an object that still depends on id as it is applied. Failed
// operations can lead there.
func (b blocker) wouldCycle(id ID) bool {
	seen := make(map[ID]bool)
	stack := b.targets(nil, id, wanted)
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
		stack = b.targets(stack, t, applied)
		if n := b.nodes[t]; n.mark == b.epoch && n.act == update {
			stack = b.targets(stack, t, wanted)
		}
	}
	return false
}
