package policy

import (
	"fmt"
	"slices"
	"testing"
)

// budgetLab is an engine whose namespace a has pods with rules of their own: as many as have room on the node, and two
// more.
type budgetLab struct {
	*testing.T
	*Engine
	pods []ID
}

// sizeOf is the number of rules of pod n.
func sizeOf(n int) int { return (100 + n) * 100 }

func newBudgetLab(t *testing.T) *budgetLab {
	t.Helper()
	l := &budgetLab{T: t, Engine: NewEngine(Config{})}
	sum := 0
	beyond := 0
	for n := 0; beyond < 2; n++ {
		if sum += sizeOf(n); sum > DefaultLimits.Node {
			beyond++
		}
		l.SetPolicy(networkPolicy(t, fmt.Sprintf("a/n%02d", n),
			bigSpec(fmt.Sprintf(`{matchLabels: {number: "%d"}}`, n), sizeOf(n)/100, 100)))
		l.pods = append(l.pods, l.add(fmt.Sprintf("p%02d", n), n))
	}
	l.SetPod(podAt("b/p", true, "10.1.0.1"))
	l.SetPolicy(bigPolicy(t, "b/n", 100, 100))
	l.Compile()
	return l
}

// add makes a pod that policy n selects.
func (l *budgetLab) add(name string, n int) ID {
	l.SetPod(podAt("a/"+name, true, fmt.Sprintf("10.0.0.%d", n+1), fmt.Sprintf("number=%d", n)))
	return ID{"a", name}
}

// isIsolated reports whether a pod refuses what its policy permits.
func (l *budgetLab) isIsolated(id ID) bool {
	list := l.Lists()[id]["eth0"][Ingress]
	return list != nil && list.Decide(address("198.18.0.0"), TCP, 1000).Action == Deny
}

// mustIsolate compiles, and checks that exactly these pods are isolated.
func (l *budgetLab) mustIsolate(when string, want ...ID) {
	l.Helper()
	l.Compile()
	var got []ID
	for _, id := range append(l.pods, ID{"b", "p"}) {
		if l.isIsolated(id) {
			got = append(got, id)
		}
	}
	if !slices.Equal(got, want) {
		l.Errorf("%s: isolated are %v, want %v", when, got, want)
	}
}

// Each pod of a namespace may have other rules. All of them together are bounded, so that a namespace does not exhaust
// the dataplane: further pods are isolated, until others give their rules back. Pods with the same rules share them,
// and other namespaces are as before.
func TestRulesOfANamespaceOnANodeAreBounded(t *testing.T) {
	l := newBudgetLab(t)
	last := len(l.pods) - 1
	l.mustIsolate("at first", l.pods[last-1], l.pods[last])
	for _, n := range []int{last - 1, last} {
		x := l.ExcessOf(l.pods[n])
		if len(x) != 1 || x[0].Size != sizeOf(n) || x[0].Limit != DefaultLimits.Node {
			t.Errorf("excess of %s: %+v", l.pods[n], x)
		}
	}
	same := l.add("same", 0)
	l.Compile()
	if l.isIsolated(same) {
		t.Error("a pod with the rules of another one is isolated")
	}
	l.DeletePod(l.pods[1])
	l.mustIsolate("a pod has given its rules back", l.pods[last])
	l.DeletePolicy(Ref{Network, "a", "n02"})
	l.DeletePolicy(Ref{Network, "a", "n03"})
	l.mustIsolate("policies have given their rules back")
	if x := l.Excess(); len(x) != 0 {
		t.Errorf("excess %v", x)
	}
	for n := range l.pods {
		l.DeletePolicy(Ref{Network, "a", fmt.Sprintf("n%02d", n)})
	}
	l.mustIsolate("without policies")
	if len(l.budget.own) != 1 || l.budget.own["b"] != sizeOf(0) {
		t.Errorf("rules in use: %v", l.budget.own)
	}
}
