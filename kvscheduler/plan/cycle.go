package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrCycle is wrapped with the path of a dependency cycle.
var ErrCycle = errors.New("dependency cycle")

// Cycle returns an error if the desired values of the given nodes lead to a dependency cycle.
func (g *links) Cycle(from []ID) error {
	w := cycleWalk{links: g, color: make(map[ID]color, len(from))}
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
	free // leads to no cycle
)

// cycleWalk searches depth first. It has a stack of its own, because a chain of dependencies may be longer than a
// goroutine's stack allows.
type cycleWalk struct {
	*links
	color map[ID]color
	path  []step
}

type step struct {
	id   ID
	next int // the edge to follow next
}

// from returns the nodes of a cycle that root leads to.
func (w *cycleWalk) from(root ID) []ID {
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

func (w *cycleWalk) enter(id ID) {
	w.color[id] = onPath
	w.path = append(w.path, step{id: id})
}

func (w *cycleWalk) since(id ID) (ids []ID) {
	first := slices.IndexFunc(w.path, func(s step) bool { return s.id == id })
	for _, s := range w.path[first:] {
		ids = append(ids, s.id)
	}
	return ids
}

// cycleError starts the path at its smallest name, so that the text does not depend on where the search began.
func (g *links) cycleError(ids []ID) error {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = g.nodes[id].Ref.String()
	}
	first := slices.Index(names, slices.Min(names))
	names = append(names[first:], names[:first+1]...)
	return fmt.Errorf("%w: %s", ErrCycle, strings.Join(names, " -> "))
}
