package policy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// widePorts is a policy with 50 rules for pods of all namespaces, of 9 named ports each, and with a block of addresses.
func widePorts(t *testing.T) Policy {
	var rules []string
	for n := range 50 {
		var ports []string
		for k := range 9 {
			ports = append(ports, fmt.Sprintf("{port: p%d-%d}", n, k))
		}
		rules = append(rules,
			fmt.Sprintf("{to: [{namespaceSelector: {}}], ports: [{port: 80}, %s]}", strings.Join(ports, ", ")))
	}
	return networkPolicy(t, "a/out",
		fmt.Sprintf("{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 192.0.2.0/24}}]}, %s]}",
			strings.Join(rules, ", ")))
}

// Pods of a tenant use up the effort for a policy. Its permissions for addresses and for pods of its own and of other
// namespaces remain; those for the tenant are left out and named. A smaller policy still reads the tenant's pods.
func TestPodsOfATenantDoNotUseUpTheEffortForAPolicy(t *testing.T) {
	e := NewEngine(Config{})
	e.SetPod(podAt("a/p", true, "10.0.9.1"))
	setPods(e, "a", 10)
	setPods(e, "b", 20)
	e.SetPolicy(widePorts(t))
	e.SetPolicy(networkPolicy(t, "a/small",
		`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {}}], ports: [{port: 90}]}]}`))
	decide := func(when string, want map[contact]Action) Rule {
		e.Compile()
		e.mustTally(t)
		var last Rule
		for c, action := range want {
			last = e.Lists()[ID{"a", "p"}]["eth0"][Egress].Decide(address(c.remote), TCP, c.port)
			if last.Action != action {
				t.Errorf("%s: %s port %d: %v (%s), want %v", when, c.remote, c.port, last.Action, last.Origin, action)
			}
		}
		return last
	}
	others := map[contact]Action{
		{"192.0.2.9", 443}: Allow, {addressAt(0, 9), 80}: Allow, {addressAt(1, 19), 80}: Allow,
		{addressAt(1, 19), 90}: Allow, {addressAt(2, 0), 90}: Allow,
		{"198.51.100.1", 80}: Deny,
	}
	tenant := func(a Action) map[contact]Action { return map[contact]Action{{addressAt(2, 0), 80}: a} }
	setPods(e, "tenant", 400)
	decide("with few pods", others)
	decide("with few pods", tenant(Allow))
	if x := e.Excess(); len(x) != 0 {
		t.Errorf("excess of few pods: %v", x)
	}
	setPods(e, "tenant", 500)
	decide("with many pods", others)
	why := decide("with many pods", tenant(Deny)).Origin
	if !strings.Contains(why, "NetworkPolicy a/out (not for pods of tenant: over the limit of addresses)") {
		t.Errorf("the decision says %q", why)
	}
	x := e.Excess()
	const says = "NetworkPolicy a/out: it permits nothing to or from pods of tenant, because it needs 250500 addresses of peers, and there are at most "
	if len(x) != 1 || !strings.HasPrefix(x[0].String(), says) {
		t.Errorf("excess %v, want %s", x, says)
	}
	setPods(e, "other", 500)
	decide("with two tenants", others)
	deletePods(e, "other", 0, 500)
	deletePods(e, "tenant", 400, 500)
	decide("with few pods again", tenant(Allow))
	if x := e.Excess(); len(x) != 0 {
		t.Errorf("excess of few pods again: %v", x)
	}
}

