package policies

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weftnet/weft/policy"
)

// rounds returns how many events a pod waits for while all other pods change again as soon as an event has applied
// their rules.
func rounds(t *testing.T, p pending, sizes map[policy.ID]int, victim policy.ID) int {
	t.Helper()
	for n := 1; n <= 1000; n++ {
		for id := range sizes {
			p.add(id)
		}
		taken := p.take(sizes)
		sum := 0
		largest := 0
		for _, id := range taken {
			sum += sizes[id]
			largest = max(largest, sizes[id])
		}
		if len(taken) == 0 || sum > maxChangedRules && sum-largest > maxChangedRules/2 {
			t.Fatalf("an event with %d pods and %d rules, of one pod %d", len(taken), sum, largest)
		}
		if slices.Contains(taken, victim) {
			return n
		}
	}
	return 1001
}

func TestPodsThatChangeAgainAndAgainDoNotKeepOutTheRulesOfOthers(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	d := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		sizes := make(map[policy.ID]int)
		for n := range 1 + d.IntN(60) {
			sizes[policy.ID{Namespace: "evil", Name: fmt.Sprint(n)}] = d.IntN(maxChangedRules * 2)
		}
		victim := policy.ID{Namespace: "shop", Name: "db"}
		sizes[victim] = d.IntN(maxChangedRules * 2)
		// Each event takes at least the pod that has waited longest, if one was left out maxLeftOut times.
		most := maxLeftOut + len(sizes) + 1
		p := make(pending)
		for step := range 3 {
			if n := rounds(t, p, sizes, victim); n > most {
				t.Fatalf("step %d: a pod with %d rules waited for %d events, with %d pods: %v", step, sizes[victim], n,
					len(sizes), sizes)
			}
		}
	}
}

func TestPodsWithFewRulesComeFirst(t *testing.T) {
	p := make(pending)
	sizes := map[policy.ID]int{
		{Name: "large"}:  maxChangedRules + 1,
		{Name: "middle"}: maxChangedRules - 10,
		{Name: "small"}:  10,
		{Name: "tiny"}:   1,
	}
	for id := range sizes {
		p.add(id)
	}
	for _, want := range []string{"[/tiny /small]", "[/middle]", "[/large]", "[]"} {
		if got := fmt.Sprint(p.take(sizes)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		for id := range sizes {
			if _, waits := p[id]; !waits {
				delete(sizes, id)
			}
		}
	}
	if len(p) != 0 {
		t.Errorf("%v wait", p)
	}
}

// Pods with very many rules that change at each event do not keep out one with few, neither when they are overdue.
func TestLargePodsDoNotKeepOutSmallOnes(t *testing.T) {
	for _, size := range []int{maxChangedRules / 2, maxChangedRules * 3 / 4, maxChangedRules * 2} {
		sizes := make(map[policy.ID]int)
		p := make(pending)
		for n := range 200 {
			sizes[policy.ID{Namespace: "evil", Name: fmt.Sprint(n)}] = size
		}
		for range 20 {
			for id := range sizes {
				p.add(id)
			}
			p.take(sizes)
		}
		small := policy.ID{Namespace: "shop", Name: "db"}
		sizes[small] = 5
		if n := rounds(t, p, sizes, small); n != 1 {
			t.Errorf("beside pods with %d rules a pod with 5 waits for %d events", size, n)
		}
	}
}
