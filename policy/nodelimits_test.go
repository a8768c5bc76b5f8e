package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestHalvings(t *testing.T) {
	of := func(demands ...int) (claims []claim) {
		for _, d := range demands {
			claims = append(claims, claim{[]int{d}, 10})
		}
		return claims
	}
	for _, c := range []struct {
		claims []claim
		total  int
		want   uint
	}{
		{nil, 0, 0},
		{of(10, 10), 20, 0},
		{of(10, 11), 20, 0}, // what exceeds the limit counts as the limit
		{of(10, 10), 19, 1},
		{of(10, 10, 1, 1), 12, 1},
		{of(10, 10, 1, 1), 11, 2},
		{of(10, 10), 0, 4},
		{append(of(10), claim{[]int{10}, 100}), 19, 1},
		{append(of(10), claim{[]int{60}, 100}), 0, 7},
		{[]claim{{[]int{10, 3}, 10}}, 4, 1}, // with half of the limit less is needed
		{[]claim{{[]int{10, 3}, 10}}, 2, 2},
	} {
		if got := halvings(c.claims, c.total); got != c.want {
			t.Errorf("%v, together %d: %d halvings, want %d", c.claims, c.total, got, c.want)
		}
	}
}

// portsService is a Service with a cluster IP and ports that no range joins.
func portsService(name string, ip, endpoint string, ports int) Service {
	s := Service{Name: name}
	addresses := []netip.Addr{address(ip)}
	for n := range ports {
		port := uint16(1000 + 2*n)
		s.Frontends = append(s.Frontends, Frontend{
			Addresses: addresses,
			Protocol:  TCP,
			Port:      port,
			Backends:  []Backends{{[]netip.Addr{address(endpoint)}, port}},
		})
	}
	return s
}

// clientsOf is an engine with pods that each have a policy of their own: they may send to 10.0.0.200 only.
func clientsOf(t *testing.T, n int) *Engine {
	e := NewEngine(Config{})
	for i := range n {
		e.SetPod(podAt(fmt.Sprintf("shop/c%03d", i), true, fmt.Sprintf("10.0.1.%d", i), fmt.Sprintf("app=c%d", i)))
		e.SetPolicy(networkPolicy(t, fmt.Sprintf("shop/c%03d", i),
			fmt.Sprintf(
				`{podSelector: {matchLabels: {app: c%d}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.0.0.200/32}}]}]}`,
				i)))
	}
	e.Compile()
	return e
}

// sizeOfLists is the number of rules of the dataplane in all lists of main interfaces for what pods send.
func sizeOfLists(e *Engine) int {
	n := 0
	for _, of := range e.Lists() {
		n += of["eth0"][Egress].Size(false)
	}
	return n
}

// sendsTo reports how many pods may send to an address and port.
func sendsTo(e *Engine, ip string, port uint16) (n int) {
	for _, of := range e.Lists() {
		if r := of["eth0"][Egress].Decide(address(ip), TCP, port); r.Action == Allow {
			n++
		}
	}
	return n
}

// A Service with very many ports has rules in each list. All of them together are bounded, and Services with few are as
// before.
func TestRulesOfServicesInAllListsOfANodeAreBounded(t *testing.T) {
	const pods = 100
	e := clientsOf(t, pods)
	e.SetService(portsService("good/s", "10.96.0.1", "10.0.0.200", 3))
	e.SetService(portsService("evil/s", "10.96.0.2", "10.0.0.200", 5000))
	e.Compile()
	if n := sendsTo(e, "10.96.0.1", 1000); n != pods || len(e.budget.halved.services) != 0 {
		t.Errorf("%d pods reach the small Service, limits are halved: %v", n, e.budget.halved.services)
	}
	if n := sendsTo(e, "10.96.0.2", 1000); n != pods {
		t.Errorf("%d pods reach a large Service that fits", n)
	}
	e.SetService(portsService("evil/t", "10.96.0.3", "10.0.0.200", 2000))
	e.Compile()
	if size := sizeOfLists(e); size > DefaultLimits.AllServices+pods*10 {
		t.Errorf("%d rules in all lists", size)
	}
	for ip, want := range map[string]int{"10.96.0.1": pods, "10.96.0.2": 0, "10.96.0.3": pods} {
		if n := sendsTo(e, ip, 1000); n != want {
			t.Errorf("over the limit %d pods reach %s, want %d", n, ip, want)
		}
	}
	// With half of the limit the large Service is denied, and then all fits.
	if x := e.Excess(); len(x) != 1 || x[0].Of != "Service evil/s" || x[0].Limit >= DefaultLimits.Services ||
		x[0].Limit <= DefaultLimits.Services/4 {
		t.Errorf("excess %+v", x)
	}
	e.DeleteService("evil/t")
	e.Compile()
	if n := sendsTo(e, "10.96.0.2", 1000); n != pods || len(e.budget.halved.services) != 0 {
		t.Errorf("afterwards %d pods reach the large Service, limits are halved: %v", n, e.budget.halved.services)
	}
	for i := range pods {
		e.DeletePod(ID{"shop", fmt.Sprintf("c%03d", i)})
	}
	if e.Compile(); len(e.budget.demands) != 0 {
		t.Errorf("%d demands without pods", len(e.budget.demands))
	}
}

