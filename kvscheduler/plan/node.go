package plan

import "time"

// ID identifies a node of a graph while the node exists.
type ID int32

// noNode is the ID of no node.
const noNode ID = -1

// State is what is known of an object on the machine.
//
//	                   Applied(create)               Applied(update)
//	      ┌─────────┐ ───────────────────► ┌───────────────┐ ◄─┐
//	      │ Absent  │                      │    Applied    │ ──┘
//	      │         │ ◄─────────────────── │ (or Unproven) │
//	      └─────────┘    Applied(delete)   └───────────────┘
//	        ▲  │  ▲         or Missing        ▲        │
//	Missing │  │  │ Missing                   │ Found  │ Doubt
//	        │  │  └──────────────┐            │        ▼
//	        │  │            ┌──────────────────────────────┐
//	        │  └──────────► │ Doubtful                     │
//	        │     Doubt     │ (outcome of a call not known)│
//	        │               └──────────────────────────────┘
//	      ┌─────────┐                         │
//	      │ Foreign │ ◄───────────────────────┘
//	      └─────────┘    FoundForeign (from each state)
//
// Found leads from each state to Applied, or to Unproven if the value has fields that cannot be read back and no known value has the stored
// hash; Prove leads from Unproven to Applied. See, a report of a third party's change, leads from Absent to Applied or Foreign.
type State uint8

const (
	// Absent: the object is not on the machine.
	Absent State = iota
	// Applied: Have is on the machine, and Weft may change it.
	Applied
	// Unproven: as Applied, but fields that cannot be read back may differ from each known value.
	Unproven
	// Foreign: an object with this name exists and is never touched.
	Foreign
	// Doubtful: the outcome of an operation is not known. Nothing is done before the object was read back. Have is the value before.
	Doubtful
)

// Failure is the last failed operation of an object. The zero value means that none failed since the last success.
type Failure struct {
	Err       error
	Permanent bool      // no retry before the value or a dependency changes
	Attempt   int       // failures in a row
	RetryAt   time.Time // zero: no retry by time
}

// Desire is what a source desires of one object, with the state that belongs to that value: a rolled back transaction restores all of it.
type Desire struct {
	Want     any // nil: nothing
	WantRev  uint64
	Source   string
	Parent   ID // the object that Want was derived from; -1: none
	Children []ID
	Invalid  error // why the value was refused
	Orphan   bool  // found on the machine, made by Weft, and not desired; no plan deletes it before pruning is allowed, except by a cascade
	Failure
}

// Node is everything known of one object. An object that is only named by a dependency has a node, too.
type Node struct {
	Ref   Ref
	Rules Rules // nil: the kind is not registered
	Desire
	Last any // last applied value of an earlier run; nil: none, or read back since

	State   State
	Have    any // value on the machine; nil if there is none
	Meta    any // the backend's handle
	HaveRev uint64
	Tag     uint64 // stored hash of an Unproven value
	Touched uint64 // Graph.Clock at the last change: a dump that began earlier knows less
	Lost    bool   // desired, was on the machine, and is not there any more

	// Reasons to change an object whose value is right.
	Again   bool // must be recreated
	Drifted bool // was found different or missing
	Changed bool // was changed by a third party: Follow dependents are recreated

	RetrySlot int // index in the retry queue; -1: none

	deps    [2][]edge
	rdeps   [2][]redge
	anyDeps [2][]int32 // indexes of Any dependencies
	based   any        // the value whose dependencies the applied edges are
	ndeps   int32      // number of dependencies of the desired value
	bucket  *bucket    // the bucket with this node as a member

	planned
}

// planned is what the planner writes about a node. It is valid while mark is the graph's epoch.
type planned struct {
	mark  uint32
	dirty uint32 // epoch in which a plan was asked for this node
	indeg int32
	level [2]int32
	act   action
	fits  bool // it stays as it is, because the applied value needs no change for the desired one
	cause ID   // why the node is torn down
	late  bool // it is deleted after the updates that replace it
}

// Desired reports whether a source desires a valid value.
func (n *Node) Desired() bool { return n.Want != nil && n.Invalid == nil }

// Present reports whether the object is on the machine, or may be.
func (n *Node) Present() bool { return n.State != Absent }

// There reports whether the object is on the machine for sure.
func (n *Node) There() bool { return n.State != Absent && n.State != Doubtful }

// InSync reports whether the applied value is the desired one.
func (n *Node) InSync() bool {
	return n.Desired() && n.State == Applied && !n.Again && n.Rules.Equal(n.Want, n.Have)
}

// Waits reports whether the last plan leaves a desired object without being applied.
func (n *Node) Waits() bool {
	return n.Have == nil && (n.act == pend || n.act == hold) || n.act.deletes() || n.State == Foreign
}

// Stays reports whether the last plan leaves the object as it is.
func (n *Node) Stays() bool { return n.act == none }

// Deleted reports whether the last plan deletes the object, and does not create it again.
func (n *Node) Deleted() bool { return n.act.deletes() }

// Pends reports whether the last plan leaves the object absent because of its dependencies, and not because of its failure.
func (n *Node) Pends() bool { return n.act == pend }

// Recreated reports whether the last plan deletes and creates the object.
func (n *Node) Recreated() bool { return n.act == recreate }

