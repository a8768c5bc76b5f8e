package forward

import "fmt"

// maxPaths bounds a route's paths and the buckets that weights are spread over.
const maxPaths = 64

// entry is a route as workers see it: paths repeated by weight, so that a flow's hash picks one by modulo.
type entry struct {
	action  Action
	buckets []Path
}

func newEntry(r Route) (*entry, error) {
	e := &entry{action: r.Action}
	if r.Action > Prohibit {
		return nil, fmt.Errorf("%w: action %d", ErrBadRoute, r.Action)
	}
	if r.Action != Forward {
		return e, nil
	}
	if len(r.Paths) == 0 || len(r.Paths) > maxPaths {
		return nil, fmt.Errorf("%w: %d paths", ErrBadRoute, len(r.Paths))
	}
	e.buckets = spread(r.Paths)
	return e, nil
}

// spread repeats each path by its weight; where that is more than maxPaths the shares are scaled, each path keeping one.
func spread(paths []Path) []Path {
	sum := 0
	for _, p := range paths {
		sum += int(max(p.Weight, 1))
	}
	out := make([]Path, 0, min(sum, 2*maxPaths))
	for _, p := range paths {
		n := int(max(p.Weight, 1))
		if sum > maxPaths {
			n = max(1, n*maxPaths/sum)
		}
		for range n {
			out = append(out, p)
		}
	}
	return out
}