// Ports of a Service are one rule, so memory grows by their sum.
func TestPortsOfAServiceAreOneRule(t *testing.T) {
	e := clientsOf(t, 1)
	s := portsService("good/s", "10.96.0.1", "10.0.0.200", 1000)
	for n := range s.Frontends {
		if n%2 == 1 {
			s.Frontends[n].Backends[0].Addresses = []netip.Addr{address("10.0.0.201")}
		}
	}
	other := Frontend{
		Addresses: []netip.Addr{address("10.96.0.9")},
		Protocol:  TCP,
		Port:      5,
		Backends:  []Backends{{[]netip.Addr{address("10.0.0.200")}, 5}},
	}
	s.Frontends = append(s.Frontends, other)
	e.SetService(s)
	e.Compile()
	l := e.Lists()[ID{"shop", "c000"}]["eth0"][Egress]
	for at, want := range map[string]Action{"10.96.0.1": Deny, "10.96.0.9": Allow} {
		if r := l.Decide(address(at), TCP, 5); r.Action != want {
			t.Errorf("port 5 of %s: %+v", at, r)
		}
	}
	if len(l.Rules) > 10 || l.Size(false) < 500 {
		t.Errorf("%d rules with %d rules of the dataplane", len(l.Rules), l.Size(false))
	}
	for n := range 1000 {
		want := Allow
		if n%2 == 1 {
			want = Deny
		}
		if r := l.Decide(address("10.96.0.1"), TCP, uint16(1000+2*n)); r.Action != want {
			t.Fatalf("port %d: %+v", n, r)
		}
	}
}

// Namespaces share the rules of a node: who needs much gets less, who needs little is as before. What one releases the
// others get.
func TestRulesOfAllNamespacesOnANodeAreBounded(t *testing.T) {
	e := NewEngine(Config{})
	const pods = 15 // of 25,000 rules
	for ns := range 3 {
		for n := range pods {
			id := fmt.Sprintf("n%d/p%02d", ns, n)
			e.SetPod(podAt(id, true, fmt.Sprintf("10.0.%d.%d", ns, n), fmt.Sprintf("app=p%d", n)))
			e.SetPolicy(networkPolicy(t, id, bigSpec(fmt.Sprintf(`{matchLabels: {app: p%d}}`, n), 250, 100)))
		}
	}
	e.SetPod(podAt("small/p", true, "10.0.9.1"))
	e.SetPolicy(bigPolicy(t, "small/n", 100, 100))
	isOpen := func(id ID) bool {
		return e.Lists()[id]["eth0"][Ingress].Decide(address("198.18.0.0"), TCP, 1000).Action == Allow
	}
	want := func(when string, open ...int) {
		t.Helper()
		e.Compile()
		sum := 0
		for _, n := range e.budget.own {
			sum += n
		}
		if sum > DefaultLimits.AllNamespaces || !isOpen(ID{"small", "p"}) {
			t.Errorf("%s: %d rules, the small one is open: %t", when, sum, isOpen(ID{"small", "p"}))
		}
		for ns, want := range open {
			got := 0
			for n := range pods {
				if isOpen(ID{fmt.Sprintf("n%d", ns), fmt.Sprintf("p%02d", n)}) {
					got++
				}
			}
			if got != want {
				t.Errorf("%s: %d pods of n%d are open, want %d", when, got, ns, want)
			}
		}
	}
	want("three", 4, 4, 4) // at most a quarter of the limit for a namespace
	if n := e.work.Interfaces; n > 4*(3*pods+1) {
		t.Errorf("%d interfaces were compiled", n)
	}
	if x := e.ExcessOf(ID{"n0", "p00"}); len(x) != 1 || x[0].Limit != DefaultLimits.Node/4 {
		t.Errorf("excess %+v", x)
	}
	for n := range pods {
		e.DeletePod(ID{"n2", fmt.Sprintf("p%02d", n)})
	}
	for n := range pods - 8 {
		e.DeletePolicy(Ref{Network, "n1", fmt.Sprintf("p%02d", n)})
	}
	e.Compile()
	if e.budget.halved.own != 0 || !isOpen(ID{"n0", "p00"}) || !isOpen(ID{"n0", "p14"}) || len(e.Excess()) != 0 {
		t.Errorf("afterwards limits are halved %d times: %v", e.budget.halved.own, e.Excess())
	}
}

