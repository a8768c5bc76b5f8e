package kvscheduler

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// goneAt is an observed "gone" that is held back: a link may flap.
type goneAt struct {
	o     Object
	until time.Time
}

// events takes what was observed since the last time, whatever its number, into one plan.
func (s *state) events(ctx context.Context, now time.Time) bool {
	seen := s.takeObserved()
	list := s.ripe(seen, now)
	if len(list) == 0 {
		return seen != nil
	}
	r := s.begin(ctx, "event", "event")
	s.g.stirred = s.g.stirred[:0]
	var dirty []int32
	for _, o := range list {
		if id, changed := s.see(o); changed {
			dirty = append(dirty, id)
		}
	}
	if len(dirty) == 0 {
		return true
	}
	dirty = append(dirty, s.g.stirred...)
	r.execute(r.plan(s.withSkipped(dirty)))
	if _, err := r.finish(); err != nil {
		s.cfg.Logger.Warn("event", "objects", len(dirty), "err", err)
	}
	return true
}

// ripe sorts out what is to be believed now. "Came" cancels a "gone" that is held back.
func (s *state) ripe(seen map[Ref]Object, now time.Time) (list []Object) {
	for ref, o := range seen {
		k := s.kinds[ref.Kind]
		switch {
		case k == nil:
			s.cfg.Logger.Warn("observed an object of an unknown kind", "object", ref)
		case o.v == nil && k.settle > 0:
			if _, held := s.settled[ref]; !held {
				s.settled[ref] = goneAt{o: o, until: now.Add(k.settle)}
			}
		default:
			delete(s.settled, ref)
			list = append(list, o)
		}
	}
	for ref, g := range s.settled {
		if !g.until.After(now) {
			delete(s.settled, ref)
			list = append(list, g.o)
		}
	}
	slices.SortFunc(list, func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.Ref.Kind, b.Ref.Kind), cmp.Compare(a.Ref.Name, b.Ref.Name))
	})
	return list
}

// see takes one report into the state. For an object of ours it is drift, never a change of its owner.
func (s *state) see(o Object) (id int32, changed bool) {
	id, known := s.g.ids[o.Ref]
	if !known {
		if o.v == nil {
			return 0, false
		}
		id = s.g.intern(o.Ref)
	}
	n := s.g.nodes[id]
	if n.unknown || !n.k.backed && n.want != nil && !n.foreign {
		return id, false
	}
	if o.v == nil {
		if n.have == nil {
			return id, false
		}
		s.missing(id)
		n.drifted = n.want != nil
		return id, true
	}
	return id, s.seeValue(id, o.v)
}

func (s *state) seeValue(id int32, v any) bool {
	n := s.g.nodes[id]
	ours := n.k.backed && !n.foreign && (n.want != nil || n.have != nil)
	if ours && n.have != nil {
		v = n.k.merge(v, n.have)
	}
	if n.have != nil && n.k.equal(n.have, v) {
		return false
	}
	s.touch(n)
	n.changed = n.have != nil
	n.have = v
	if !ours {
		n.foreign = true
		s.g.member(id)
		return true
	}
	s.haveEdges(id)
	n.drifted = n.want != nil && !n.inSync()
	return true
}
