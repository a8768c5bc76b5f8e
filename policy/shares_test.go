package policy

import (
	"fmt"
	"strings"
	"testing"
)

// sharedPolicies are two policies of namespace a: both directions, named ports, addresses, pods of the own namespace
// and of all others.
var sharedPolicies = map[string]string{
	"a/in": `{podSelector: {}, policyTypes: [Ingress], ingress: [
		{from: [{namespaceSelector: {}}], ports: [{port: 80}, {port: web}]},
		{from: [{ipBlock: {cidr: 192.0.2.0/24}}]}]}`,
	"a/out": `{podSelector: {}, policyTypes: [Egress], egress: [
		{to: [{namespaceSelector: {}}], ports: [{port: web}, {port: 80}]},
		{to: [{podSelector: {}}]},
		{to: [{ipBlock: {cidr: 192.0.2.0/24}}]}]}`,
}

// addressAt returns an address that has no neighbour, so each needs a rule of its own.
func addressAt(namespace, n int) string {
	return fmt.Sprintf("10.%d.%d.%d", namespace, n/100, 2*(n%100))
}

// namespaceNumbers are part of the addresses of pods.
var namespaceNumbers = map[string]int{"a": 0, "b": 1, "tenant": 2, "other": 3}

// setPods gives a namespace n pods.
func setPods(e *Engine, namespace string, n int) {
	for k := range n {
		p := podAt(fmt.Sprintf("%s/p%d", namespace, k), false, addressAt(namespaceNumbers[namespace], k))
		p.Ports = []NamedPort{{"web", TCP, 8080}}
		e.SetPod(p)
	}
}

// deletePods deletes the pods of a namespace after the first n.
func deletePods(e *Engine, namespace string, n, of int) {
	for k := n; k < of; k++ {
		e.DeletePod(ID{namespace, fmt.Sprint("p", k)})
	}
}

type contact struct {
	remote string
	port   uint16
}

// mustDecide compares what the lists of pod a/p say with the wanted actions.
func mustDecide(t *testing.T, when string, e *Engine, want map[contact]Action) {
	t.Helper()
	e.Compile()
	lists := e.Lists()[ID{"a", "p"}]["eth0"]
	for c, action := range want {
		for _, d := range []Direction{Ingress, Egress} {
			if r := lists[d].Decide(address(c.remote), TCP, c.port); r.Action != action {
				t.Errorf("%s: %s of %s port %d: %v (%s), want %v", when, d, c.remote, c.port, r.Action, r.Origin,
					action)
			}
		}
	}
}

// newSharedScene returns an engine with a limit of 400 rules, pods of the namespaces a and b, and policies of a that
// permit all pods.
func newSharedScene(t *testing.T) *Engine {
	t.Helper()
	limits := DefaultLimits
	limits.Own = 400
	e := NewEngine(Config{Limits: limits})
	p := podAt("a/p", true, "10.0.9.1")
	p.Ports = []NamedPort{{"web", TCP, 8080}}
	e.SetPod(p)
	setPods(e, "a", 10)
	setPods(e, "b", 20)
	for name, spec := range sharedPolicies {
		e.SetPolicy(networkPolicy(t, name, spec))
	}
	return e
}

// permitted are contacts that the policies decide without pods of tenants.
var permitted = map[contact]Action{
	{addressAt(0, 9), 80}: Allow, {addressAt(0, 9), 8080}: Allow,
	{addressAt(1, 19), 80}: Allow, {addressAt(1, 19), 8080}: Allow, {addressAt(1, 19), 81}: Deny,
	{"192.0.2.9", 81}: Allow, {"198.51.100.1", 80}: Deny,
}

// Of 114 rules the namespace's own pods and addresses need 23 for ingress and 34 for egress. The pods of b need 40, as
// much as the smaller share.
func TestTheOwnNamespaceHasNoShareAmongTheOthers(t *testing.T) {
	e := newSharedScene(t)
	limits := DefaultLimits
	limits.Own = 114
	e.SetConfig(Config{Limits: limits})
	setPods(e, "tenant", 500)
	mustDecide(t, "with a share of 40", e, permitted)
	limits.Own = 113
	e.SetConfig(Config{Limits: limits})
	e.Compile()
	if a := e.Lists()[ID{"a", "p"}]["eth0"][Egress].Decide(address(addressAt(1, 19)), TCP, 80).Action; a != Deny {
		t.Error("40 rules fit into a share of 39")
	}
}

