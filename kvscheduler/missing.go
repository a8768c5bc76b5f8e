package kvscheduler

import (
	"fmt"
	"strings"
)

// unmetDep tells what a dependency waits for in plain words.
func unmetDep(d Dep) string {
	what := d.On.String()
	if d.Any != nil {
		what = fmt.Sprintf("any %s of %q", d.Any.Kind, d.Any.Bucket)
	}
	if d.Label != "" {
		return what + " (" + d.Label + ")"
	}
	return what
}

// missingNow names the dependencies of the desired value that are not applied.
func (s *state) missingNow(n *node) []string {
	return s.missingBy(n, func(e edge) bool { return s.g.serves(n, e) })
}

// missingAfter names those that will not exist at the end of the last plan.
func (s *state) missingAfter(n *node) []string {
	return s.missingBy(n, func(e edge) bool { return s.g.exists(s.g.nodes[e.to]) == yes })
}

func (s *state) missingBy(n *node, there func(edge) bool) (out []string) {
	if n.foreign && n.have != nil {
		return []string{"an object that is not ours holds this name"}
	}
	if n.want == nil || n.invalid != nil {
		return nil
	}
	served := make(map[int32]bool, len(n.deps[wanted]))
	for _, e := range n.deps[wanted] {
		if there(e) {
			served[e.dep] = true
		} else if e.dep < 0 {
			out = append(out, s.g.nodes[e.to].ref.String()+" (parent)")
		}
	}
	for i, d := range n.k.deps(n.ref.Name, n.want) {
		if !served[int32(i)] {
			out = append(out, unmetDep(d))
		}
	}
	return out
}

func oneLine(lines []string) string { return strings.Join(lines, ", ") }
