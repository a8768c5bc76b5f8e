package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	adminv1 "sigs.k8s.io/network-policy-api/apis/v1alpha1"

	"github.com/weftnet/weft/internal/netaddr"
)

// The dataplane keeps a list as long as its name is the same, so each part of a rule is part of the name.
func TestListsWithOtherRulesHaveOtherNames(t *testing.T) {
	base := func() Rule {
		return Rule{
			Action:  Allow,
			Remotes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")},
			Ports:   []PortRange{{TCP, Range{53, 54}}},
			Origin:  "NetworkPolicy x/p",
		}
	}
	names := map[string]string{
		nameOf([]Rule{base()}):         "the rule itself",
		nameOf([]Rule{base(), base()}): "the rule twice",
		nameOf(nil):                    "no rule",
	}
	for what, change := range map[string]func(*Rule){
		"action": func(r *Rule) { r.Action = Deny }, "origin": func(r *Rule) { r.Origin += "2" },
		"any port": func(r *Rule) { r.Ports = nil },
		"protocol": func(r *Rule) { r.Ports[0].Protocol = UDP }, "first port": func(r *Rule) { r.Ports[0].First = 52 },
		"last port": func(r *Rule) { r.Ports[0].Last = 55 }, "address": func(r *Rule) {
			r.Remotes[0] = netip.MustParsePrefix("10.0.1.0/24")
		},
		"length": func(r *Rule) { r.Remotes[0] = netip.MustParsePrefix("10.0.0.0/25") }, "no address": func(r *Rule) {
			r.Remotes = nil
		},
		"family": func(r *Rule) { r.Remotes[0] = netip.MustParsePrefix("a00::/24") },
	} {
		r := base()
		change(&r)
		name := nameOf([]Rule{r})
		if other, has := names[name]; has {
			t.Errorf("a rule with another %s has the name of: %s", what, other)
		}
		names[name] = what
	}
}

// An equal Service changes no rules, so each part of a frontend tells Services apart.
func TestServicesThatDifferAreDecidedAgain(t *testing.T) {
	base := func() Frontend {
		return Frontend{
			Addresses: []netip.Addr{address("10.96.0.1")},
			Protocol:  TCP,
			Port:      80,
			Backends:  []Backends{{[]netip.Addr{address("10.0.0.2")}, 8080}},
		}
	}
	if !equalFrontends(base(), base()) {
		t.Error("a frontend is not equal to itself")
	}
	for what, change := range map[string]func(*Frontend){
		"address": func(f *Frontend) { f.Addresses[0] = address("10.96.0.2") }, "protocol": func(f *Frontend) {
			f.Protocol = UDP
		},
		"port": func(f *Frontend) { f.Port = 81 }, "kind": func(f *Frontend) { f.External = true },
		"endpoints":   func(f *Frontend) { f.Backends = nil },
		"endpoint":    func(f *Frontend) { f.Backends[0].Addresses[0] = address("10.0.0.3") },
		"target port": func(f *Frontend) { f.Backends[0].Port = 9090 },
	} {
		f := base()
		if change(&f); equalFrontends(base(), f) {
			t.Errorf("a frontend with another %s is equal", what)
		}
	}
}

// An operator reads why a port is denied.
func TestJoinedPortsKeepWhyTheyAreDenied(t *testing.T) {
	sets := make(portSets)
	for port := range uint16(6) {
		sets.add(Rule{
			Action:  Deny,
			Remotes: []netip.Prefix{netaddr.Single(address("10.96.0.1"))},
			Ports:   rangesOf(TCP, Range{port, port}),
			Origin:  fmt.Sprint("policy ", port%2),
		})
	}
	for _, r := range sets.rules() {
		for port := range uint16(6) {
			if portsContain(r.Ports, TCP, port) != strings.HasSuffix(r.Origin, fmt.Sprint(port%2)) {
				t.Errorf("port %d in %+v", port, r)
			}
		}
	}
	if n := len(sets.rules()); n != 2 {
		t.Errorf("%d rules, want one for each policy", n)
	}
}

