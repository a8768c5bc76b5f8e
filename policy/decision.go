package policy

import (
	"cmp"
	"maps"
	"slices"
)

// decision is the decision of a list about a Service: the rules for its cluster IPs, and for external addresses.
type decision struct {
	internal, external []Rule
}

// size returns the number of rules of the dataplane.
func (d *decision) size() int {
	n := 0
	for _, of := range [][]Rule{d.internal, d.external} {
		for i := range of {
			n += of[i].Size(false)
		}
	}
	return n
}

func (d *decision) equal(o *decision) bool {
	return slices.EqualFunc(d.internal, o.internal, equalRules) && slices.EqualFunc(d.external, o.external, equalRules)
}

func equalRules(a, b Rule) bool {
	return a.Action == b.Action && a.Origin == b.Origin && slices.Equal(a.Ports, b.Ports) &&
		slices.Equal(a.Remotes, b.Remotes)
}

// denials returns the rules that deny.
func (d *decision) denials() decision {
	isAllow := func(r Rule) bool { return r.Action == Allow }
	return decision{
		slices.DeleteFunc(slices.Clone(d.internal), isAllow), slices.DeleteFunc(slices.Clone(d.external), isAllow),
	}
}

// portSets join rules that differ in their ports only: a Service may have thousands of ports, and each list has rules
// about it.
type portSets map[portSetKey][]Rule

type portSetKey struct {
	action Action
	origin string
}

func (s portSets) add(r Rule) {
	k := portSetKey{r.Action, r.Origin}
	// Frontends with the same addresses follow each other.
	if last := len(s[k]) - 1; last >= 0 && slices.Equal(s[k][last].Remotes, r.Remotes) {
		s[k][last].Ports = append(s[k][last].Ports, r.Ports...)
		return
	}
	s[k] = append(s[k], r)
}

// rules returns the joined rules, in an order that depends on them only.
func (s portSets) rules() []Rule {
	var all []Rule
	order := func(a, b portSetKey) int {
		return cmp.Or(cmp.Compare(a.action, b.action), cmp.Compare(a.origin, b.origin))
	}
	for _, k := range slices.SortedFunc(maps.Keys(s), order) {
		all = append(all, s[k]...)
	}
	for n := range all {
		all[n].Ports = mergePorts(all[n].Ports)
	}
	return all
}
