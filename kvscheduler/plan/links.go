package plan

import "slices"

// Two sets of edges: the edges of desired values order creations, the edges of applied values order deletions. They
// differ while an object changes its dependencies.
const (
	wanted = iota
	applied
)

// edge leads from a dependent to its dependency.
type edge struct {
	to   ID
	pos  int32 // index of the reverse edge in rdeps of the target
	dep  int32 // index of the dependency, or inDoubt
	any  bool  // one of several candidates of an Any dependency
	mode DepMode
	swap bool
}

// redge is the reverse of the edge deps[slot] of node from.
type redge struct {
	from ID
	slot int32
}

// links has the nodes and the edges between them.
type links struct {
	rules map[Kind]Rules
	ids   map[Ref]ID
	nodes []*Node
	free  []ID
	slab  []Node
	loose []ID   // nodes that may be unused
	epoch uint32 // of the marks of nodes; each plan has its own
	edges []edge // memory that is used again
}

func sameEdges(have, want []edge) bool {
	return slices.EqualFunc(have, want, func(a, b edge) bool {
		return a.to == b.to && a.dep == b.dep && a.mode == b.mode && a.any == b.any && a.swap == b.swap
	})
}

// Node returns a node.
func (g *links) Node(id ID) *Node { return g.nodes[id] }

// Nodes returns all nodes by their ID. Those that are not in use have an empty Ref.
func (g *links) Nodes() []*Node { return g.nodes }

// Lookup returns the node of an object.
func (g *links) Lookup(r Ref) (ID, bool) {
	id, ok := g.ids[r]
	return id, ok
}

// Intern returns the node of an object, and makes it if necessary.
func (g *links) Intern(r Ref) ID {
	if id, ok := g.ids[r]; ok {
		return id
	}
	var id ID
	if last := len(g.free) - 1; last >= 0 {
		id = g.free[last]
		g.free = g.free[:last]
	} else {
		if len(g.slab) == 0 {
			g.slab = make([]Node, 64)
		}
		id = ID(len(g.nodes))
		g.nodes = append(g.nodes, &g.slab[0])
		g.slab = g.slab[1:]
	}
	*g.nodes[id] = Node{Ref: r, Rules: g.rules[r.Kind], RetrySlot: -1}
	g.ids[r] = id
	return id
}

// setEdges replaces the edges of a node in set s, and reports whether they differ. Its cost does not depend on how many
// edges lead to the targets.
func (g *links) setEdges(id ID, s int, edges []edge) (changed bool) {
	n := g.nodes[id]
	if sameEdges(n.deps[s], edges) {
		return false
	}
	for _, e := range n.deps[s] {
		g.unlink(e, s)
	}
	out := n.deps[s][:0]
	if cap(out) < len(edges) {
		out = make([]edge, 0, len(edges))
	}
	n.deps[s] = out
	for _, e := range edges {
		g.addEdge(id, s, e)
	}
	return true
}

func (g *links) addEdge(id ID, s int, e edge) {
	n := g.nodes[id]
	t := g.nodes[e.to]
	e.pos = int32(len(t.rdeps[s]))
	t.rdeps[s] = append(t.rdeps[s], redge{from: id, slot: int32(len(n.deps[s]))})
	n.deps[s] = append(n.deps[s], e)
}

// unlink removes the reverse of e. The last reverse edge of the target takes its place.
func (g *links) unlink(e edge, s int) {
	t := g.nodes[e.to]
	last := len(t.rdeps[s]) - 1
	moved := t.rdeps[s][last]
	t.rdeps[s][e.pos] = moved
	g.nodes[moved.from].deps[s][moved.slot].pos = e.pos
	t.rdeps[s] = t.rdeps[s][:last]
	if last == 0 && t.Want == nil && t.Have == nil {
		g.loose = append(g.loose, e.to)
	}
}

func (g *links) dropEdge(id ID, s int, slot int) {
	n := g.nodes[id]
	g.unlink(n.deps[s][slot], s)
	last := len(n.deps[s]) - 1
	if slot != last {
		moved := n.deps[s][last]
		n.deps[s][slot] = moved
		g.nodes[moved.to].rdeps[s][moved.pos].slot = int32(slot)
	}
	n.deps[s] = n.deps[s][:last]
}

