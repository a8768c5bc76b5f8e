package kvscheduler

import (
	"fmt"
	"slices"
	"strings"
)

// cycle looks for a dependency cycle among the desired values, from the changed nodes on.
func (g *graph) cycle(from []int32) error {
	w := cycleWalk{graph: g, color: make(map[int32]color, len(from))}
	for _, root := range from {
		if w.color[root] != unseen {
			continue
		}
		if loop := w.from(root); loop != nil {
			return g.cycleError(loop)
		}
	}
	return nil
}

type color uint8

const (
	unseen color = iota
	onPath
	free // no cycle can be reached from it
)

// cycleWalk goes depth first with a path of its own, as chains may be longer than a stack is deep.
type cycleWalk struct {
	*graph
	color map[int32]color
	path  []step
}

type step struct {
	id   int32
	next int // the edge to follow next
}

// from returns the ids of a cycle that can be reached from root.
func (w *cycleWalk) from(root int32) []int32 {
	w.enter(root)
	for len(w.path) > 0 {
		top := &w.path[len(w.path)-1]
		deps := w.nodes[top.id].deps[wanted]
		if top.next == len(deps) {
			w.color[top.id] = free
			w.path = w.path[:len(w.path)-1]
			continue
		}
		to := deps[top.next].to
		top.next++
		switch w.color[to] {
		case onPath:
			return w.since(to)
		case unseen:
			w.enter(to)
		}
	}
	return nil
}

func (w *cycleWalk) enter(id int32) {
	w.color[id] = onPath
	w.path = append(w.path, step{id: id})
}

func (w *cycleWalk) since(id int32) (ids []int32) {
	for i := len(w.path) - 1; i >= 0; i-- {
		ids = append(ids, w.path[i].id)
		if w.path[i].id == id {
			break
		}
	}
	slices.Reverse(ids)
	return ids
}

// cycleError names the path, starting at its smallest member so that it reads the same however it was found.
func (g *graph) cycleError(ids []int32) error {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = g.nodes[id].ref.String()
	}
	first := slices.Index(names, slices.Min(names))
	names = append(names[first:], names[:first+1]...)
	return fmt.Errorf("%w: %s", ErrCycle, strings.Join(names, " -> "))
}
