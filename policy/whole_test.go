package policy

import (
	"maps"
	"slices"
)

// Compile compiles the local interfaces whose rules may differ, and returns the pods of which one does, in order.
func (e *Engine) Compile() []Change {
	var changes []Change
	for {
		c, changed, some := e.CompileNext()
		if !some {
			break
		}
		if changed {
			changes = append(changes, c)
		}
	}
	slices.SortFunc(changes, func(a, b Change) int { return compareIDs(a.ID, b.ID) })
	return changes
}

// Lists returns the lists of all local pods as compiled last, by pod and interface.
func (e *Engine) Lists() map[ID]map[string]Lists {
	all := make(map[ID]map[string]Lists)
	for _, ns := range e.cluster.namespaces {
		for _, p := range ns.pods {
			if len(p.lists) > 0 {
				all[p.ID] = maps.Clone(p.lists)
			}
		}
	}
	return all
}