func (g *links) targets(out []ID, id ID, s int) []ID {
	for _, e := range g.nodes[id].deps[s] {
		out = append(out, e.to)
	}
	return out
}

// Around calls visit for the given nodes, for their direct dependencies, and for everything that depends on them; for a
// node once or twice.
func (g *links) Around(ids []ID, visit func(*Node)) {
	for _, id := range ids {
		for s := range g.nodes[id].deps {
			for _, to := range g.targets(nil, id, s) {
				visit(g.nodes[to])
			}
		}
	}
	g.Dependents(ids, func(id ID) { visit(g.nodes[id]) })
}

// Dependents calls visit once for each of the given nodes and for everything that depends on them.
func (g *links) Dependents(ids []ID, visit func(ID)) {
	seen := make(map[ID]bool)
	for queue := slices.Clone(ids); len(queue) > 0; queue = queue[1:] {
		id := queue[0]
		if seen[id] {
			continue
		}
		seen[id] = true
		visit(id)
		for _, back := range g.nodes[id].rdeps {
			for _, r := range back {
				queue = append(queue, r.from)
			}
		}
	}
}

// Handles returns the metadata of the objects that serve the dependencies of the desired value, by the index of the
// dependency. Of several candidates it takes the one with the name that sorts first.
func (g *links) Handles(n *Node) []any {
	if n.ndeps == 0 {
		return nil
	}
	handles := make([]any, n.ndeps)
	chosen := make([]*Node, n.ndeps)
	for _, e := range n.deps[wanted] {
		if t := g.nodes[e.to]; t.There() &&
			(chosen[e.dep] == nil || t.Ref.Name < chosen[e.dep].Ref.Name) {
			chosen[e.dep] = t
			handles[e.dep] = t.Meta
		}
	}
	return handles
}

// Unmark removes the marks of all nodes. Marks last until the next plan.
func (g *links) Unmark() { g.epoch++ }

// Mark marks a node.
func (g *links) Mark(n *Node) { n.mark = g.epoch }

// Marked reports whether a node was marked since Unmark.
func (g *links) Marked(n *Node) bool { return n.mark == g.epoch }

// serves reports whether the object at the end of a desired edge is applied, and matches as it is applied now.
func (g *links) serves(n *Node, e edge) bool {
	t := g.nodes[e.to]
	switch {
	case !t.There():
		return false
	case !e.any || t.Foreign() || t.Orphan || t.HaveRev == t.WantRev && !t.Drifted:
		return true
	}
	return n.selected(n.Want, e.dep, t, t.Have)
}

// bears reports whether an applied candidate still serves the applied value of n. The candidate may have been changed.
func (g *links) bears(n *Node, e edge) bool {
	t := g.nodes[e.to]
	return t.There() && n.based != nil && n.selected(n.based, e.dep, t, t.current())
}

// Unmet returns a dependency of the desired value that is not applied now; -1 if an Any dependency has no candidate.
func (g *links) Unmet(n *Node) (ID, bool) {
	for _, e := range n.deps[wanted] {
		if !e.any && !g.nodes[e.to].There() {
			return e.to, true
		}
	}
	for _, i := range n.anyDeps[wanted] {
		served := false
		candidate := noNode
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

// MissingNow names the dependencies of the desired value that are not applied.
func (g *links) MissingNow(n *Node) []string {
	return g.missing(n, func(e edge) bool { return g.serves(n, e) })
}

func (g *links) missing(n *Node, there func(edge) bool) (out []string) {
	if n.Foreign() {
		return []string{"an object that is not ours holds this name"}
	}
	if !n.Desired() {
		return nil
	}
	served := make(map[int32]bool, len(n.deps[wanted]))
	for _, e := range n.deps[wanted] {
		if there(e) {
			served[e.dep] = true
		}
	}
	for i, d := range n.Rules.Deps(n.Ref.Name, n.Want) {
		if !served[int32(i)] {
			out = append(out, d.String())
		}
	}
	return out
}
