package policy

// tally counts the members of a group by namespace, so that the effort for a policy is known without reading its peers.
type tally struct {
	all         int
	byNamespace map[string]int
}

// tallies are the tallies of all groups.
type tallies map[*group]*tally

// add adds a number to the members of a group in the namespace of a pod.
func (t tallies) add(g *group, p *podState, n int) {
	of := t[g]
	if of == nil {
		of = &tally{byNamespace: make(map[string]int)}
		t[g] = of
	}
	of.all += n
	if of.byNamespace[p.Namespace] += n; of.byNamespace[p.Namespace] == 0 {
		delete(of.byNamespace, p.Namespace)
	}
}

// of returns the tally of a group.
func (t tallies) of(g *group) tally {
	if of := t[g]; of != nil {
		return *of
	}
	return tally{}
}
