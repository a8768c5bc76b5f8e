package kvscheduler

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// WriteDOT draws the desired and the observed objects with their dependencies in graphviz' language; around narrows it
// to these objects and their neighbours.
func (s *Scheduler) WriteDOT(w io.Writer, around ...Ref) error {
	v := s.store.view()
	var all []*entry
	for k := range v.kinds {
		v.each(k, func(e *entry) bool { all = append(all, e); return true })
	}
	slices.SortFunc(all, func(a, b *entry) int { return cmp.Compare(a.ref.String(), b.ref.String()) })
	var b strings.Builder
	b.WriteString("digraph kvscheduler {\n  rankdir=LR;\n  node [shape=box];\n")
	for _, e := range all {
		targets := s.pointsTo(e)
		if len(around) > 0 && !slices.Contains(around, e.ref) && !slices.ContainsFunc(targets, func(r Ref) bool { return slices.Contains(around, r) }) {
			continue
		}
		fmt.Fprintf(&b, "  %q [label=%q];\n", e.ref, e.ref.String()+"\n"+e.status.Phase.String())
		for _, t := range targets {
			style := ""
			if _, _, ok := v.Applied(t); !ok {
				style = " [style=dashed]"
			}
			fmt.Fprintf(&b, "  %q -> %q%s;\n", e.ref, t, style)
		}
	}
	b.WriteString("}\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write graph: %w", err)
	}
	return nil
}

func (s *Scheduler) pointsTo(e *entry) (refs []Ref) {
	k := s.kinds[e.ref.Kind]
	if e.want == nil || e.status.Phase == Invalid {
		return nil
	}
	for _, d := range k.deps(e.ref.Name, e.want) {
		if d.Any != nil {
			d.On = Ref{d.Any.Kind, "any of " + d.Any.Bucket}
		}
		refs = append(refs, d.On)
	}
	return refs
}