// Rules that are made because of the effort are within the limit of rules, too, and a namespace may be above both
// shares.
func TestDividedEffortIsWithinTheLimitOfRules(t *testing.T) {
	limits := DefaultLimits
	limits.Own = 80
	limits.Effort = 700
	e := NewEngine(Config{Limits: limits})
	e.SetPod(podAt("a/p", true, "10.0.9.1"))
	setPods(e, "b", 10)
	setPods(e, "other", 50)
	setPods(e, "tenant", 500)
	for n := range 2 {
		e.SetPolicy(networkPolicy(t, fmt.Sprint("a/n", n),
			fmt.Sprintf(
				`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {}}], ports: [{port: %d}]}]}`,
				80+2*n)))
	}
	e.Compile()
	l := e.Lists()[ID{"a", "p"}]["eth0"][Egress]
	for to, want := range map[string]Action{addressAt(1, 9): Allow, addressAt(3, 0): Deny, addressAt(2, 0): Deny} {
		if r := l.Decide(address(to), TCP, 80); r.Action != want {
			t.Errorf("to %s: %+v", to, r)
		}
	}
	if why := l.Decide(address(addressAt(2, 0)), TCP, 80).Origin; !strings.Contains(why,
		"tenant: over the limit of addresses) (not for pods of other: over the limit of rules)") {
		t.Errorf("the decision says %q", why)
	}
	if n := l.Size(false); n > limits.Own+2 {
		t.Errorf("%d rules", n)
	}
}

// Many namespaces of tenants are above their shares. Explanations name few of them.
func TestExplanationsNameFewNamespaces(t *testing.T) {
	limits := DefaultLimits
	limits.Effort = 1000
	e := NewEngine(Config{Limits: limits})
	e.SetPod(podAt("a/p", true, "10.0.9.1"))
	for n := range 500 {
		for k := range 3 {
			e.SetPod(podAt(fmt.Sprintf("tenant%03d/p%d", n, k), false,
				fmt.Sprintf("10.%d.%d.%d", 1+k, n/100, 2*(n%100))))
		}
	}
	e.SetPolicy(networkPolicy(t, "a/n",
		`{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{namespaceSelector: {}}]}]}`))
	e.Compile()
	why := e.Lists()[ID{"a", "p"}]["eth0"][Ingress].Decide(address("10.1.0.0"), TCP, 80).Origin
	if x := e.Excess(); len(x) != 1 || len(x[0].String()) > 400 || len(why) > 400 ||
		!strings.Contains(x[0].String(), "tenant007 and others,") {
		t.Errorf("excess %v, the decision says %s", x, why)
	}
}

// Only ingress policies read the client addresses of pods. The effort is the same whether they were known before the
// policy or not.
func TestEffortDoesNotDependOnTheOrderOfClients(t *testing.T) {
	ranges, err := NewClientRanges([]netip.Prefix{netip.MustParsePrefix("10.245.0.0/16")})
	if err != nil {
		t.Fatal(err)
	}
	clients, why := NewClientMap(ranges,
		[]netip.Prefix{netip.MustParsePrefix("10.244.0.0/24"), netip.MustParsePrefix("10.244.2.0/24")}, nil)
	if len(why) > 0 {
		t.Fatal(why)
	}
	limits := DefaultLimits
	limits.Effort = 10
	for direction, want := range map[Direction]Action{Ingress: Deny, Egress: Allow} {
		peers := []string{"from", "to"}[direction]
		var blocks []string
		for n := range 5 {
			blocks = append(blocks, fmt.Sprintf("{ipBlock: {cidr: 192.0.%d.0/24}}", 2*n))
		}
		p := networkPolicy(t, "a/n",
			fmt.Sprintf("{podSelector: {}, policyTypes: [Ingress, Egress], %s: [{%s: [%s]}]}", direction, peers,
				strings.Join(blocks, ", ")))
		for _, isKnown := range []bool{false, true} {
			e := NewEngine(Config{Limits: limits})
			e.SetPod(podAt("a/p", true, "10.0.9.1"))
			if isKnown {
				e.SetClients(clients)
			}
			e.SetPolicy(p)
			e.Compile()
			e.SetClients(clients)
			e.SetPod(podAt("a/p", true, "10.0.9.2")) // compiled again
			e.Compile()
			if r := e.Lists()[ID{"a", "p"}]["eth0"][direction].Decide(address("192.0.2.1"), TCP, 80); r.Action != want {
				t.Errorf("%s, clients known %t: %+v", direction, isKnown, r)
			}
		}
	}
}
