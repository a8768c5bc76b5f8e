package plan

// Graph has a node for each object that is desired, found or named by a dependency. Its methods note what happened to
// an object; [Graph.Plan] says what to do.
type Graph struct {
	selections
	Clock   uint64  // counts the changes of nodes
	LeftOut LeftOut // the next plan looks at these objects
	dumps   int     // dumps in progress
	last    Plan    // memory that is used again
}

// LeftOut has the objects with an operation that was left out, or is not asked for yet.
type LeftOut map[ID]struct{}

// Add notes an object.
func (l LeftOut) Add(id ID) { l[id] = struct{}{} }

// Has reports whether an object is noted.
func (l LeftOut) Has(id ID) bool {
	_, has := l[id]
	return has
}

// New returns a graph without nodes. It reads rules when a node is made.
func New(rules map[Kind]Rules) *Graph {
	return &Graph{
		selections: selections{
			links:   links{rules: rules, ids: make(map[Ref]ID)},
			buckets: make(map[bucketKey]*bucket),
		},
		LeftOut: make(LeftOut),
	}
}

// BeginDump keeps all nodes until EndDump: the dump must not take a node that was deleted meanwhile for a new one.
func (g *Graph) BeginDump() { g.dumps++ }

// EndDump ends what BeginDump began.
func (g *Graph) EndDump() { g.dumps-- }

// Sweep frees the given nodes, and the nodes that lost an edge, if they are not referred to and no dump is in progress.
func (g *Graph) Sweep(ids []ID) {
	g.loose = append(g.loose, ids...)
	for len(g.loose) > 0 && g.dumps == 0 {
		id := g.loose[len(g.loose)-1]
		g.loose = g.loose[:len(g.loose)-1]
		n := g.nodes[id]
		if g.ids[n.Ref] != id || n.needed() || g.LeftOut.Has(id) {
			continue
		}
		g.setEdges(id, wanted, nil)
		g.setEdges(id, applied, nil)
		delete(g.ids, n.Ref)
		*n = Node{RetrySlot: -1}
		g.free = append(g.free, id)
	}
}

// touch notes a change of a node.
func (g *Graph) touch(n *Node) {
	g.Clock++
	n.Touched = g.Clock
}

// Applied notes that an operation succeeded.
func (g *Graph) Applied(id ID, verb Verb, meta any) {
	n := g.nodes[id]
	n.Drifted = false
	n.Last = nil
	delete(g.LeftOut, id)
	g.touch(n)
	if verb == Delete {
		if g.gone(id); n.Orphan {
			g.SetOrphan(id, false)
		}
		return
	}
	n.state = isApplied
	n.Have = n.Want
	n.Meta = meta
	n.HaveRev = n.WantRev
	n.Lost = false
	g.align(id)
}

// gone takes away the applied value of a node.
func (g *Graph) gone(id ID) {
	n := g.nodes[id]
	n.Lost = n.Desired() && (n.Lost || n.Have != nil)
	n.state = isAbsent
	n.Have = nil
	n.Meta = nil
	n.HaveRev = 0
	n.Again = false
	g.setEdges(id, applied, nil)
	n.anyDeps[applied] = nil
	n.based = nil
}

// Doubt notes that an operation may or may not have been done. The object may stand on the dependencies of both values.
func (g *Graph) Doubt(id ID) {
	n := g.nodes[id]
	n.state = isDoubtful
	g.touch(n)
	edges := append(g.edges[:0], n.deps[applied]...)
	for _, e := range n.deps[wanted] {
		edges = append(edges, edge{to: e.to, dep: inDoubt, mode: e.mode})
	}
	g.edges = edges
	g.setEdges(id, applied, edges)
}

// inDoubt marks an applied edge that lasts only until the object was read back.
const inDoubt = -1

// resolveDoubt removes the edges that Doubt added.
func (g *Graph) resolveDoubt(id ID) {
	g.edges = g.edges[:0]
	for _, e := range g.nodes[id].deps[applied] {
		if e.dep != inDoubt {
			g.edges = append(g.edges, e)
		}
	}
	g.setEdges(id, applied, g.edges)
}

// Missing notes that an object is not on the machine.
func (g *Graph) Missing(id ID) {
	g.touch(g.nodes[id])
	g.gone(id)
	g.SetOrphan(id, false)
}

// FoundForeign notes that an object exists that is never touched.
func (g *Graph) FoundForeign(id ID, have, meta any) {
	n := g.nodes[id]
	g.touch(n)
	n.state = isForeign
	n.Have = have
	n.Meta = meta
	n.HaveRev = 0
	g.setEdges(id, applied, nil)
	n.anyDeps[applied] = nil
	n.based = nil
	g.member(id)
}

