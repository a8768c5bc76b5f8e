package policy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	adminv1 "sigs.k8s.io/network-policy-api/apis/v1alpha1"
)

// Services beside denied prefixes need further rules. These count towards the limit as others do.
func TestRulesOfServicesBesideDeniedPrefixesAreWithinTheLimit(t *testing.T) {
	limits := DefaultLimits
	limits.Closed = 4
	limits.NamespaceLookups = 100
	limits.Services = 5
	e := NewEngine(Config{Limits: limits})
	e.SetPod(podAt("shop/client", true, "10.0.0.1"))
	e.SetPod(podAt("shop/web", false, "10.0.0.2", "app=web"))
	e.SetPolicy(networkPolicy(t, "shop/p", `{podSelector: {}, policyTypes: [Egress], egress: [
		{to: [{podSelector: {matchLabels: {app: web}}}]}, {to: [{ipBlock: {cidr: 10.96.0.0/24}}]}]}`))
	service := func(name, backend string, ips ...string) {
		f := Frontend{Protocol: TCP, Port: 80, Backends: []Backends{{[]netip.Addr{address(backend)}, 80}}}
		for _, ip := range ips {
			f.Addresses = append(f.Addresses, address(ip))
		}
		e.SetService(Service{Name: name, Frontends: []Frontend{f}})
	}
	var evil []string
	for n := range 100 {
		evil = append(evil, fmt.Sprintf("10.96.0.%d", 2*n))
	}
	service("evil/s", "10.0.0.9", evil...)
	service("shop/beside", "10.0.0.2", "10.96.0.7")
	for n := range limits.Services {
		service(fmt.Sprint("shop/far", n), "10.0.0.2", fmt.Sprint("10.96.1.", n))
	}
	e.Compile()
	l := e.Lists()[ID{"shop", "client"}]["eth0"][Egress]
	size := 0
	for n := range l.Rules {
		if strings.HasPrefix(l.Rules[n].Origin, "Service ") {
			size += l.Rules[n].Size(false)
		}
	}
	if size != limits.Services {
		t.Errorf("%d rules of Services, want %d: %+v", size, limits.Services, l.Rules)
	}
	allowed := 0
	for _, ip := range []string{"10.96.0.7", "10.96.1.0", "10.96.1.1", "10.96.1.2", "10.96.1.3", "10.96.1.4"} {
		if r := l.Decide(address(ip), TCP, 80); r.Action == Allow {
			allowed++
		}
	}
	if allowed != limits.Services {
		t.Errorf("%d Services are reached: %+v", allowed, l.Rules)
	}
	if x := e.Excess(); len(x) != 2 {
		t.Errorf("excess %v", x)
	}
}

// Operators read which pod needs most. Of several pods it is the first by name.
func TestExcessNamesThePodForWhichItIsLargest(t *testing.T) {
	limits := DefaultLimits
	limits.Own = 100
	e := NewEngine(Config{Limits: limits})
	for name, ports := range map[string][]uint16{"a/p1": {80}, "a/p2": {80, 90}, "a/p3": {80, 90}} {
		p := podAt(name, true, "10.0.0.1")
		for _, port := range ports {
			p.Ports = append(p.Ports, NamedPort{Name: "http", Protocol: TCP, Port: port})
		}
		e.SetPod(p)
	}
	e.SetPolicy(networkPolicy(t, "a/big", strings.Replace(bigSpec("{}", 150, 1), "port: 1000", "port: http", 1)))
	e.Compile()
	x := e.Excess()
	if len(x) != 1 || x[0].Pod != (ID{"a", "p2"}) || x[0].Size != 300 {
		t.Errorf("excess %+v, want one of 300 rules for a/p2", x)
	}
}

// A rule of a policy is there once more for each rule that passes and matches the same addresses.
func TestRulesBehindRulesThatPassCountTowardsTheLimit(t *testing.T) {
	limits := DefaultLimits
	limits.Own = 100
	e := NewEngine(Config{Limits: limits})
	e.SetPod(podAt("a/p", true, "10.0.0.1"))
	var to []string
	for n := range 60 {
		to = append(to, fmt.Sprintf("{ipBlock: {cidr: 198.18.0.%d/32}}", 2*n))
	}
	p := networkPolicy(t, "a/p",
		fmt.Sprintf(`{podSelector: {}, policyTypes: [Egress], egress: [{to: [%s]}]}`, strings.Join(to, ", ")))
	e.SetPolicy(p)
	e.Compile()
	if x := e.Excess(); len(x) != 0 {
		t.Fatalf("without rules that pass: %v", x)
	}
	admin := &adminv1.AdminNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "pass"}}
	admin.Spec.Subject.Namespaces = &metav1.LabelSelector{}
	admin.Spec.Egress = []adminv1.AdminNetworkPolicyEgressRule{{
		Action: adminv1.AdminNetworkPolicyRuleActionPass,
		To:     []adminv1.AdminNetworkPolicyEgressPeer{{Networks: []adminv1.CIDR{"198.18.0.0/15"}}},
	}}
	o, err := OfAdminNetworkPolicy(admin)
	if err != nil {
		t.Fatal(err)
	}
	e.SetPolicy(o)
	e.Compile()
	if x := e.Excess(); len(x) != 1 || x[0].Of != "NetworkPolicy a/p" || x[0].Size != 120 {
		t.Errorf("excess %+v, want one of 120 rules", x)
	}
}
