package policy

import (
	"fmt"
	"strings"
	"testing"
)

// namedPorts returns a policy of namespace evil with rules, each for some named ports.
func namedPorts(t *testing.T, direction string, rules int, names ...string) Policy {
	t.Helper()
	ports := "ports: [{port: " + strings.Join(names, "}, {port: ") + "}]"
	peers := map[string]string{
		"ingress": "from: [{ipBlock: {cidr: 10.0.0.0/24}}]",
		"egress":  "to: [{namespaceSelector: {}}]",
	}[direction]
	rule := fmt.Sprintf("{%s, %s}", peers, ports)
	types := strings.ToUpper(direction[:1]) + direction[1:]
	return networkPolicy(t, "evil/p", fmt.Sprintf("{podSelector: {}, policyTypes: [%s], %s: [%s]}", types, direction,
		strings.Join(make([]string, rules), rule+", ")+rule))
}

// withPorts returns a pod with TCP ports from 1000, named by a format.
func withPorts(p Pod, format string, n int) Pod {
	for k := range n {
		p.Ports = append(p.Ports, NamedPort{strings.ReplaceAll(format, "N", fmt.Sprint(k)), TCP, uint16(1000 + 2*k)})
	}
	return p
}

// A policy has thousands of named ports, and so does a pod. They are looked up by name.
func TestNamedPortsAreLookedUp(t *testing.T) {
	var names []string
	for n := range 5000 {
		names = append(names, fmt.Sprintf("aN%d", n))
	}
	for _, direction := range []string{"ingress", "egress"} {
		e := NewEngine(Config{})
		e.SetPod(withPorts(podAt("evil/p", true, "10.0.0.1"), "bN", 5000))
		e.SetPolicy(namedPorts(t, direction, 1, append(names, "b4999")...))
		e.Compile()
		if n := e.work.Ports; n != 1 {
			t.Errorf("%s: %d ports were compared", direction, n)
		}
		d := map[string]Direction{"ingress": Ingress, "egress": Egress}[direction]
		if r := e.Lists()[ID{"evil", "p"}]["eth0"][d].Decide(address("10.0.0.1"), TCP, 1000+2*4999); r.Action != Allow {
			t.Errorf("%s: the named port: %+v", direction, r)
		}
	}
}

// A pod has many ports of one name, in several containers, and many rules have the name. Each rule reads each of them,
// so they count in the effort: those of the subject, and those of peers in the share of their namespace.
func TestManyPortsOfOneNameCountInTheEffort(t *testing.T) {
	const (
		rules = 600
		ports = 500
	) // 300,000
	subject := NewEngine(Config{})
	subject.SetPod(withPorts(podAt("evil/p", true, "10.0.0.1"), "web", ports))
	subject.SetPolicy(namedPorts(t, "ingress", rules, "web"))
	subject.Compile()
	if x := subject.Excess(); len(x) != 1 || x[0].Unit != unitAddresses || x[0].Effect != effectIsolates {
		t.Errorf("the subject's ports: %v", x)
	}
	peers := NewEngine(Config{})
	peers.SetPod(podAt("evil/p", true, "10.0.0.1"))
	peers.SetPolicy(namedPorts(t, "egress", rules, "web"))
	tenant := podAt("tenant/p", false, "10.0.0.2")
	for _, step := range []struct {
		what  string
		ports int
		want  int
	}{{"one port", 1, 0}, {"many ports", ports, 1}, {"one port again", 1, 0}} {
		peers.SetPod(withPorts(tenant, "web", step.ports))
		peers.Compile()
		if x := peers.Excess(); len(x) != step.want {
			t.Errorf("%s of a peer: %v", step.what, x)
		}
		peers.mustTally(t)
	}
	if n := subject.work.Ports + peers.work.Ports; n > 10*rules {
		t.Errorf("%d ports were compared", n)
	}
}

// mustTally compares the tallies of all groups with their members.
func (e *Engine) mustTally(t *testing.T) {
	t.Helper()
	if len(e.membership.tallies) > len(e.membership.groups) {
		t.Fatalf("%d tallies of %d groups", len(e.membership.tallies), len(e.membership.groups))
	}
	for _, g := range e.membership.groups {
		want := tallies{}
		for p := range g.members {
			want.add(g, p, p.span)
		}
		if got := e.membership.tallies.of(g); fmt.Sprint(got.byNamespace) != fmt.Sprint(want.of(g).byNamespace) ||
			got.all != want.of(g).all {
			t.Fatalf("group %s has the tally %v, want %v", g.key, got, want.of(g))
		}
	}
}

// Subjects with other numbers of a named port share the addresses of a policy, also if it is over the limit.
func TestSubjectsWithOtherPortsShareAddresses(t *testing.T) {
	const addresses = 19_000
	for _, ports := range []string{"{port: web}", "{port: web}, {port: 1}, {port: 3}, {port: 5}, {port: 7}"} {
		var peers []string
		for n := range addresses {
			peers = append(peers,
				fmt.Sprintf("{ipBlock: {cidr: %d.%d.%d.%d/32}}", 11+n>>15, n>>7&255, n&127, 2*(n&63)+1))
		}
		e := NewEngine(Config{})
		e.SetPolicy(networkPolicy(t, "evil/p",
			fmt.Sprintf("{podSelector: {}, ingress: [{from: [%s], ports: [%s]}]}", strings.Join(peers, ", "), ports)))
		for n := range 10 {
			p := podAt(fmt.Sprint("evil/p", n), true, fmt.Sprintf("10.0.0.%d", n+1))
			p.Ports = []NamedPort{{"web", TCP, uint16(8000 + n)}}
			e.SetPod(p)
		}
		e.Compile()
		if n := e.work.Fragments; n > 2 { // whole, and without other namespaces
			t.Errorf("ports %s: the policy was resolved %d times", ports, n)
		}
		if e.kept.size > 2*(addresses+100) {
			t.Errorf("ports %s: fragments of size %d are kept", ports, e.kept.size)
		}
	}
}

// Each of many policies was in use once, or is over the limit: their addresses are not kept without bound.
func TestKeptAddressesAreBounded(t *testing.T) {
	e := NewEngine(Config{})
	for n := range 40 {
		e.SetPolicy(networkPolicy(t, fmt.Sprint("evil/n", n),
			bigSpec(fmt.Sprintf(`{matchLabels: {number: "%d"}}`, n), 18_000, 2)))
		e.SetPod(podAt("evil/p", true, "10.0.0.1", fmt.Sprintf("number=%d", n)))
		e.Compile()
		if e.kept.size > maxKept {
			t.Fatalf("policy %d: fragments of size %d are kept", n, e.kept.size)
		}
	}
	if e.kept.size < 18_000 {
		t.Errorf("fragments of size %d are kept", e.kept.size)
	}
	for n := range 40 {
		e.DeletePolicy(Ref{Network, "evil", fmt.Sprint("n", n)})
	}
	if e.kept.size != 0 || len(e.kept.byPolicy) != 0 {
		t.Errorf("without policies: fragments of size %d of %d policies are kept", e.kept.size, len(e.kept.byPolicy))
	}
}
