package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Two sets of edges: those of the desired value order what is created, those of the applied value order what is deleted.
// They differ while an object changes what it depends on.
const (
	wanted = iota
	applied
)

// edge leads from a dependent to what it depends on.
type edge struct {
	to   ID
	pos  int32 // index of the reverse edge in rdeps of the target
	dep  int32 // index of the dependency, or parentDep
	any  bool  // one of several candidates of an Any dependency
	mode DepMode
	swap bool
}

// parentDep marks the edge of a derived object to its parent.
const parentDep = -1

// redge is the reverse of the edge deps[slot] of node from.
type redge struct {
	from ID
	slot int32
}

// Graph has a node for each object that is desired, found or named by a dependency.
type Graph struct {
	Clock uint64 // counts the changes of nodes

	rules   map[Kind]Rules
	ids     map[Ref]ID
	nodes   []*Node
	free    []ID
	slab    []Node
	buckets map[bucketKey]*bucket
	skipped map[ID]struct{}
	stirred []ID // nodes with Any edges that changed because a candidate did
	loose   []ID // nodes that may be unused
	dumps   int  // dumps in progress

	planner
}

// planner is the state of the last plan, and memory that plans use again.
type planner struct {
	epoch    uint32
	aff      []ID // the nodes that the plan affects
	cascaded bool // the present pass found an object that is deleted with what it depends on

	stack, queue []ID
	edges        []edge
}

// New returns a graph without nodes. It reads rules when a node is made.
func New(rules map[Kind]Rules) *Graph {
	return &Graph{rules: rules, ids: make(map[Ref]ID), buckets: make(map[bucketKey]*bucket), skipped: make(map[ID]struct{})}
}

// Node returns a node.
func (g *Graph) Node(id ID) *Node { return g.nodes[id] }

// Nodes returns all nodes by their ID. Those that are not in use have an empty Ref.
func (g *Graph) Nodes() []*Node { return g.nodes }

// Lookup returns the node of an object.
func (g *Graph) Lookup(r Ref) (ID, bool) {
	id, ok := g.ids[r]
	return id, ok
}

// Intern returns the node of an object, and makes it if there is none.
func (g *Graph) Intern(r Ref) ID {
	if id, ok := g.ids[r]; ok {
		return id
	}
	var id ID
	if last := len(g.free) - 1; last >= 0 {
		id, g.free = g.free[last], g.free[:last]
	} else {
		if len(g.slab) == 0 {
			g.slab = make([]Node, 64)
		}
		id = ID(len(g.nodes))
		g.nodes = append(g.nodes, &g.slab[0])
		g.slab = g.slab[1:]
	}
	*g.nodes[id] = Node{Ref: r, Rules: g.rules[r.Kind], Desire: Desire{Parent: noNode}, RetrySlot: -1}
	g.ids[r] = id
	return id
}

// BeginDump keeps all nodes until EndDump: the dump must not take a node that was deleted meanwhile for a new one.
func (g *Graph) BeginDump() { g.dumps++ }

// EndDump ends what BeginDump began.
func (g *Graph) EndDump() { g.dumps-- }

// Sweep frees the given nodes, and those that lost an edge, if nothing refers to them and no dump is in progress.
func (g *Graph) Sweep(ids []ID) {
	g.loose = append(g.loose, ids...)
	for len(g.loose) > 0 && g.dumps == 0 {
		id := g.loose[len(g.loose)-1]
		g.loose = g.loose[:len(g.loose)-1]
		n := g.nodes[id]
		if g.ids[n.Ref] != id || n.needed() || g.Skipped(id) {
			continue
		}
		g.setEdges(id, wanted, nil)
		g.setEdges(id, applied, nil)
		delete(g.ids, n.Ref)
		*n = Node{Desire: Desire{Parent: noNode}, RetrySlot: -1}
		g.free = append(g.free, id)
	}
}

func (n *Node) needed() bool {
	return n.Ref == Ref{} || n.Want != nil || n.Present() || n.bucket != nil || n.RetrySlot >= 0 ||
		n.Last != nil || len(n.Children) > 0 || len(n.rdeps[wanted]) > 0 || len(n.rdeps[applied]) > 0
}

// Skip notes that an operation on the object was left out, or is not asked for yet: the next plan looks at it.
func (g *Graph) Skip(id ID) { g.skipped[id] = struct{}{} }

// Skipped reports whether an operation on the object was left out.
func (g *Graph) Skipped(id ID) bool {
	_, skipped := g.skipped[id]
	return skipped
}

// HasSkipped reports whether an operation on any object was left out.
func (g *Graph) HasSkipped() bool { return len(g.skipped) > 0 }

// Unskip takes back what Skip noted.
func (g *Graph) Unskip(id ID) { delete(g.skipped, id) }

// TakeSkipped appends the objects that Skip noted and that take accepts, and forgets them.
func (g *Graph) TakeSkipped(ids []ID, take func(*Node) bool) []ID {
	for id := range g.skipped {
		if take(g.nodes[id]) {
			delete(g.skipped, id)
			ids = append(ids, id)
		}
	}
	return ids
}

// Unmark removes the marks of all nodes. Marks last until the next plan.
func (g *Graph) Unmark() { g.epoch++ }

