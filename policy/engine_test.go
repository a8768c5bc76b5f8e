package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

func address(text string) netip.Addr { return netip.MustParseAddr(text) }

// podAt returns a local pod with labels such as "app=a".
func podAt(name string, local bool, ip string, set ...string) Pod {
	ns, name, _ := strings.Cut(name, "/")
	p := Pod{
		ID:     ID{ns, name},
		Local:  local,
		Labels: map[string]string{},
		Interfaces: []Interface{
			{Name: "eth0", Main: true, Networks: []string{DefaultNetwork}, Addresses: []netip.Addr{address(ip)}},
		},
	}
	for _, l := range set {
		key, value, _ := strings.Cut(l, "=")
		p.Labels[key] = value
	}
	return p
}

// networkPolicy parses the spec of a NetworkPolicy.
func networkPolicy(t testing.TB, name, spec string) Policy {
	t.Helper()
	o := &networkingv1.NetworkPolicy{}
	o.Namespace, o.Name, _ = strings.Cut(name, "/")
	if err := yaml.UnmarshalStrict([]byte(spec), &o.Spec); err != nil {
		t.Fatal(err)
	}
	p, err := OfNetworkPolicy(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const (
	onlyFromWeb = `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 5432}]}]}`
	denyAll     = `{podSelector: {}, policyTypes: [Ingress, Egress]}`
)

// engineOf returns an engine with namespaces of 20 pods each, of which one is local, and one policy each.
func engineOf(t testing.TB, namespaces int) *Engine {
	e := NewEngine(Config{})
	for n := range namespaces {
		ns := fmt.Sprintf("n%d", n)
		e.SetNamespace(ns, map[string]string{"name": ns})
		for i := range 10 {
			e.SetPod(podAt(fmt.Sprintf("%s/db%d", ns, i), i == 0, fmt.Sprintf("10.%d.%d.%d", n/250, n%250, i+1),
				"app=db"))
			e.SetPod(podAt(fmt.Sprintf("%s/web%d", ns, i), false, fmt.Sprintf("10.%d.%d.%d", n/250, n%250, i+101),
				"app=web"))
		}
		e.SetPolicy(networkPolicy(t, ns+"/db", onlyFromWeb))
		e.SetPolicy(networkPolicy(t, ns+"/other",
			fmt.Sprintf(
				`{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{namespaceSelector: {matchLabels: {name: n%d}}, podSelector: {matchLabels: {app: x%d}}}]}]}`,
				n+1, n)))
	}
	e.Compile()
	return e
}

func TestWorkForANewPodDependsOnItsPeersOnly(t *testing.T) {
	workFor := func(namespaces int, set ...string) Work {
		e := engineOf(t, namespaces)
		before := e.work
		e.SetPod(podAt("n1/new", true, "10.99.0.1", set...))
		e.Compile()
		after := e.work
		return Work{
			Matches:    after.Matches - before.Matches,
			Fragments:  after.Fragments - before.Fragments,
			Interfaces: after.Interfaces - before.Interfaces,
			Ports:      after.Ports - before.Ports, Services: after.Services - before.Services,
		}
	}
	for _, set := range []string{"app=web", "app=db", "app=none"} {
		small := workFor(4, set)
		large := workFor(100, set)
		if small != large {
			t.Errorf("%s: work %+v in a cluster of 4 namespaces, %+v of 100", set, small, large)
		}
		t.Logf("%s: %+v", set, large)
	}
	if w := workFor(10, "app=web"); w.Fragments != 1 || w.Interfaces != 2 {
		t.Errorf("a peer of one policy: %+v, want 1 fragment and 2 interfaces: its own and that of the local subject",
			w)
	}
}

func TestIdenticalRulesAreOneList(t *testing.T) {
	e := NewEngine(Config{})
	for n := range 5 {
		e.SetPod(podAt(fmt.Sprintf("a/p%d", n), true, fmt.Sprintf("10.0.0.%d", n+1)))
	}
	e.SetPolicy(networkPolicy(t, "a/deny", denyAll))
	changes := e.Compile()
	if len(changes) != 5 || len(e.budget.lists) != 2 {
		t.Fatalf("%d changes and %d lists, want 5 and 2", len(changes), len(e.budget.lists))
	}
	for _, c := range changes {
		if c.Interfaces["eth0"] != changes[0].Interfaces["eth0"] {
			t.Errorf("%s has lists of its own", c.ID)
		}
	}
	if again := e.Compile(); len(again) != 0 {
		t.Errorf("without a change: %v", again)
	}
	e.DeletePolicy(Ref{Network, "a", "deny"})
	if changes = e.Compile(); len(changes) != 5 || len(changes[0].Interfaces) != 0 || len(e.budget.lists) != 0 {
		t.Errorf("without the policy: %v, %d lists", changes, len(e.budget.lists))
	}
}

func TestDirectionThatNoPolicyRestrictsOpensSessions(t *testing.T) {
	e := NewEngine(Config{})
	e.SetPod(podAt("a/p", true, "10.0.0.1"))
	e.SetPolicy(networkPolicy(t, "a/deny", `{podSelector: {}, policyTypes: [Ingress]}`))
	lists := e.Compile()[0].Interfaces["eth0"]
	if r := lists[Egress].Decide(address("192.0.2.1"), TCP, 80); r.Action != Allow {
		t.Errorf("egress: %+v", r)
	}
	if r := lists[Ingress].Decide(address("192.0.2.1"), TCP, 80); r.Action != Deny ||
		!strings.Contains(r.Origin, "a/deny") {
		t.Errorf("ingress: %+v", r)
	}
}

func TestNodeReachesItsPodsWhateverPoliciesSay(t *testing.T) {
	e := NewEngine(Config{Nodes: []netip.Prefix{netip.MustParsePrefix("10.0.0.254/32")}})
	e.SetPod(podAt("a/p", true, "10.0.0.1"))
	e.SetPolicy(networkPolicy(t, "a/deny", denyAll))
	lists := e.Compile()[0].Interfaces["eth0"]
	if r := lists[Ingress].Decide(address("10.0.0.254"), TCP, 80); r.Action != Allow {
		t.Errorf("a probe: %+v", r)
	}
	if r := lists[Egress].Decide(address("10.0.0.254"), TCP, 80); r.Action != Deny {
		t.Errorf("from the pod to the node: %+v", r)
	}
}

func TestDeniedDestinationsAreDeniedWithoutAndAgainstPolicies(t *testing.T) {
	metadata := Denied{Name: "metadata", Prefix: netip.MustParsePrefix("169.254.169.254/32")}
	e := NewEngine(Config{Denied: []Denied{metadata}})
	e.SetPod(podAt("a/p", true, "10.0.0.1"))
	check := func(what string) {
		t.Helper()
		e.Compile()
		lists := e.Lists()[ID{"a", "p"}]["eth0"]
		if lists[Egress] == nil {
			t.Fatalf("%s: no list", what)
		}
		if r := lists[Egress].Decide(address("169.254.169.254"), TCP, 80); r.Action != Deny || r.Origin != "metadata" {
			t.Errorf("%s: %+v", what, r)
		}
		if r := lists[Egress].Decide(address("192.0.2.1"), TCP, 80); r.Action != Allow {
			t.Errorf("%s: another destination: %+v", what, r)
		}
	}
	check("without a policy")
	e.SetPolicy(networkPolicy(t, "a/open", `{podSelector: {}, policyTypes: [Egress], egress: [{}]}`))
	check("with a policy that allows everything")
	e.SetConfig(Config{})
	e.DeletePolicy(Ref{Network, "a", "open"})
	if e.Compile(); len(e.Lists()) != 0 {
		t.Errorf("without both: %v", e.Lists())
	}
}

func TestServiceIsPermittedIfAllItsEndpointsAre(t *testing.T) {
	e := NewEngine(Config{Denied: []Denied{{Name: "denied", Prefix: netip.MustParsePrefix("10.96.0.99/32")}}})
	e.SetPod(podAt("a/p", true, "10.0.0.1"))
	e.SetPod(podAt("a/dns1", false, "10.0.0.2", "app=dns"))
	e.SetPod(podAt("a/dns2", false, "10.0.0.3", "app=dns"))
	e.SetPod(podAt("a/other", false, "10.0.0.4"))
	e.SetPolicy(networkPolicy(t, "a/p",
		`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: dns}}}], ports: [{port: 5353, protocol: UDP}]}]}`))
	frontend := func(ip string, backends ...string) Service {
		f := Frontend{Addresses: []netip.Addr{address(ip)}, Protocol: UDP, Port: 53}
		for _, b := range backends {
			at := netip.MustParseAddrPort(b)
			f.Backends = append(f.Backends, Backends{[]netip.Addr{at.Addr()}, at.Port()})
		}
		return Service{Name: "a/" + ip, Frontends: []Frontend{f}}
	}
	for _, s := range []Service{
		frontend("10.96.0.10", "10.0.0.2:5353", "10.0.0.3:5353"),
		frontend("10.96.0.11", "10.0.0.2:5353", "10.0.0.4:5353"), frontend("10.96.0.12"),
		frontend("10.96.0.13", "10.0.0.2:53"), frontend("10.96.0.99", "10.0.0.2:5353"),
	} {
		e.SetService(s)
	}
	check := func(what, remote string, want Action) {
		t.Helper()
		e.Compile()
		if r := e.Lists()[ID{"a", "p"}]["eth0"][Egress].Decide(address(remote), UDP, 53); r.Action != want {
			t.Errorf("%s: %+v", what, r)
		}
	}
	e.SetService(frontend("10.96.0.14", "10.0.0.1:80"))
	e.SetService(frontend("10.96.0.15", "10.0.0.1:80", "10.0.0.2:5353"))
	e.SetService(frontend("10.96.0.16", "10.0.0.1:80", "10.0.0.4:5353"))
	external := frontend("198.51.100.1", "10.0.0.1:80")
	external.Frontends[0].External = true
	e.SetService(external)
	check("all endpoints are allowed", "10.96.0.10", Allow)
	check("the endpoint is the pod itself", "10.96.0.14", Allow)
	check("another endpoint is allowed", "10.96.0.15", Allow)
	check("another endpoint is not allowed", "10.96.0.16", Deny)
	check("an external address with the pod itself as its endpoint", "198.51.100.1", Deny)
	check("one endpoint is not", "10.96.0.11", Deny)
	check("no endpoint", "10.96.0.12", Deny)
	check("another port of the endpoint", "10.96.0.13", Deny)
	check("a destination that is always denied", "10.96.0.99", Deny)
	e.SetPolicy(networkPolicy(t, "a/block",
		`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.96.0.0/12}}]}]}`))
	check("the address is allowed, but not one endpoint", "10.96.0.11", Deny)
	check("the address is allowed, and there is no endpoint", "10.96.0.12", Allow)
	e.DeletePolicy(Ref{Network, "a", "block"})
	e.SetPod(podAt("a/other", false, "10.0.0.4", "app=dns"))
	check("the endpoint is allowed now", "10.96.0.11", Allow)
	e.SetService(frontend("10.96.0.10", "10.0.0.2:5353", "192.0.2.1:5353"))
	check("an endpoint that is not allowed is added", "10.96.0.10", Deny)
	e.DeleteService("a/10.96.0.11")
	check("the Service is deleted", "10.96.0.11", Deny)
}

// Users choose the external IPs of their Services. The dataplane sends packets for the address of a pod to the pod,
// untranslated.
func TestExternalAddressOfAServiceDoesNotOpenAPod(t *testing.T) {
	e := NewEngine(Config{})
	e.SetPod(podAt("a/p", true, "10.0.0.1"))
	e.SetPod(podAt("a/own", false, "10.0.0.2", "app=own"))
	e.SetPod(podAt("b/victim", false, "10.0.0.9"))
	e.SetPolicy(networkPolicy(t, "a/p",
		`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: own}}}]}]}`))
	backends := []Backends{{[]netip.Addr{address("10.0.0.2")}, 80}}
	e.SetService(Service{Name: "a/s", Frontends: []Frontend{
		{Addresses: []netip.Addr{address("10.0.0.9")}, Protocol: TCP, Port: 80, External: true, Backends: backends},
		{Addresses: []netip.Addr{address("192.0.2.7")}, Protocol: TCP, Port: 80, External: true, Backends: backends},
	}})
	check := func(what, remote string, want Action) {
		t.Helper()
		e.Compile()
		if r := e.Lists()[ID{"a", "p"}]["eth0"][Egress].Decide(address(remote), TCP, 80); r.Action != want {
			t.Errorf("%s: %+v", what, r)
		}
	}
	check("the address of a pod", "10.0.0.9", Deny)
	check("another external address", "192.0.2.7", Allow)
	e.DeletePod(ID{"b", "victim"})
	check("the pod is gone", "10.0.0.9", Allow)
	e.SetPod(podAt("b/later", false, "192.0.2.7"))
	check("a pod has the other address", "192.0.2.7", Deny)
	e.SetPod(podAt("b/later", false, "10.0.0.9"))
	check("the pod has another address", "192.0.2.7", Allow)
	check("a pod has the address again", "10.0.0.9", Deny)
	e.DeleteService("a/s")
	e.DeletePod(ID{"b", "later"})
	if len(e.services.external) != 0 || len(e.cluster.addresses) != 2 {
		t.Errorf("%v external addresses and %v of pods remain", e.services.external, e.cluster.addresses)
	}
}

func TestExplanationNamesThePolicyAndItsRule(t *testing.T) {
	e := NewEngine(Config{})
	clients, _ := NewClientMap(mustRanges(t, "100.64.0.0/10"), prefixes("10.0.0.0/16"), nil)
	e.SetClients(clients)
	e.SetPod(podAt("a/db", false, "10.0.0.1", "app=db"))
	e.SetPod(podAt("a/web", true, "10.0.0.2", "app=web"))
	e.SetPod(podAt("a/other", true, "10.0.0.3"))
	if p, _ := e.cluster.byAddress(address("10.0.0.2")); e.mustEnd(t, End{Address: address("100.64.0.2")}).pod != p {
		t.Error("a client address is not that of its pod")
	}
	e.SetPolicy(networkPolicy(t, "a/db", onlyFromWeb))
	db := End{Pod: ID{"a", "db"}}
	web := End{Pod: ID{"a", "web"}}
	other := End{Pod: ID{"a", "other"}}
	for _, tt := range []struct {
		what     string
		from, to End
		port     uint16
		allowed  bool
		why      string
	}{
		{"allowed by a rule", web, db, 5432, true, "NetworkPolicy a/db ingress[0]"},
		{"another port", web, db, 5433, false, "NetworkPolicy a/db ingress: no rule allows it"},
		{"another pod", other, db, 5432, false, "NetworkPolicy a/db ingress: no rule allows it"},
		{
			"an address outside", End{Address: address("192.0.2.1")}, db, 5432, false,
			"NetworkPolicy a/db ingress: no rule allows it",
		},
		{
			"the address of a pod", End{Address: address("10.0.0.2")}, End{Address: address("10.0.0.1")}, 5432, true,
			"NetworkPolicy a/db ingress[0]",
		},
		{
			"the client address of a pod", End{Address: address("100.64.0.2")}, End{Address: address("10.0.0.1")}, 5432,
			true, "NetworkPolicy a/db ingress[0]",
		},
		{
			"the client address of another pod", End{Address: address("100.64.0.3")}, db, 5432, false,
			"NetworkPolicy a/db ingress: no rule allows it",
		},
		{"no policy", db, web, 80, true, "no policy selects the pod"},
	} {
		v, err := e.Explain(tt.from, tt.to, TCP, tt.port)
		if err != nil || (v.Egress.Allowed && v.Ingress.Allowed) != tt.allowed || v.Ingress.Origin != tt.why {
			t.Errorf("%s: %+v, %v", tt.what, v, err)
		}
	}
	for _, x := range []End{
		{Pod: ID{"a", "gone"}}, {Pod: ID{"a", "db"}, Interface: "net1"}, {Address: address("fd00::1")},
	} {
		if v, err := e.Explain(x, db, TCP, 1); err == nil {
			t.Errorf("%+v: %+v", x, v)
		}
	}
}

func (e *Engine) mustEnd(t *testing.T, x End) end {
	t.Helper()
	found, err := e.cluster.endOf(x)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestPrefixesAreSubtractedAndAggregatedExactly(t *testing.T) {
	prefixes := func(list ...string) (out []netip.Prefix) {
		for _, text := range list {
			out = append(out, netip.MustParsePrefix(text))
		}
		return out
	}
	for _, tt := range []struct{ from, except, want []netip.Prefix }{
		{prefixes("10.0.0.0/30"), prefixes("10.0.0.1/32"), prefixes("10.0.0.0/32", "10.0.0.2/31")},
		{prefixes("10.0.0.0/24"), prefixes("10.0.0.0/16"), nil},
		{prefixes("10.0.0.0/24"), prefixes("fd00::/8"), prefixes("10.0.0.0/24")},
		{prefixes("::/0"), prefixes("8000::/1"), prefixes("::/1")},
	} {
		if got := aggregate(subtract(tt.from[0], tt.except)); !slices.Equal(got, tt.want) {
			t.Errorf("%v without %v: %v", tt.from, tt.except, got)
		}
	}
	in := prefixes("10.0.0.3/32", "10.0.0.0/32", "fd00::1/128", "10.0.0.2/32", "10.0.0.1/32", "10.0.0.2/31",
		"fd00::/128", "10.0.0.4/32")
	if got, want := aggregate(in), prefixes("10.0.0.0/30", "10.0.0.4/32", "fd00::/127"); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// BenchmarkCompile compiles everything, and after one more pod.
func BenchmarkCompile(b *testing.B) {
	for _, namespaces := range []int{5, 50} {
		b.Run(fmt.Sprintf("pods=%d/all", namespaces*20), func(b *testing.B) {
			for b.Loop() {
				engineOf(b, namespaces)
			}
		})
		b.Run(fmt.Sprintf("pods=%d/another", namespaces*20), func(b *testing.B) {
			e := engineOf(b, namespaces)
			for n := 0; b.Loop(); n++ {
				e.SetPod(podAt("n1/new", true, fmt.Sprintf("10.99.%d.%d", n/250%250, n%250), "app=web"))
				e.Compile()
			}
		})
	}
}

func TestOnePodIsCompiledWithoutTheOthers(t *testing.T) {
	e := engineOf(t, 5)
	before := e.work
	e.SetPod(podAt("n1/new", true, "10.99.0.1", "app=web"))
	if _, known := e.ListsOf(ID{"n1", "new"}); known {
		t.Error("a pod that is not compiled has rules")
	}
	if _, changed := e.CompilePod(ID{"n1", "new"}); changed {
		t.Error("it has rules, and no policy selects it")
	}
	if _, known := e.ListsOf(ID{"n1", "new"}); !known {
		t.Error("the compiled pod is unknown")
	}
	if got := e.work.Interfaces - before.Interfaces; got != 1 {
		t.Errorf("%d interfaces were compiled, want 1", got)
	}
	if c, changed, some := e.CompileNext(); !some || !changed || c.ID != (ID{"n1", "db0"}) {
		t.Errorf("then %+v, %t, %t, want the pod that permits the new one", c, changed, some)
	}
	if _, _, some := e.CompileNext(); some {
		t.Error("another pod was compiled")
	}
	e.DeleteNamespace("n1")
	e.SetNamespace("n1", map[string]string{"name": "other"})
	if _, known := e.ListsOf(ID{"n1", "new"}); known {
		t.Error("a pod has rules of the time when the labels of its namespace were unknown")
	}
}

func TestNamespacesTakeTurns(t *testing.T) {
	e := NewEngine(Config{})
	for n := range 5 {
		e.SetPod(podAt(fmt.Sprintf("a/p%d", n), true, fmt.Sprintf("10.0.0.%d", n+1)))
	}
	e.SetPod(podAt("b/p", true, "10.0.1.1"))
	e.SetPod(podAt("c/p", true, "10.0.1.2"))
	e.SetPolicy(networkPolicy(t, "a/deny", denyAll))
	e.SetPolicy(networkPolicy(t, "b/deny", denyAll))
	var order []string
	for {
		c, _, some := e.CompileNext()
		if !some {
			break
		}
		order = append(order, c.String())
	}
	if got, want := strings.Join(order, " "), "a/p0 b/p c/p a/p1 a/p2 a/p3 a/p4"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
}