// What a pod lacked counts no longer when it is deleted, although no list ends then: starved pods have one list
// together.
func TestLimitsOfAFullNodeEndWithThePodsThatLackedRules(t *testing.T) {
	e := NewEngine(Config{
		Limits: Limits{
			Own:           100,
			Node:          100,
			AllNamespaces: 150,
			AllServices:   100,
			Services:      100,
			Closed:        10,
			ReadLimits: ReadLimits{
				Effort:           1000,
				Lookups:          1000,
				NamespaceLookups: 1000,
				Selectors:        10,
			},
		},
	})
	// One policy has another list for each pod, because of the named port.
	for ns, of := range map[string]struct {
		rules int
		pods  uint16
	}{"a": {40, 3}, "b": {30, 2}} {
		for n := range of.pods {
			p := podAt(fmt.Sprintf("%s/p%d", ns, n), true, fmt.Sprintf("10.0.%d.%d", of.rules, n))
			p.Ports = []NamedPort{{"http", TCP, 80 + n}}
			e.SetPod(p)
		}
		e.SetPolicy(networkPolicy(t, ns+"/http",
			strings.ReplaceAll(bigSpec("{}", of.rules, 1), "port: 1000", "port: http")))
	}
	e.Compile()
	starved := func() (all []string) {
		for _, ns := range e.cluster.namespaces {
			for _, p := range ns.pods {
				if len(p.starved) > 0 {
					all = append(all, p.ID.String())
				}
			}
		}
		return all
	}
	before := starved()
	if len(before) != 3 || e.budget.namespaceLimit() != 50 {
		t.Fatalf("%v have no rules with a limit of %d", before, e.budget.namespaceLimit())
	}
	i := slices.IndexFunc(before, func(id string) bool { return id[0] == 'a' })
	e.DeletePod(ID{"a", before[i][2:]})
	e.Compile()
	if after := starved(); len(after) != 0 || e.budget.namespaceLimit() != 100 {
		t.Errorf("%v have no rules with a limit of %d", after, e.budget.namespaceLimit())
	}
}

func TestTheLargerNumberOfRulesOfALackingListCounts(t *testing.T) {
	for _, numbers := range [][2]int{{2, 7}, {7, 2}} {
		all := make(lacking)
		for _, n := range numbers {
			all.add(lacking{"list": n})
		}
		if all["list"] != 7 {
			t.Errorf("%v count as %d", numbers, all["list"])
		}
	}
}

// Each limit of the node is divided for itself.
func TestRulesOfServicesTakeNothingFromPolicies(t *testing.T) {
	limits := DefaultLimits
	limits.Node = 100
	limits.Services = 40
	limits.AllServices = 50
	e := NewEngine(Config{Limits: limits})
	for n := range 2 {
		id := fmt.Sprintf("a/p%d", n)
		e.SetPod(podAt(id, true, fmt.Sprintf("10.0.1.%d", n), fmt.Sprintf("app=p%d", n)))
		e.SetPolicy(networkPolicy(t, id, bigSpec(fmt.Sprintf(`{matchLabels: {app: p%d}}`, n), 40, 1)))
		id = fmt.Sprintf("c/p%d", n)
		e.SetPod(podAt(id, true, fmt.Sprintf("10.0.2.%d", n), fmt.Sprintf("app=p%d", n)))
		e.SetPolicy(networkPolicy(t, id,
			fmt.Sprintf(
				`{podSelector: {matchLabels: {app: p%d}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.0.0.200/32}}]}]}`,
				n)))
	}
	e.SetService(portsService("c/s", "10.96.0.1", "10.0.0.200", 30))
	e.Compile()
	if e.budget.servicesLimit("c") != 20 || e.budget.namespaceLimit() != 100 {
		t.Errorf("limits of %d rules of Services and %d of policies", e.budget.servicesLimit("c"),
			e.budget.namespaceLimit())
	}
	for n := range 2 {
		if r := e.Lists()[ID{"a", fmt.Sprintf("p%d", n)}]["eth0"][Ingress].Decide(address("198.18.0.0"), TCP,
			1000); r.Action != Allow {
			t.Errorf("p%d: %+v", n, r)
		}
	}
}

