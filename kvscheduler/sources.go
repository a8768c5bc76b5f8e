package kvscheduler

import (
	"slices"

	"github.com/weftnet/weft/kvscheduler/plan"
)

// sources are the callers that desire objects. Each desired object belongs to one of them.
type sources struct {
	owned map[string]map[plan.ID]struct{} // objects by source
	ready map[string]bool                 // the sources that have desired all their objects since the start
}

func newSources() sources {
	return sources{owned: make(map[string]map[plan.ID]struct{}), ready: make(map[string]bool)}
}

// own notes the source of an object, if it is desired.
func (s sources) own(n *plan.Node, id plan.ID) {
	if n.Want == nil {
		return
	}
	if s.owned[n.Source] == nil {
		s.owned[n.Source] = make(map[plan.ID]struct{})
	}
	s.owned[n.Source][id] = struct{}{}
}

// disown is the inverse of own.
func (s sources) disown(n *plan.Node, id plan.ID) {
	delete(s.owned[n.Source], id)
	if len(s.owned[n.Source]) == 0 {
		delete(s.owned, n.Source)
	}
}

// areReady reports whether all of the named sources are ready.
func (s sources) areReady(names []string) bool {
	return !slices.ContainsFunc(names, func(source string) bool { return !s.ready[source] })
}