// Found notes an object of ours as it was read back, and reports whether the value is another one than before. The
// caller calls ResolveApplied when all candidates of Any dependencies are found.
func (g *Graph) Found(id ID, have, meta any, proven bool) (changed bool) {
	n := g.nodes[id]
	before := n.Have
	g.touch(n)
	n.state = isApplied
	n.Have = have
	n.Meta = meta
	n.Lost = false
	if !proven {
		n.state = isUnproven
	}
	g.resolveDoubt(id)
	if changed = before == nil || !n.Rules.Equal(before, have); changed {
		g.dependAsApplied(id)
	}
	g.member(id)
	return changed
}

// Prove notes the full value of an object with fields that could not be read back.
func (g *Graph) Prove(id ID, have any) {
	n := g.nodes[id]
	n.state = isApplied
	n.Have = have
}

// Fail notes that an operation was not done.
func (g *Graph) Fail(id ID, f Failure) {
	n := g.nodes[id]
	n.Failure = f
	g.touch(n)
}

// SetOrphan sets whether the plans spare an object of ours that no source desires.
func (g *Graph) SetOrphan(id ID, orphan bool) {
	g.nodes[id].Orphan = orphan
	g.member(id)
}

// SetDesire is the only function that changes the desired value of an object. It reports whether the object may depend
// on other objects than before. That does not follow from Rules.Equal: a value may need no operation and have other
// dependencies or another bucket.
func (g *Graph) SetDesire(id ID, d Desire) (moved bool) {
	n := g.nodes[id]
	selected := len(n.anyDeps[wanted]) > 0
	if selected {
		g.stopWaiting(id, n.Rules.Deps(n.Ref.Name, n.Want))
	}
	if n.Desire = d; d.Want == nil {
		n.Source = ""
	}
	n.Lost = n.Lost && n.Desired()
	g.touch(n)
	g.member(id)
	var deps []Dep
	if n.Desired() {
		deps = n.Rules.Deps(n.Ref.Name, n.Want)
	}
	moved = g.wantEdges(id, deps)
	return moved || selected || len(n.anyDeps[wanted]) > 0
}

// align notes that the object stands on the dependencies of the desired value: of candidates, those that serve now.
func (g *Graph) align(id ID) {
	n := g.nodes[id]
	g.edges = g.edges[:0]
	for _, e := range n.deps[wanted] {
		if !e.any || g.serves(n, e) {
			g.edges = append(g.edges, e)
		}
	}
	g.setEdges(id, applied, g.edges)
	n.anyDeps[applied] = n.anyDeps[wanted]
	n.based = n.Want
}

// Settle notes that an object in sync needs no operation for its desired value, and reports whether anything had to be
// noted. An object with an unmet dependency is left as it is.
func (g *Graph) Settle(id ID) bool {
	n := g.nodes[id]
	settled := n.HaveRev == n.WantRev && n.Err == nil && !n.Drifted
	if settled && len(n.anyDeps[wanted]) == 0 && sameEdges(n.deps[applied], n.deps[wanted]) {
		return false
	}
	if _, unmet := g.Unmet(n); unmet {
		return false
	}
	n.HaveRev = n.WantRev
	n.Drifted = false
	g.align(id)
	return true
}

// ResolveApplied resolves the Any dependencies of the applied value again.
func (g *Graph) ResolveApplied(id ID) {
	if n := g.nodes[id]; n.There() && !n.Foreign() && len(n.anyDeps[applied]) > 0 {
		g.dependAsApplied(id)
	}
}

// dependAsApplied derives the dependencies of the object from its applied value.
func (g *Graph) dependAsApplied(id ID) {
	n := g.nodes[id]
	if n.Matches() {
		g.align(id)
		return
	}
	edges, anyDeps := g.resolve(id, n.Rules.Deps(n.Ref.Name, n.Have))
	g.setEdges(id, applied, edges)
	n.anyDeps[applied] = anyDeps
	n.based = n.Have
}

// RecreateMakers marks the objects that must be recreated for a missing one to come back, and returns them.
func (g *Graph) RecreateMakers(missing *Node) (ids []ID) {
	if missing.Want == nil {
		return nil
	}
	for _, e := range missing.deps[wanted] {
		if t := g.nodes[e.to]; e.mode == Part && t.Have != nil && !t.Foreign() {
			t.Again = true
			ids = append(ids, e.to)
		}
	}
	return ids
}