// deniers are pods with a policy of their own each, which may send to 10.96.0.0/16, and a Service at 40 of its
// addresses that is over a limit.
func deniers(t *testing.T, pods int, limits Limits) *Engine {
	e := NewEngine(Config{Limits: limits})
	for n := range pods {
		id := fmt.Sprintf("shop/c%d", n)
		e.SetPod(podAt(id, true, fmt.Sprintf("10.0.1.%d", n), fmt.Sprintf("app=c%d", n)))
		e.SetPolicy(networkPolicy(t, id,
			fmt.Sprintf(
				`{podSelector: {matchLabels: {app: c%d}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.96.0.0/16}}]}]}`,
				n)))
	}
	s := Service{Name: "evil/s", Unread: MaxEndpoints + 1}
	for n := range 40 {
		s.Frontends = append(s.Frontends, Frontend{
			Addresses: []netip.Addr{address(fmt.Sprintf("10.96.0.%d", 2*n))},
			Protocol:  TCP,
			Port:      1000,
		})
	}
	e.SetService(s)
	e.Compile()
	return e
}

// The prefixes at which Services over a limit are denied are rules of the dataplane, too. Where they are too many,
// wider ones deny the same.
func TestDeniedAddressesInAllListsOfANodeAreBounded(t *testing.T) {
	const pods = 5
	limits := DefaultLimits
	limits.Closed = 40
	limits.AllServices = 100
	e := deniers(t, pods, limits)
	if size := sizeOfLists(e); size > limits.AllServices+pods*3 { // with the rules of the policies
		t.Errorf("%d rules in all lists", size)
	}
	for n := range 40 {
		if open := sendsTo(e, fmt.Sprintf("10.96.0.%d", 2*n), 1000); open != 0 {
			t.Errorf("%d pods reach address %d", open, n)
		}
	}
	if open := sendsTo(e, "10.96.9.1", 1000); open != pods {
		t.Errorf("%d pods reach an address without a Service", open)
	}
}

func TestLimitsOfServicesApplyInFullAgainWhenAServiceNeedsLess(t *testing.T) {
	const pods = 3
	limits := DefaultLimits
	limits.Services = 20
	limits.AllServices = 50
	e := NewEngine(Config{Limits: limits})
	for n := range pods {
		id := fmt.Sprintf("shop/c%d", n)
		e.SetPod(podAt(id, true, fmt.Sprintf("10.0.1.%d", n), fmt.Sprintf("app=c%d", n)))
		e.SetPolicy(networkPolicy(t, id,
			fmt.Sprintf(
				`{podSelector: {matchLabels: {app: c%d}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.0.0.200/32}}]}]}`,
				n)))
	}
	for _, step := range []struct{ ports, reach int }{{20, 0}, {12, pods}, {20, 0}} {
		e.SetService(portsService("evil/s", "10.96.0.2", "10.0.0.200", step.ports))
		e.Compile()
		if n := sendsTo(e, "10.96.0.2", 1000); n != step.reach {
			t.Errorf("%d pods reach a Service with %d ports, want %d", n, step.ports, step.reach)
		}
	}
}

