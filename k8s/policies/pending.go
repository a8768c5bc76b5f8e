package policies

import (
	"cmp"
	"maps"
	"slices"

	"github.com/weftnet/weft/policy"
)

// maxChangedRules is the number of rules of the dataplane that one event applies, unless one pod has more: an ADD waits for the event.
const maxChangedRules = 40_000

// maxLeftOut is how many events prefer pods with fewer rules to a pod. After that it comes before them: else who changes the rules of many pods
// again and again would keep the new rules of others from the dataplane.
const maxLeftOut = 3

// pending are pods with rules that no event has applied yet, and how many events have left them out.
type pending map[policy.ID]int

// add adds a pod. One that waits already does not lose its turn because its rules have changed again.
func (p pending) add(id policy.ID) {
	if _, waits := p[id]; !waits {
		p[id] = 0
	}
}

// take removes the pods for the next event, by the numbers of their rules. Those with few rules come first.
func (p pending) take(sizes map[policy.ID]int) []policy.ID {
	overdue := func(id policy.ID) int { return max(0, p[id]-maxLeftOut+1) }
	order := slices.SortedFunc(maps.Keys(sizes), func(a, b policy.ID) int {
		return cmp.Or(cmp.Compare(overdue(b), overdue(a)), cmp.Compare(sizes[a], sizes[b]), cmp.Compare(a.String(), b.String()))
	})
	sum := 0
	fits := func(id policy.ID) bool {
		sum += sizes[id]
		return sum <= maxChangedRules
	}
	n := 0
	for n < len(order) && (fits(order[n]) || n == 0) {
		delete(p, order[n])
		n++
	}
	for _, id := range order[n:] {
		p[id]++
	}
	return order[:n]
}