// Stale reports whether the applied value must be taken for different from the desired one.
func (n *Node) Stale() bool { return n.State == Unproven && n.Want != nil }

// touch notes a change of a node.
func (g *Graph) touch(n *Node) {
	g.Clock++
	n.Touched = g.Clock
}

// Applied notes that an operation succeeded.
func (g *Graph) Applied(id ID, verb Verb, meta any) {
	n := g.nodes[id]
	n.Drifted, n.Last = false, nil
	delete(g.skipped, id)
	g.touch(n)
	if verb == Delete {
		if g.gone(id); n.Orphan {
			g.SetOrphan(id, false)
		}
		return
	}
	n.State, n.Have, n.Meta, n.HaveRev = Applied, n.Want, meta, n.WantRev
	n.Lost = false
	g.align(id)
}

// gone takes away the applied value of a node.
func (g *Graph) gone(id ID) {
	n := g.nodes[id]
	n.Lost = n.Desired() && (n.Lost || n.Have != nil)
	n.State, n.Have, n.Meta, n.HaveRev = Absent, nil, nil, 0
	n.Again = false
	g.setEdges(id, applied, nil)
	n.anyDeps[applied], n.based = nil, nil
}

// Doubt notes that an operation may or may not have been done. The object may stand on the dependencies of both values.
func (g *Graph) Doubt(id ID) {
	n := g.nodes[id]
	n.State = Doubtful
	g.touch(n)
	edges := append(g.edges[:0], n.deps[applied]...)
	for _, e := range n.deps[wanted] {
		edges = append(edges, edge{to: e.to, dep: inDoubt, mode: e.mode})
	}
	g.edges = edges
	g.setEdges(id, applied, edges)
}

// inDoubt marks an applied edge that lasts only until the object was read back.
const inDoubt = -2

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
	n.State, n.Have, n.Meta, n.HaveRev = Foreign, have, meta, 0
	g.setEdges(id, applied, nil)
	n.anyDeps[applied], n.based = nil, nil
	g.member(id)
}

// Found notes an object of ours as it was read back, and reports whether the value is another one than before. The caller calls
// ResolveApplied when all candidates of Any dependencies are found.
func (g *Graph) Found(id ID, have, meta any, proven bool) (changed bool) {
	n := g.nodes[id]
	before := n.Have
	g.touch(n)
	n.State, n.Have, n.Meta = Applied, have, meta
	n.Lost = false
	if !proven {
		n.State = Unproven
	}
	g.resolveDoubt(id)
	if changed = before == nil || !n.Rules.Equal(before, have); changed {
		g.dependAsApplied(id)
	}
	g.member(id)
	return changed
}

// Prove notes the full value of an object whose fields could not be read back.
func (g *Graph) Prove(id ID, have any) {
	n := g.nodes[id]
	n.State, n.Have = Applied, have
}

// See notes the value of an object that a third party changed or made.
func (g *Graph) See(id ID, have any, ours bool) {
	n := g.nodes[id]
	g.touch(n)
	n.Changed = n.Have != nil
	n.Have = have
	if !ours {
		n.State = Foreign
		g.member(id)
		return
	}
	if n.State == Absent {
		n.State = Applied
	}
	g.dependAsApplied(id)
	n.Drifted = n.Want != nil && !n.InSync()
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

// SetDesire is the only function that changes what is desired of an object. It reports whether the object may depend on other objects than
// before. That does not follow from Rules.Equal: a value may need no operation and have other dependencies, another bucket or other children.
func (g *Graph) SetDesire(id ID, d Desire) (moved bool) {
	n := g.nodes[id]
	selected := len(n.anyDeps[wanted]) > 0
	if selected {
		g.stopWaiting(id, n.Rules.Deps(n.Ref.Name, n.Want))
	}
	if n.Desire = d; d.Want == nil {
		n.Source, n.Parent = "", noNode
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
	n.anyDeps[applied], n.based = n.anyDeps[wanted], n.Want
}

// Settle notes that an object in sync needs no operation for its desired value, and reports whether anything had to be noted. An object
// with an unmet dependency is left as it is.
func (g *Graph) Settle(id ID) bool {
	n := g.nodes[id]
	settled := n.HaveRev == n.WantRev && n.Err == nil && !n.Drifted
	if settled && len(n.anyDeps[wanted]) == 0 && sameEdges(n.deps[applied], n.deps[wanted]) {
		return false
	}
	if _, unmet := g.Unmet(n); unmet {
		return false
	}
	n.HaveRev, n.Drifted = n.WantRev, false
	g.align(id)
	return true
}

// ResolveApplied resolves the Any dependencies of the applied value again.
func (g *Graph) ResolveApplied(id ID) {
	if n := g.nodes[id]; n.There() && n.State != Foreign && len(n.anyDeps[applied]) > 0 {
		g.dependAsApplied(id)
	}
}

// dependAsApplied derives the dependencies of the object from its applied value.
func (g *Graph) dependAsApplied(id ID) {
	n := g.nodes[id]
	if n.InSync() {
		g.align(id)
		return
	}
	edges, anyDeps := g.resolve(id, n.Rules.Deps(n.Ref.Name, n.Have))
	g.setEdges(id, applied, edges)
	n.anyDeps[applied], n.based = anyDeps, n.Have
}