// A namespace whose pods need many rules about Services has lower limits. It takes nothing from the pods of other
// namespaces, and neither does who makes them endpoints.
func TestPodsThatNeedManyRulesOfServicesTakeNothingFromOthers(t *testing.T) {
	limits := DefaultLimits
	limits.Services = 100
	limits.AllServices = 400
	e := NewEngine(Config{Limits: limits})
	to200 := `{podSelector: %s, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.0.0.200/32}}]}]}`
	for n := range 4 {
		e.SetPod(podAt(fmt.Sprintf("shop/p%d", n), true, fmt.Sprintf("10.0.2.%d", n)))
	}
	e.SetPolicy(networkPolicy(t, "shop/p", fmt.Sprintf(to200, "{}")))
	e.SetService(portsService("good/s", "10.96.0.1", "10.0.0.200", 20))
	e.SetService(portsService("evil/s", "10.96.0.2", "10.0.0.200", 70))
	for n := range 20 {
		id := fmt.Sprintf("evil/c%02d", n)
		e.SetPod(podAt(id, true, fmt.Sprintf("10.0.1.%d", n), fmt.Sprintf("app=c%d", n)))
		e.SetPolicy(networkPolicy(t, id, fmt.Sprintf(to200, fmt.Sprintf("{matchLabels: {app: c%d}}", n))))
	}
	endpoints := portsService("evil/t", "10.96.0.3", "10.0.0.200", 1)
	for n := range 4 {
		b := &endpoints.Frontends[0].Backends[0]
		b.Addresses = append(b.Addresses, address(fmt.Sprintf("10.0.2.%d", n)))
	}
	e.SetService(endpoints)
	e.Compile()
	if e.budget.servicesLimit("shop") != 100 || e.budget.servicesLimit("evil") >= 100 {
		t.Errorf("limits are %d for shop and %d for evil", e.budget.servicesLimit("shop"),
			e.budget.servicesLimit("evil"))
	}
	for ip, port := range map[string]uint16{"10.96.0.1": 1000, "10.96.0.2": 1000} {
		if r := e.Lists()[ID{"shop", "p0"}]["eth0"][Egress].Decide(address(ip), TCP, port); r.Action != Allow {
			t.Errorf("%s: %+v", ip, r)
		}
	}
	sum := 0
	for _, l := range e.budget.lists {
		for n := range l.Rules {
			if strings.HasPrefix(l.Rules[n].Origin, "Service ") {
				sum += l.Rules[n].Size(false)
			}
		}
	}
	if sum > limits.AllServices {
		t.Errorf("%d rules about Services in all lists", sum)
	}
	demands := 0
	for k := range e.budget.demands {
		if k.namespace == "shop" {
			demands++
		}
	}
	if demands != 1 {
		t.Errorf("%d demands of pods with equal lists", demands)
	}
	for n := range 20 {
		e.DeletePod(ID{"evil", fmt.Sprintf("c%02d", n)})
	}
	if e.Compile(); len(e.budget.halved.services) != 0 {
		t.Errorf("without pods limits are halved: %v", e.budget.halved.services)
	}
}

// Wide rules for Services over a limit deny others, which need rules of their own. Each namespace has its share of
// them, whatever its name.
func TestServicesBesideManyClosedOnesHaveTheirShare(t *testing.T) {
	limits := DefaultLimits
	limits.Services = 100
	limits.Closed = 20
	e := NewEngine(Config{Limits: limits})
	e.SetPod(podAt("shop/p", true, "10.0.0.1"))
	e.SetPolicy(networkPolicy(t, "shop/p",
		`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0}}]}]}`))
	e.SetService(portsService("kube-system/kube-dns", "10.96.0.41", "10.0.0.53", 3))
	for n := range 100 {
		e.SetService(Service{
			Name:   fmt.Sprintf("aaa/closed%d", n),
			Unread: MaxEndpoints + 1,
			Frontends: []Frontend{
				{Addresses: []netip.Addr{address(fmt.Sprintf("10.96.0.%d", 2*n))}, Protocol: TCP, Port: 80},
			},
		})
	}
	for n := range 120 {
		if n != 20 { // that of kube-dns
			e.SetService(portsService(fmt.Sprintf("aaa/open%d", n), fmt.Sprintf("10.96.0.%d", 2*n+1), "10.0.0.200", 1))
		}
	}
	e.Compile()
	l := e.Lists()[ID{"shop", "p"}]["eth0"][Egress]
	for _, port := range []uint16{1000, 1002, 1004} {
		if r := l.Decide(address("10.96.0.41"), TCP, port); r.Action != Allow {
			t.Errorf("port %d of kube-dns: %+v", port, r)
		}
	}
	size := 0
	for n := range l.Rules {
		if strings.HasPrefix(l.Rules[n].Origin, "Service ") {
			size += l.Rules[n].Size(false)
		}
	}
	if size > limits.Services || size < limits.Services/2 {
		t.Errorf("%d rules of Services", size)
	}
}

