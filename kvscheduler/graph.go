package kvscheduler

import "time"

// Two edge sets: edges of the desired value order the build-up, edges of the applied value order the teardown.
// They differ while an object changes what it depends on.
const (
	wanted = iota
	applied
)

// edge leads from a dependent to what it depends on.
type edge struct {
	to, pos int32 // pos: where the target keeps the way back
	dep     int32 // index in Deps; -1: the parent of a derived object
	any     bool  // one of several candidates of that dependency
	mode    DepMode
}

// redge is the way back: deps[slot] of node from.
type redge struct{ from, slot int32 }

// node is all that is known of one ref. A ref that somebody only depends on has a node too.
type node struct {
	ref        Ref
	k          *kind
	want, have any
	meta       any
	wantRev    uint64
	haveRev    uint64
	touched    uint64 // the state's clock at the last change: a dump that began earlier knows less
	source     string
	parent     int32 // -1: not derived
	children   []int32
	deps       [2][]edge
	rdeps      [2][]redge
	anyDeps    [2][]int32 // indexes of Any dependencies
	ndeps      int32      // of the desired value
	bucket     string
	inBucket   bool

	foreign  bool // have is not ours
	orphan   bool // ours, found, not desired, and not allowed to be pruned
	unknown  bool // an operation's outcome is not known: nothing is done before it was read back
	stale    bool // have may differ in fields that cannot be dumped
	unproven bool // have agrees with no known value by its hash, which is tag
	tag      uint64
	again    bool // must be recreated although the value is right
	skipped  bool // an operation was left out because another one failed
	drifted  bool
	invalid  error
	last     any // from the journal

	err       error
	permanent bool
	attempt   int
	retryAt   time.Time
	retrySlot int // index in the retry heap; -1: none

	planned
}

// planned is what the planner writes about a node; it is valid while mark is the graph's epoch.
type planned struct {
	mark    uint32
	indeg   int32
	level   [2]int32
	act     action
	dirty   uint32 // epoch in which it was among those asked for
	changed bool   // changed by somebody else: Follow dependents are recreated
	held    bool
	doomed  bool // goes with what it stands on, and does not come back
	cause   int32
}

// present tells whether the object is or may be on the machine.
func (n *node) present() bool { return n.have != nil || n.unknown }

type graph struct {
	ids     map[Ref]int32
	nodes   []*node
	free    []int32
	slab    []node
	buckets map[bucketKey]*bucket
	kinds   map[Kind]*kind
	epoch   uint32
	stirred []int32 // nodes whose Any edges changed because a candidate did
	loose   []int32 // nodes that may be of no use any more
	dumps   int     // dumps under way
	dooms   bool    // the present pass found something doomed

	aff, stack, queue []int32 // scratch of the planner
	edges             []edge
}

func newGraph(kinds map[Kind]*kind) *graph {
	return &graph{ids: make(map[Ref]int32), buckets: make(map[bucketKey]*bucket), kinds: kinds}
}

func (g *graph) intern(r Ref) int32 {
	if id, ok := g.ids[r]; ok {
		return id
	}
	var id int32
	if last := len(g.free) - 1; last >= 0 {
		id, g.free = g.free[last], g.free[:last]
	} else {
		if len(g.slab) == 0 {
			g.slab = make([]node, 64)
		}
		id = int32(len(g.nodes))
		g.nodes = append(g.nodes, &g.slab[0])
		g.slab = g.slab[1:]
	}
	n := g.nodes[id]
	*n = node{ref: r, k: g.kinds[r.Kind], parent: -1, retrySlot: -1}
	g.ids[r] = id
	return id
}

// sweep forgets the given nodes, and those that lost an edge, if nothing refers to them. While a dump is under way it
// waits: a node that was deleted since must not be taken for a new one when the dump shows it.
func (g *graph) sweep(ids []int32) {
	g.loose = append(g.loose, ids...)
	for len(g.loose) > 0 && g.dumps == 0 {
		id := g.loose[len(g.loose)-1]
		g.loose = g.loose[:len(g.loose)-1]
		n := g.nodes[id]
		if g.ids[n.ref] != id || n.needed() {
			continue
		}
		g.setEdges(id, wanted, nil)
		g.setEdges(id, applied, nil)
		delete(g.ids, n.ref)
		*n = node{parent: -1, retrySlot: -1}
		g.free = append(g.free, id)
	}
}

func (n *node) needed() bool {
	return n.ref == Ref{} || n.want != nil || n.present() || n.inBucket || n.retrySlot >= 0 || n.skipped ||
		n.last != nil || len(n.children) > 0 || len(n.rdeps[wanted]) > 0 || len(n.rdeps[applied]) > 0
}

func (g *graph) sameEdges(have, want []edge) bool {
	if len(have) != len(want) {
		return false
	}
	for i := range have {
		a, b := have[i], want[i]
		if a.to != b.to || a.dep != b.dep || a.mode != b.mode || a.any != b.any {
			return false
		}
	}
	return true
}

// setEdges replaces the out-edges of id in set s. It costs O(old + new), whatever hangs on the targets.
func (g *graph) setEdges(id int32, s int, edges []edge) {
	n := g.nodes[id]
	if g.sameEdges(n.deps[s], edges) {
		return
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
}

func (g *graph) addEdge(id int32, s int, e edge) {
	n, t := g.nodes[id], g.nodes[e.to]
	e.pos = int32(len(t.rdeps[s]))
	t.rdeps[s] = append(t.rdeps[s], redge{from: id, slot: int32(len(n.deps[s]))})
	n.deps[s] = append(n.deps[s], e)
}

// unlink removes the way back of e, filling the hole with the last one.
func (g *graph) unlink(e edge, s int) {
	t := g.nodes[e.to]
	last := len(t.rdeps[s]) - 1
	moved := t.rdeps[s][last]
	t.rdeps[s][e.pos] = moved
	g.nodes[moved.from].deps[s][moved.slot].pos = e.pos
	t.rdeps[s] = t.rdeps[s][:last]
	if last == 0 && t.want == nil && t.have == nil {
		g.loose = append(g.loose, e.to)
	}
}

func (g *graph) dropEdge(id int32, s int, slot int) {
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