// Peers that fit count although those of another namespace are left out.
func TestRulesForOtherNamespacesCountForTheNode(t *testing.T) {
	limits := DefaultLimits
	limits.Own = 100
	e := NewEngine(Config{Limits: limits})
	e.SetPod(podAt("shop/p", true, "10.0.0.1"))
	for ns, pods := range map[string]int{"x": 20, "y": 90} {
		for n := range pods {
			e.SetPod(podAt(fmt.Sprintf("%s/p%d", ns, n), false, fmt.Sprintf("10.%d.0.%d", len(ns)+int(ns[0]), 2*n)))
		}
	}
	var own []string
	for n := range 10 {
		own = append(own, fmt.Sprintf("{ipBlock: {cidr: 198.18.0.%d/32}}", 2*n))
	}
	e.SetPolicy(networkPolicy(t, "shop/p",
		fmt.Sprintf(
			`{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [%s, {namespaceSelector: {}, podSelector: {matchExpressions: [{key: none, operator: DoesNotExist}]}}]}]}`,
			strings.Join(own, ", "))))
	e.SetNamespace("x", map[string]string{})
	e.SetNamespace("y", map[string]string{})
	e.Compile()
	l := e.Lists()[ID{"shop", "p"}]["eth0"][Ingress]
	for ip, want := range map[string]Action{"198.18.0.2": Allow, "10.121.0.2": Allow, "10.122.0.2": Deny} {
		if r := l.Decide(address(ip), TCP, 80); r.Action != want {
			t.Errorf("%s: %+v", ip, r)
		}
	}
	if got := e.budget.own["shop"]; got < 30 || got > 32 { // 10 and 20, and the pods of the namespace itself
		t.Errorf("%d rules count", got)
	}
}

// The subject's named ports are known however many peers there are.
func TestDenyRuleOfTooManyPeersDeniesItsNamedPortOnly(t *testing.T) {
	limits := DefaultLimits
	limits.Effort = 1
	e := NewEngine(Config{Limits: limits})
	with := podAt("a/with", true, "10.0.0.1")
	without := podAt("a/without", true, "10.0.0.2")
	with.Ports = []NamedPort{{"http", TCP, 80}}
	e.SetPod(with)
	e.SetPod(without)
	o := &adminv1.AdminNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	o.Spec.Subject.Namespaces = &metav1.LabelSelector{}
	o.Spec.Ingress = []adminv1.AdminNetworkPolicyIngressRule{{
		Action: "Deny", From: []adminv1.AdminNetworkPolicyIngressPeer{{Namespaces: &metav1.LabelSelector{}}},
		Ports: &[]adminv1.AdminNetworkPolicyPort{{NamedPort: ptr.To("http")}},
	}}
	p, err := OfAdminNetworkPolicy(o)
	if err != nil {
		t.Fatal(err)
	}
	e.SetNamespace("a", map[string]string{})
	e.SetPolicy(p)
	e.Compile()
	if x := e.Excess(); len(x) != 1 || x[0].Unit != unitAddresses {
		t.Fatalf("excess %v", x)
	}
	for pod, denied := range map[string][]uint16{"with": {80}, "without": nil} {
		l := e.Lists()[ID{"a", pod}]["eth0"][Ingress]
		for _, port := range []uint16{80, 443} {
			want := Allow
			if slices.Contains(denied, port) {
				want = Deny
			}
			if l == nil && want == Allow {
				continue
			}
			if r := l.Decide(address("192.0.2.1"), TCP, port); r.Action != want {
				t.Errorf("port %d of %s: %+v", port, pod, r)
			}
		}
	}
}

func TestPolicyWithoutRulesIsNotOverALimit(t *testing.T) {
	limits := DefaultLimits
	limits.Node = 5
	e := NewEngine(Config{Limits: limits})
	e.SetPod(podAt("a/p", true, "10.0.0.1"))
	e.SetPolicy(networkPolicy(t, "a/deny", `{podSelector: {}, policyTypes: [Ingress]}`))
	e.SetPolicy(networkPolicy(t, "a/large", bigSpec("{}", 10, 1)))
	e.Compile()
	if x := e.Excess(); len(x) != 1 || x[0].Of != "NetworkPolicy a/large" {
		t.Errorf("excess %v", x)
	}
}