// What lists need changes while pods are compiled, again and again. Raises of limits that are put off then come at
// last.
func TestLimitsThatWereRaisedOftenAreRaisedAtLast(t *testing.T) {
	e := clientsOf(t, 20)
	e.limits.Services = 100
	e.limits.AllServices = 1500
	e.SetService(portsService("evil/s", "10.96.0.2", "10.0.0.200", 70))
	e.Compile()
	for range maxRaises + 5 {
		e.SetService(portsService("evil/x", "10.96.0.3", "10.0.0.200", 30))
		for len(e.backlog.dirty) > 1 && len(e.budget.halved.services) == 0 {
			e.CompileNext()
		}
		e.DeleteService("evil/x")
		for len(e.backlog.dirty) > 1 && len(e.budget.halved.services) != 0 {
			e.CompileNext()
		}
	}
	if e.budget.halved.raises != maxRaises || !e.budget.halved.isPutOff {
		t.Errorf("the test puts no raise off: %+v", e.budget.halved)
	}
	if e.Compile(); len(e.budget.halved.services) != 0 || sendsTo(e, "10.96.0.2", 1000) != 20 {
		t.Errorf("limits stay lowered: %+v", e.budget.halved)
	}
}

// A pod is a permitted endpoint of its own Services, so its list is another one than that of a pod with the same
// policies.
func TestListsOfEndpointsCountEachWhereTheyDiffer(t *testing.T) {
	e := NewEngine(Config{})
	const pods = 3
	for n := range pods {
		ip := fmt.Sprintf("10.0.2.%d", n)
		e.SetPod(podAt(fmt.Sprintf("shop/p%d", n), true, ip))
		e.SetService(portsService(fmt.Sprintf("shop/s%d", n), fmt.Sprintf("10.96.0.%d", n), ip, 1))
	}
	e.SetPolicy(networkPolicy(t, "shop/p",
		`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.0.0.200/32}}]}]}`))
	if e.Compile(); len(e.budget.demands) != pods {
		t.Errorf("%d demands of %d lists", len(e.budget.demands), pods)
	}
}

// A Service that goes raises the limits of all namespaces at once, however many these are.
func TestLimitsOfManyNamespacesAreRaisedTogether(t *testing.T) {
	const namespaces = 3 * maxRaises
	limits := DefaultLimits
	limits.Services = 100
	limits.AllServices = 75 * namespaces
	e := NewEngine(Config{Limits: limits})
	for n := range namespaces {
		ns := fmt.Sprintf("n%03d", n)
		e.SetPod(podAt(ns+"/p", true, fmt.Sprintf("10.0.1.%d", n)))
		e.SetPolicy(networkPolicy(t, ns+"/p",
			`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.0.0.200/32}}]}]}`))
	}
	e.SetService(portsService("good/s", "10.96.0.1", "10.0.0.200", 60))
	reach := func() (n int) {
		e.Compile()
		for _, of := range e.Lists() {
			if of["eth0"][Egress].Decide(address("10.96.0.1"), TCP, 1000).Action == Allow {
				n++
			}
		}
		return n
	}
	if n := reach(); n != namespaces {
		t.Errorf("before: %d", n)
	}
	e.SetService(portsService("more/s", "10.96.0.2", "10.0.0.200", 40))
	if n := reach(); n != 0 || len(e.budget.halved.services) != namespaces {
		t.Errorf("with another Service: %d, limits of %d namespaces are halved", n, len(e.budget.halved.services))
	}
	e.DeleteService("more/s")
	if n := reach(); n != namespaces || len(e.budget.halved.services) != 0 {
		t.Errorf("without it: %d, limits are halved: %v", n, e.budget.halved.services)
	}
}

// What is put off although it was tried again is not forgotten: the next compilation divides again, whatever it is for.
func TestLimitsThatArePutOffTwiceAreRaisedByTheNextCompilation(t *testing.T) {
	e := clientsOf(t, 3)
	e.SetService(portsService("good/s", "10.96.0.1", "10.0.0.200", 3))
	e.Compile()
	e.budget.halved.services["shop"] = 1
	e.budget.halved.isPutOff = true
	e.budget.halved.isAgain = true
	e.Compile()
	if e.Compile(); len(e.budget.halved.services) != 0 {
		t.Errorf("limits stay lowered: %+v", e.budget.halved)
	}
}
