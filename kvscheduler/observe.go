package kvscheduler

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/weftnet/weft/kvscheduler/plan"
)

// goneAt is a report of a removal that is held back, because a link may flap.
type goneAt struct {
	o     Object
	until time.Time
}

// events handles all reports since the last call with one plan.
func (s *state) events(ctx context.Context, now time.Time) bool {
	seen := s.takeObserved()
	list := s.ripe(seen, now)
	if len(list) == 0 {
		return seen != nil
	}
	r := s.begin(ctx, "event", "event")
	s.g.TakeStirred(nil) // those of earlier requests
	var dirty []plan.ID
	for _, o := range list {
		if id, changed := s.see(o); changed {
			dirty = append(dirty, id)
		}
	}
	if len(dirty) == 0 {
		return true
	}
	dirty = s.g.TakeStirred(dirty)
	r.execute(r.plan(s.withSkipped(dirty)))
	r.retreat()
	if _, err := r.finish(); err != nil {
		s.cfg.Logger.Warn("event", "objects", len(dirty), "err", err)
	}
	return true
}

// ripe returns the reports that take effect now. A report that an object exists cancels a report of its removal that is held back.
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

// see notes one report. For an object of ours it means drift, never a change of its owner.
func (s *state) see(o Object) (id plan.ID, changed bool) {
	id, known := s.g.Lookup(o.Ref)
	if !known {
		if o.v == nil {
			return 0, false
		}
		id = s.g.Intern(o.Ref)
	}
	n := s.g.Node(id)
	if n.State == plan.Doubtful || !kindOf(n).backed && n.Want != nil && n.State != plan.Foreign {
		return id, false
	}
	if o.v == nil {
		if n.Have == nil {
			return id, false
		}
		s.g.Missing(id)
		n.Drifted = n.Want != nil
		return id, true
	}
	return id, s.seeValue(id, o.v)
}

func (s *state) seeValue(id plan.ID, v any) bool {
	n := s.g.Node(id)
	k := kindOf(n)
	ours := k.backed && n.State != plan.Foreign && (n.Want != nil || n.Have != nil)
	if ours && n.Have != nil {
		v = k.merge(v, n.Have)
	}
	if n.Have != nil && k.equal(n.Have, v) {
		return false
	}
	s.g.See(id, v, ours)
	return true
}
