package policy

import "cmp"

// backlog are the local pods that have to be compiled. Namespaces take turns.
type backlog struct {
	dirty map[*podState]struct{} // with interfaces that may need other rules
	turns map[string]uint64      // the last turn of namespaces that have dirty pods
	turn  uint64                 // of the pod compiled last
	// pods that were deleted since they were compiled, also if there is another one of that name
	gone map[ID]struct{}
	kept *fragments
}

func newBacklog(kept *fragments) backlog {
	return backlog{
		dirty: make(map[*podState]struct{}),
		turns: make(map[string]uint64),
		gone:  make(map[ID]struct{}),
		kept:  kept,
	}
}

// groupChanged marks the pods and policies that depend on the membership of a pod in a group.
func (b *backlog) groupChanged(p *podState, g *group) {
	if len(g.subjects) > 0 {
		b.touch(p)
	}
	for policy := range g.peers {
		b.invalidate(policy)
	}
}

// invalidatePeers marks the policies of which a pod is a peer.
func (b *backlog) invalidatePeers(p *podState) {
	for g := range p.groups {
		for policy := range g.peers {
			b.invalidate(policy)
		}
	}
}

// invalidate drops the addresses in the rules of a policy, and marks its local subjects.
func (b *backlog) invalidate(p *policyState) {
	b.kept.drop(p)
	p.efforts = [2]*effort{}
	for member := range p.subject.members {
		b.touch(member)
	}
}

// touch marks a pod: its rules may differ.
func (b *backlog) touch(p *podState) {
	if p.Local || len(p.lists) > 0 {
		b.dirty[p] = struct{}{}
	}
}

// remove removes a pod that was deleted.
func (b *backlog) remove(p *podState) {
	delete(b.dirty, p)
	if p.Local || len(p.lists) > 0 {
		b.gone[p.ID] = struct{}{}
	}
}

func (b *backlog) isDirty(p *podState) bool {
	_, is := b.dirty[p]
	return is
}

// takeGone takes a deleted pod. If a pod of the name is there again, the change is its rules.
func (b *backlog) takeGone(pod func(ID) *podState) (ID, bool) {
	for id := range b.gone {
		if p := pod(id); p == nil || !b.isDirty(p) {
			delete(b.gone, id)
			return id, true
		}
	}
	return ID{}, false
}

// next returns the pod that is compiled next; nil: all are compiled.
func (b *backlog) next() *podState {
	var next *podState
	for p := range b.dirty {
		if next == nil ||
			cmp.Or(cmp.Compare(b.turns[p.Namespace], b.turns[next.Namespace]), compareIDs(p.ID, next.ID)) < 0 {
			next = p
		}
	}
	if next == nil {
		clear(b.turns)
		return nil
	}
	b.turn++
	b.turns[next.Namespace] = b.turn
	return next
}

// take takes a pod that is compiled. It reports whether another one of that name was deleted.
func (b *backlog) take(p *podState) bool {
	delete(b.dirty, p)
	_, isAgain := b.gone[p.ID]
	delete(b.gone, p.ID)
	return isAgain
}
