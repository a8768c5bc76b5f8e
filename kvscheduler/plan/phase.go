package plan

// Phase compares the desired value of an object with the last known state of the machine.
type Phase uint8

const (
	// Absent: no source desires the object, and it is not on the machine.
	Absent Phase = iota
	// Waiting: the object is desired and not on the machine, usually because a dependency is not met.
	Waiting
	// Blocked: the object is desired, and a foreign object has its name.
	Blocked
	// Refused: the desired value is invalid, and no earlier one is applied.
	Refused
	// InSync: the desired value is applied.
	InSync
	// Drifted: the object was found different or missing, or must be changed to the desired value.
	Drifted
	// Failed: the last operation for the desired value failed.
	Failed
	// Removing: the object is on the machine, and no source desires it, or its desired value is invalid.
	Removing
	// Orphaned: the object of Weft was found, and no source desires it; it may be pruned later.
	Orphaned
	// Foreign: no source desires the object, and a foreign one has this name.
	Foreign
	// Doubtful: the outcome of an operation is not known; see [Node.PhaseBeforeDoubt].
	Doubtful
)

// Phase returns the phase of the object.
func (n *Node) Phase() Phase {
	if n.state == isDoubtful {
		return Doubtful
	}
	return n.PhaseBeforeDoubt()
}

// PhaseBeforeDoubt returns the phase without regard to an operation of unknown outcome: a doubtful object that failed
// is Failed. No doubtful object is InSync.
func (n *Node) PhaseBeforeDoubt() Phase {
	if n.Want == nil {
		return n.phaseUndesired()
	}
	switch {
	case n.Invalid != nil && n.Present() && !n.Foreign():
		return Removing
	case n.Invalid != nil:
		return Refused
	case n.Foreign():
		return Blocked
	case n.Err != nil:
		return Failed
	case n.Have == nil && !n.Drifted:
		return Waiting
	case n.HaveRev != n.WantRev || n.Drifted || n.Again || n.state == isDoubtful:
		return Drifted
	}
	return InSync
}

// phaseUndesired returns the phase of an object that no source desires.
func (n *Node) phaseUndesired() Phase {
	switch {
	case !n.Present():
		return Absent
	case n.Foreign():
		return Foreign
	case n.Orphan:
		return Orphaned
	}
	return Removing
}
