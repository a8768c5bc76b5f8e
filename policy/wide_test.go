package policy

import (
	"fmt"
	"strings"
	"testing"
)

// wideLab is an engine with many pods of namespace shop, one of them local and policed, and one local pod of namespace
// evil.
func wideLab(t *testing.T, pods int) *Engine {
	e := victim(t)
	e.SetPod(podAt("evil/p", true, "10.66.0.1", "app=p"))
	for n := range pods {
		e.SetPod(podAt(fmt.Sprintf("shop/p%d", n), false, fmt.Sprintf("10.7.%d.%d", n/250, n%250), "app=x"))
	}
	e.Compile()
	return e
}

// widePolicy isolates pods of namespace evil, and allows from pods of all namespaces by selectors that no other policy
// has.
func widePolicy(t *testing.T, name, subject string, selectors int) Policy {
	var peers []string
	for n := range selectors {
		peers = append(peers,
			fmt.Sprintf(
				"{namespaceSelector: {}, podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [%s-%d]}]}}",
				name, n))
	}
	return networkPolicy(t, "evil/"+name,
		fmt.Sprintf("{podSelector: {matchLabels: {app: %s}}, policyTypes: [Ingress], ingress: [{from: [%s]}]}",
			subject, strings.Join(peers, ", ")))
}

// memberships counts the pods that the engine has noted as selected.
func (e *Engine) memberships() (n int) {
	for _, g := range e.membership.groups {
		n += len(g.members)
	}
	return n
}

// A user of a namespace writes thousands of small policies. Each selector of their peers is compared with all pods of
// the cluster, and selects each of them. The memory and time for them are bounded, whether they select a pod or not,
// and a pod of another namespace is compiled without them.
func TestThousandsOfSmallPoliciesOfANamespaceAreBounded(t *testing.T) {
	const (
		policies = 5000
		pods     = 100
	)
	for subject, over := range map[string]int{"none": 0, "p": policies - DefaultLimits.Selectors/2} {
		e := wideLab(t, pods)
		before := e.memberships()
		for n := range policies {
			e.SetPolicy(widePolicy(t, fmt.Sprintf("n%04d", n), subject, 2))
		}
		if grown := e.memberships() - before; grown > (DefaultLimits.Selectors+1)*(pods+10) {
			t.Errorf("subject %s: %d memberships of %d pods", subject, grown, pods)
		}
		work := e.work
		e.SetPod(podAt("shop/late", true, "10.0.0.77"))
		e.CompilePod(ID{"shop", "late"})
		now := e.work
		if n := now.Matches - work.Matches; n > DefaultLimits.Selectors+10 {
			t.Errorf("subject %s: a new pod is compared with %d selectors", subject, n)
		}
		if compiled, resolved := now.Interfaces-work.Interfaces, now.Fragments-work.Fragments; compiled != 1 ||
			resolved > 2 {
			t.Errorf("subject %s: for a pod of another namespace %d interfaces and %d policies were compiled", subject,
				compiled, resolved)
		}
		e.mustAgree(t, "subject "+subject)
		if x := e.ExcessOf(ID{"evil", "p"}); len(x) != over {
			t.Errorf("subject %s: %d policies are over a limit, want %d", subject, len(x), over)
		}
	}
}

// Which policies of a namespace are left out depends on the policies, not on their order, and ends with the excess.
func TestPoliciesWithTooManySelectorsTogetherAreLeftOut(t *testing.T) {
	limits := DefaultLimits
	limits.Selectors = 10
	sizes := map[string]int{"a": 3, "b": 3, "c": 4, "d": 5, "e": 20}
	decided := func(e *Engine) map[string]bool { // whether a policy is left out
		e.CompilePod(ID{"evil", "p"})
		is := make(map[string]bool)
		for _, x := range e.ExcessOf(ID{"evil", "p"}) {
			is[strings.TrimPrefix(x.Of, "NetworkPolicy evil/")] = true
			if x.Unit != unitSelectors || x.Limit != 10 {
				t.Errorf("excess %+v", x)
			}
		}
		return is
	}
	for _, order := range []string{"abcde", "edcba", "cedab"} {
		e := NewEngine(Config{Limits: limits})
		e.SetPod(podAt("evil/p", true, "10.66.0.1", "app=p"))
		e.SetPod(podAt("shop/web", false, "10.0.0.2", "app=web"))
		for _, name := range order {
			e.SetPolicy(widePolicy(t, string(name), "p", sizes[string(name)]))
		}
		if got := fmt.Sprint(decided(e)); got != "map[d:true e:true]" {
			t.Errorf("order %s: left out are %s", order, got)
		}
		e.DeletePolicy(Ref{Network, "evil", "c"})
		if got := fmt.Sprint(decided(e)); got != "map[d:true e:true]" {
			t.Errorf("order %s, without c: left out are %s", order, got)
		}
		e.SetPolicy(widePolicy(t, "b", "p", 1))
		if got := fmt.Sprint(decided(e)); got != "map[e:true]" {
			t.Errorf("order %s, with a smaller b: left out are %s", order, got)
		}
		e.SetPolicy(widePolicy(t, "c", "p", sizes["c"]))
		if got := fmt.Sprint(decided(e)); got != "map[d:true e:true]" {
			t.Errorf("order %s, with c again: left out are %s", order, got)
		}
		e.DeletePolicy(Ref{Network, "evil", "c"})
		if got := fmt.Sprint(decided(e)); got != "map[e:true]" {
			t.Errorf("order %s, without c again: left out are %s", order, got)
		}
		for _, name := range "abde" {
			e.DeletePolicy(Ref{Network, "evil", string(name)})
		}
		n := len(e.policies.wide.namespaces) + e.memberships() + len(decided(e))
		if n != 0 || len(e.membership.groups) != 0 {
			t.Errorf("order %s: %d groups are left without policies", order, len(e.membership.groups))
		}
	}
}
