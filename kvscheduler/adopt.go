package kvscheduler

// adopt takes what a backend found as the applied value of an object.
func (s *state) adopt(id int32, f found, i int) {
	n := s.g.nodes[id]
	h := f.head(i)
	value, meta := f.box(i)
	n.unknown = false
	n.meta = meta
	s.touch(n)
	foreign := h.owner == Foreign || h.owner == Unclear && n.want == nil && n.last == nil && (n.have == nil || n.foreign)
	if foreign {
		n.have, n.foreign, n.haveRev = value, true, 0
		s.g.setEdges(id, applied, nil)
		s.g.member(id)
		return
	}
	n.foreign = false
	before := n.have
	n.have, n.unproven = n.complete(value, h)
	n.tag, n.stale = h.hash, n.unproven && n.want != nil
	s.certain(id)
	if before == nil || !n.k.equal(before, n.have) {
		s.adopted = append(s.adopted, id)
		s.haveEdges(id)
	}
	s.g.member(id)
}

// prove completes a dumped value whose hash agreed with nothing then known, now that a value is desired. If they do not
// agree either, the fields that cannot be dumped must be taken for different.
func (n *node) prove() {
	if n.want == nil || !n.unproven {
		return
	}
	if n.stale = n.k.hash(n.want) != n.tag; !n.stale {
		n.have, n.unproven = n.k.merge(n.have, n.want), false
	}
}

// complete fills what cannot be dumped from the last value whose hash agrees; unproven: none does.
func (n *node) complete(dumped any, h head) (value any, unproven bool) {
	if !h.hasHash || !n.k.hashes {
		for _, last := range []any{n.have, n.last, n.want} {
			if last != nil {
				return n.k.merge(dumped, last), false
			}
		}
		return dumped, false
	}
	for _, last := range []any{n.have, n.last, n.want} {
		if last != nil && n.k.hash(last) == h.hash {
			return n.k.merge(dumped, last), false
		}
	}
	return dumped, true
}

// haveEdges sets the edges of the applied value from that value.
func (s *state) haveEdges(id int32) {
	n := s.g.nodes[id]
	if n.inSync() {
		s.copyEdges(id)
		return
	}
	edges, anyDeps := s.g.resolve(id, n.k.deps(n.ref.Name, n.have))
	s.g.setEdges(id, applied, edges)
	n.anyDeps[applied] = anyDeps
}

// missing notes that an object is not on the machine.
func (s *state) missing(id int32) {
	n := s.g.nodes[id]
	n.have, n.meta, n.haveRev = nil, nil, 0
	n.unknown, n.stale, n.unproven, n.foreign, n.orphan, n.again = false, false, false, false, false, false
	s.touch(n)
	s.g.setEdges(id, applied, nil)
	n.anyDeps[applied] = nil
	s.g.member(id)
}