// The rule permits port 80 of any address, and the named port of pods. Only the latter depends on namespaces.
func TestRulesForAnyAddressDependOnPodsByNamedPortsOnly(t *testing.T) {
	e := newSharedScene(t)
	e.DeletePolicy(Ref{Network, "a", "out"})
	e.SetPolicy(networkPolicy(t, "a/any",
		`{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 80}, {port: web}]}]}`))
	setPods(e, "tenant", 500)
	e.Compile()
	egress := e.Lists()[ID{"a", "p"}]["eth0"][Egress]
	for c, want := range map[contact]Action{
		{addressAt(1, 19), 8080}: Allow, {addressAt(2, 0), 80}: Allow, {addressAt(2, 0), 8080}: Deny,
		{"198.51.100.1", 80}: Allow,
	} {
		if r := egress.Decide(address(c.remote), TCP, c.port); r.Action != want {
			t.Errorf("%s port %d: %v (%s), want %v", c.remote, c.port, r.Action, r.Origin, want)
		}
	}
	size := 0
	for _, r := range egress.Rules {
		if r.Action == Allow {
			size += r.Size(false)
		}
	}
	if size != 2+11+20 { // any address of two families, pods of a, pods of b
		t.Errorf("%d rules, want 33", size)
	}
}

// withTenant are contacts of a tenant's pod.
func withTenant(n int, a Action) map[contact]Action {
	return map[contact]Action{{addressAt(2, n), 80}: a, {addressAt(2, n), 8080}: a, {addressAt(2, n), 81}: Deny}
}

// Policies select the pods of all namespaces, and a tenant has so many pods that a policy exceeds its limit. The peers
// of other namespaces stay permitted.
func TestPeersOfOtherNamespacesHaveFairShares(t *testing.T) {
	e := newSharedScene(t)
	mustDecide(t, "without the tenant", e, permitted)

	setPods(e, "tenant", 30)
	mustDecide(t, "with few pods", e, permitted)
	mustDecide(t, "with few pods", e, withTenant(29, Allow))
	if x := e.Excess(); len(x) != 0 {
		t.Errorf("excess of few pods: %v", x)
	}

	setPods(e, "tenant", 500)
	mustDecide(t, "with many pods", e, permitted)
	mustDecide(t, "with many pods", e, withTenant(29, Deny))
	setPods(e, "other", 500)
	mustDecide(t, "with two tenants", e, permitted)
	setPods(e, "b", 25)
	mustDecide(t, "with more peers of another namespace", e, map[contact]Action{
		{addressAt(1, 24), 80}: Allow,
		{addressAt(1, 24), 81}: Deny,
	})
	e.SetPolicy(bigPolicy(t, "a/large", 300, 300))
	mustDecide(t, "beside a policy that does not fit", e, permitted)
	e.DeletePolicy(Ref{Network, "a", "large"})

	deletePods(e, "other", 0, 500)
	deletePods(e, "tenant", 30, 500)
	mustDecide(t, "with few pods again", e, permitted)
	mustDecide(t, "with few pods again", e, withTenant(29, Allow))
	if x := e.Excess(); len(x) != 0 {
		t.Errorf("excess of few pods again: %v", x)
	}
}

func TestNamespacesAboveTheirShareAreNamed(t *testing.T) {
	e := newSharedScene(t)
	setPods(e, "tenant", 500)
	e.Compile()
	x := e.Excess()
	if len(x) != 2 || x[0].Of != "NetworkPolicy a/in" || x[1].Of != "NetworkPolicy a/out" {
		t.Fatalf("excess %v", x)
	}
	const says = "NetworkPolicy a/in: it permits nothing to or from pods of tenant, because it needs 1000 rules in the dataplane for one of them, and there are at most "
	if got := x[0].String(); !strings.HasPrefix(got, says) {
		t.Errorf("says %q, want %q ...", got, says)
	}
	why := e.Lists()[ID{"a", "p"}]["eth0"][Ingress].Decide(address(addressAt(2, 0)), TCP, 80).Origin
	if !strings.Contains(why, "NetworkPolicy a/in (not for pods of tenant: over the limit of rules)") {
		t.Errorf("the decision says %q", why)
	}
}

// The lists that are made in portions stay within the limit, also where the limit is small for what the own namespace
// needs.
func TestSharedLimitsAreNotExceeded(t *testing.T) {
	for _, own := range []int{1, 10, 49, 50, 51, 200} {
		limits := DefaultLimits
		limits.Own = own
		e := NewEngine(Config{Limits: limits})
		for namespace, n := range namespaceNumbers {
			setPods(e, namespace, 10*(n+1))
		}
		e.SetPod(podAt("a/p", true, "10.0.9.1"))
		for name, spec := range sharedPolicies {
			e.SetPolicy(networkPolicy(t, name, spec))
		}
		e.SetPolicy(networkPolicy(t, "a/also",
			`{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{namespaceSelector: {}}], ports: [{port: 90}]}]}`))
		e.Compile()
		for d, l := range e.Lists()[ID{"a", "p"}]["eth0"] {
			size := 0
			for _, r := range l.Rules {
				if r.Action == Allow {
					size += r.Size(false)
				}
			}
			if size > own {
				t.Errorf("limit %d: direction %d has %d rules", own, d, size)
			}
		}
		if len(e.Excess()) == 0 {
			t.Errorf("limit %d: no policy is over it", own)
		}
	}
}
