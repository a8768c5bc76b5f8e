package policies

import (
	"cmp"
	"maps"
	"slices"

	"github.com/weftnet/weft/policy"
)

// maxChangedRules is the number of rules of the dataplane that one event applies, unless one pod has more. An ADD waits
// for the event.
const maxChangedRules = 40_000

// maxLeftOut is how many events may leave out a pod, because other pods have fewer rules. Then its turn comes. Without
// it the dataplane would not get the new rules of a pod while a user changes the rules of many other pods again and
// again.
const maxLeftOut = 3

// pending are pods with rules that no event has applied yet, and how many events have left them out.
type pending map[policy.ID]int

// add adds a pod. One that waits already does not lose its turn because its rules have changed again.
func (p pending) add(id policy.ID) {
	if _, waits := p[id]; !waits {
		p[id] = 0
	}
}

// take removes the pods for the next event, by the numbers of their rules. Those with few rules come first. If pods
// were left out too often, half of the event is for these, and at least one of them: neither many large ones nor many
// small ones keep out the rest.
func (p pending) take(sizes map[policy.ID]int) []policy.ID {
	overdue := slices.Collect(maps.Keys(sizes))
	overdue = slices.DeleteFunc(overdue, func(id policy.ID) bool { return p[id] < maxLeftOut })
	slices.SortFunc(overdue, func(a, b policy.ID) int {
		return cmp.Or(cmp.Compare(p[b], p[a]), cmp.Compare(sizes[a], sizes[b]), cmp.Compare(a.String(), b.String()))
	})
	limit := maxChangedRules
	least := 1
	var taken []policy.ID
	if len(overdue) > 0 {
		limit /= 2
		taken = p.takeUpTo(limit, least, overdue, sizes)
		least = 0
	}
	fresh := slices.SortedFunc(maps.Keys(p), func(a, b policy.ID) int {
		return cmp.Or(cmp.Compare(sizes[a], sizes[b]), cmp.Compare(a.String(), b.String()))
	})
	taken = append(taken, p.takeUpTo(limit, least, fresh, sizes)...)
	for id := range p {
		p[id]++
	}
	return taken
}

// takeUpTo removes the first pods that have no more rules than the limit together, and at least so many.
func (p pending) takeUpTo(limit, least int, order []policy.ID, sizes map[policy.ID]int) []policy.ID {
	sum := 0
	for n, id := range order {
		if sum += sizes[id]; sum > limit && n >= least {
			return order[:n]
		}
		delete(p, id)
	}
	return order
}
