package policy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// Each lookup among rules with prefixes of many lengths takes as many searches, so it counts more than once. Services
// of other namespaces stay.
func TestLookupsAmongPrefixesOfManyLengthsCountMore(t *testing.T) {
	limits := DefaultLimits
	limits.Lookups = 200
	limits.NamespaceLookups = 100
	for _, tt := range []struct {
		lengths int
		want    Action
		decided int // Services
	}{{30, Allow, 2}, {120, Deny, 1}, {30, Allow, 2}} {
		e := NewEngine(Config{Limits: limits})
		e.SetPod(podAt("shop/client", true, "10.0.0.1"))
		e.SetPod(podAt("shop/web", false, "10.0.0.2", "app=web"))
		var rules []string
		for n := range tt.lengths {
			rules = append(rules, fmt.Sprintf("{to: [{ipBlock: {cidr: fd00::/%d}}]}", 8+n))
		}
		e.SetPolicy(networkPolicy(t, "shop/p",
			fmt.Sprintf(
				`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}, %s]}`,
				strings.Join(rules, ", "))))
		service := func(name string, ips ...netip.Addr) {
			e.SetService(Service{
				Name: name,
				Frontends: []Frontend{
					{
						Addresses: ips,
						Protocol:  TCP,
						Port:      80,
						Backends:  []Backends{{[]netip.Addr{address("10.0.0.2")}, 80}},
					},
				},
			})
		}
		var many []netip.Addr
		for n := range 60 {
			many = append(many, address(fmt.Sprintf("10.97.0.%d", 2*n)))
		}
		service("shop/many", many...)
		service("other/one", address("10.96.0.1"))
		e.Compile()
		l := e.Lists()[ID{"shop", "client"}]["eth0"][Egress]
		for ip, want := range map[string]Action{
			"10.96.0.1":   Allow,
			"10.97.0.0":   tt.want,
			"10.97.0.118": tt.want,
			"10.98.0.1":   Deny,
		} {
			if r := l.Decide(address(ip), TCP, 80); r.Action != want {
				t.Errorf("%d lengths: to %s: %+v", tt.lengths, ip, r)
			}
		}
		if n := e.work.Services; n != tt.decided {
			t.Errorf("%d lengths: the endpoints of Services are looked up %d times, want %d", tt.lengths, n, tt.decided)
		}
		x := e.Excess()
		if tt.want == Allow && len(x) != 0 ||
			tt.want == Deny &&
				(len(x) != 1 || x[0].Of != "Service shop/many" || x[0].Size != 4*63 || x[0].Unit != unitLookups) {
			t.Errorf("%d lengths: excess %+v", tt.lengths, x)
		}
	}
}

// Its addresses are known, its endpoints are not: without a rule a pod that may reach the addresses would reach what it
// may not.
func TestServiceWhoseEndpointsWereNotReadIsDenied(t *testing.T) {
	e := NewEngine(Config{})
	e.SetPod(podAt("shop/client", true, "10.0.0.1"))
	e.SetPolicy(networkPolicy(t, "shop/p",
		`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}`))
	s := Service{
		Name:      "large/s",
		Frontends: []Frontend{{Addresses: []netip.Addr{address("10.96.0.1")}, Protocol: TCP, Port: 80}},
	}
	for _, step := range []struct {
		unread int
		want   Action
	}{{0, Allow}, {MaxEndpoints + 1, Deny}, {0, Allow}} {
		s.Unread = step.unread
		e.SetService(s)
		e.Compile()
		if r := e.Lists()[ID{"shop", "client"}]["eth0"][Egress].Decide(address("10.96.0.1"), TCP,
			80); r.Action != step.want {
			t.Errorf("%d endpoints were not read: %+v", step.unread, r)
		}
		if x := e.Excess(); (len(x) == 1) != (step.want == Deny) || len(x) == 1 && x[0].Of != "Service large/s" {
			t.Errorf("%d endpoints were not read: excess %v", step.unread, x)
		}
	}
}
