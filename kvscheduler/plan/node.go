package plan

import (
	"slices"
	"time"
)

// ID identifies a node of a graph while the node exists.
type ID int32

// noNode is the ID of no node.
const noNode ID = -1

// state is the last known state of an object on the machine.
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
// Found leads from each state to Applied, or to Unproven if the value has fields that cannot be read back and no known
// value has the stored hash; Prove leads from Unproven to Applied. See, a report of a third party's change, leads from
// Absent to Applied or Foreign.
type state uint8

const (
	// isAbsent: the object is not on the machine.
	isAbsent state = iota
	// isApplied: Have is on the machine, and Weft may change it.
	isApplied
	// isUnproven: as isApplied, but fields that cannot be read back may differ from each known value.
	isUnproven
	// isForeign: an object with this name exists and is never touched.
	isForeign
	// isDoubtful: the outcome of an operation is not known. Nothing is done before the object was read back. Have is
	// the value before.
	isDoubtful
)

// Failure is the last failed operation of an object. The zero value means that none failed since the last success.
type Failure struct {
	Err       error
	Permanent bool      // no retry before the value or a dependency changes
	Attempt   int       // failures in a row
	RetryAt   time.Time // zero: no retry by time
}

// Desire is the value that a source desires of one object, with the state that belongs to that value: a rolled back
// transaction restores all of it.
type Desire struct {
	Want    any // nil: no source desires the object
	WantRev uint64
	Source  string
	Invalid error // why the value was refused
	// found on the machine, made by Weft, and not desired; no plan deletes it before pruning is allowed, except by a
	// cascade
	Orphan bool
	Failure
}

// Node is everything known of one object. An object that is only named by a dependency has a node, too.
type Node struct {
	Ref   Ref
	Rules Rules // nil: the kind is not registered
	Desire
	Last any // last applied value of an earlier run; nil: none, or read back since

	state   state
	Have    any // value on the machine; nil if it is absent
	Meta    any // the backend's handle
	HaveRev uint64
	Tag     uint64 // stored hash of an unproven value
	Touched uint64 // Graph.Clock at the last change: a dump that began earlier knows less
	Lost    bool   // desired, was on the machine, and is not there any more

	// Reasons to change an object although its value is right.
	Again   bool // must be recreated
	Drifted bool // was found different or missing

	RetrySlot int // index in the retry queue; -1: none

	deps    [2][]edge
	rdeps   [2][]redge
	anyDeps [2][]int32 // indexes of Any dependencies
	based   any        // the applied edges are the dependencies of this value
	ndeps   int32      // number of dependencies of the desired value
	bucket  *bucket    // the bucket with this node as a member

	planned
}

// planned has the planner's notes about a node. It is valid while mark is the graph's epoch.
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
func (n *Node) Present() bool { return n.state != isAbsent }

// There reports whether the object is on the machine for sure.
func (n *Node) There() bool { return n.state != isAbsent && n.state != isDoubtful }

// Foreign reports whether an object that is not ours has this name on the machine.
func (n *Node) Foreign() bool { return n.state == isForeign }

// Matches reports whether the applied value needs no change for the desired one. The phase becomes InSync when a plan
// has found so.
func (n *Node) Matches() bool {
	return n.Desired() && n.state == isApplied && !n.Again && n.Rules.Equal(n.Want, n.Have)
}

// Waits reports whether the last plan leaves a desired object without being applied.
func (n *Node) Waits() bool {
	return n.Have == nil && (n.act == pend || n.act == hold) || n.act.deletes() || n.Foreign()
}

// Stays reports whether the last plan leaves the object as it is.
func (n *Node) Stays() bool { return n.act == none }

// Deleted reports whether the last plan deletes the object, and does not create it again.
func (n *Node) Deleted() bool { return n.act.deletes() }

// Pends reports whether the last plan leaves the object absent because of its dependencies, and not because of its
// failure.
func (n *Node) Pends() bool { return n.act == pend }

// Recreated reports whether the last plan deletes and creates the object.
func (n *Node) Recreated() bool { return n.act == recreate }

// Stale reports whether the applied value must be taken for different from the desired one.
func (n *Node) Stale() bool { return n.state == isUnproven && n.Want != nil }

// WaitedBefore reports whether the object pends in the last plan, and pended with the same value before.
func (n *Node) WaitedBefore(before Desire) bool {
	return n.Waits() && n.Have == nil && before.Want != nil && before.WantRev == n.WantRev
}

// needed reports whether the graph has to keep the node.
func (n *Node) needed() bool {
	return n.Ref == Ref{} || n.Want != nil || n.Present() || n.bucket != nil || n.RetrySlot >= 0 ||
		n.Last != nil || len(n.rdeps[wanted]) > 0 || len(n.rdeps[applied]) > 0
}

// needs reports whether the desired value depends on an object.
func (n *Node) needs(on ID) bool {
	return slices.ContainsFunc(n.deps[wanted], func(e edge) bool { return e.to == on })
}
