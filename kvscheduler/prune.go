package kvscheduler

import (
	"fmt"
	"slices"
)

// defaultPrune is how many objects of a kind may be pruned without asking, whatever their share.
const defaultPrune = 16

// prunable returns the found objects of ours that no source desires and that may be deleted now. The others stay orphans.
func (s *state) prunable(r *run, o ResyncOpt, dumps map[Kind]found) (ids []int32) {
	ready := s.allReady()
	for _, k := range s.kindNames() {
		if dumps[k] == nil {
			continue
		}
		candidates, known := s.orphans(k)
		if len(candidates) == 0 {
			continue
		}
		if why := guard(o, len(candidates), known); !ready || why != "" {
			if ready {
				r.fault(fmt.Errorf("%w: %s: %d of %d objects would be pruned, %s", ErrPruneGuard, k, len(candidates), known, why))
			} else {
				why = "a source is not ready"
			}
			for _, id := range candidates {
				r.rec.Pending = append(r.rec.Pending, Why{Ref: s.g.nodes[id].ref.String(), Missing: []string{"prune: " + why}})
			}
			continue
		}
		for _, id := range candidates {
			s.g.nodes[id].orphan = false
			s.g.member(id)
		}
		ids = append(ids, candidates...)
	}
	return append(ids, s.g.stirred...)
}

func (s *state) allReady() bool {
	return !slices.ContainsFunc(s.cfg.Sources, func(source string) bool { return !s.ready[source] })
}

func (s *state) orphans(k Kind) (ids []int32, known int) {
	for id, n := range s.g.nodes {
		if n.ref.Kind != k || n.have == nil || n.foreign {
			continue
		}
		known++
		if n.orphan {
			ids = append(ids, int32(id))
		}
	}
	return ids, known
}

// guard says why so many must not be pruned; empty: they may.
func guard(o ResyncOpt, candidates, known int) string {
	if o.Force {
		return ""
	}
	if o.MaxPrune <= 0 {
		if candidates <= defaultPrune || candidates*2 <= known {
			return ""
		}
		return "the limit is half of them"
	}
	if float64(candidates) > o.MaxPrune*float64(known) {
		return fmt.Sprintf("the limit is %.0f %%", 100*o.MaxPrune)
	}
	return ""
}