// Mark marks a node.
func (g *Graph) Mark(n *Node) { n.mark = g.epoch }

// Marked reports whether a node was marked since Unmark.
func (g *Graph) Marked(n *Node) bool { return n.mark == g.epoch }

// TakeStirred appends the nodes that gained or lost a candidate of an Any dependency since the last call.
func (g *Graph) TakeStirred(ids []ID) []ID {
	ids = append(ids, g.stirred...)
	g.stirred = g.stirred[:0]
	return ids
}

func sameEdges(have, want []edge) bool {
	return slices.EqualFunc(have, want, func(a, b edge) bool {
		return a.to == b.to && a.dep == b.dep && a.mode == b.mode && a.any == b.any && a.swap == b.swap
	})
}

// setEdges replaces the edges of a node in set s, and reports whether they differ. Its cost does not depend on how many edges lead to the
// targets.
func (g *Graph) setEdges(id ID, s int, edges []edge) (changed bool) {
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

func (g *Graph) addEdge(id ID, s int, e edge) {
	n, t := g.nodes[id], g.nodes[e.to]
	e.pos = int32(len(t.rdeps[s]))
	t.rdeps[s] = append(t.rdeps[s], redge{from: id, slot: int32(len(n.deps[s]))})
	n.deps[s] = append(n.deps[s], e)
}

// unlink removes the reverse of e. The last reverse edge of the target takes its place.
func (g *Graph) unlink(e edge, s int) {
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

func (g *Graph) dropEdge(id ID, s int, slot int) {
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

func (g *Graph) targets(out []ID, id ID, s int) []ID {
	for _, e := range g.nodes[id].deps[s] {
		out = append(out, e.to)
	}
	return out
}

// Around calls visit for the given nodes, for their direct dependencies, and for everything that depends on them; for a node once or twice.
func (g *Graph) Around(ids []ID, visit func(*Node)) {
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
func (g *Graph) Dependents(ids []ID, visit func(ID)) {
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

// RecreateMakers marks the objects that must be recreated for a missing one to come back, and returns them.
func (g *Graph) RecreateMakers(missing *Node) (ids []ID) {
	if missing.Want == nil {
		return nil
	}
	for _, e := range missing.deps[wanted] {
		if t := g.nodes[e.to]; e.mode == Part && t.Have != nil && t.State != Foreign {
			t.Again = true
			ids = append(ids, e.to)
		}
	}
	return ids
}

// Handles returns the metadata of the objects that serve the dependencies of the desired value, by the index of the dependency.
// Of several candidates it takes the one whose name sorts first.
func (g *Graph) Handles(n *Node) []any {
	if n.ndeps == 0 {
		return nil
	}
	handles, chosen := make([]any, n.ndeps), make([]*Node, n.ndeps)
	for _, e := range n.deps[wanted] {
		if t := g.nodes[e.to]; e.dep >= 0 && t.There() && (chosen[e.dep] == nil || t.Ref.Name < chosen[e.dep].Ref.Name) {
			chosen[e.dep], handles[e.dep] = t, t.Meta
		}
	}
	return handles
}

// ErrCycle is wrapped with the path of a dependency cycle.
var ErrCycle = errors.New("dependency cycle")

// Cycle returns an error if the desired values of the given nodes lead to a dependency cycle.
func (g *Graph) Cycle(from []ID) error {
	w := cycleWalk{Graph: g, color: make(map[ID]color, len(from))}
	for _, root := range from {
		if w.color[root] != unseen {
			continue
		}
		if loop := w.from(root); loop != nil {
			return g.cycleError(loop)
		}
	}
	return nil
}

type color uint8

const (
	unseen color = iota
	onPath
	free // leads to no cycle
)

// cycleWalk searches depth first. It has a stack of its own, because a chain of dependencies may be longer than a goroutine's stack allows.
type cycleWalk struct {
	*Graph
	color map[ID]color
	path  []step
}

type step struct {
	id   ID
	next int // the edge to follow next
}

// from returns the nodes of a cycle that root leads to.
func (w *cycleWalk) from(root ID) []ID {
	w.enter(root)
	for len(w.path) > 0 {
		top := &w.path[len(w.path)-1]
		deps := w.nodes[top.id].deps[wanted]
		if top.next == len(deps) {
			w.color[top.id] = free
			w.path = w.path[:len(w.path)-1]
			continue
		}
		to := deps[top.next].to
		top.next++
		switch w.color[to] {
		case onPath:
			return w.since(to)
		case unseen:
			w.enter(to)
		}
	}
	return nil
}

func (w *cycleWalk) enter(id ID) {
	w.color[id] = onPath
	w.path = append(w.path, step{id: id})
}

func (w *cycleWalk) since(id ID) (ids []ID) {
	first := slices.IndexFunc(w.path, func(s step) bool { return s.id == id })
	for _, s := range w.path[first:] {
		ids = append(ids, s.id)
	}
	return ids
}

// cycleError starts the path at its smallest name, so that the text does not depend on where the search began.
func (g *Graph) cycleError(ids []ID) error {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = g.nodes[id].Ref.String()
	}
	first := slices.Index(names, slices.Min(names))
	names = append(names[first:], names[:first+1]...)
	return fmt.Errorf("%w: %s", ErrCycle, strings.Join(names, " -> "))
}
