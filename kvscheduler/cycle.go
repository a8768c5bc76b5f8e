package kvscheduler

import (
	"fmt"
	"slices"
	"strings"
)

// cycle looks for a dependency cycle among the desired values, from the changed nodes on.
func (g *graph) cycle(from []int32) error {
	const open, closed = 1, 2
	color := make(map[int32]uint8, len(from))
	type frame struct {
		id   int32
		next int
	}
	var path []frame
	for _, root := range from {
		if color[root] != 0 {
			continue
		}
		path = append(path[:0], frame{id: root})
		color[root] = open
		for len(path) > 0 {
			top := &path[len(path)-1]
			deps := g.nodes[top.id].deps[wanted]
			if top.next == len(deps) {
				color[top.id] = closed
				path = path[:len(path)-1]
				continue
			}
			to := deps[top.next].to
			top.next++
			switch color[to] {
			case open:
				ids := make([]int32, len(path))
				for i, f := range path {
					ids[i] = f.id
				}
				return g.cycleError(ids[slices.Index(ids, to):])
			case 0:
				color[to] = open
				path = append(path, frame{id: to})
			}
		}
	}
	return nil
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
