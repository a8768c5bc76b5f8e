package policy

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
)

// Two Services have an address and port, so both must be permitted. One is over the limit, and one of its endpoints is
// denied.
func TestServiceOverALimitIsNotOpenedByAnotherOneAtItsAddress(t *testing.T) {
	limits := DefaultLimits
	limits.NamespaceLookups = 5
	e := NewEngine(Config{Limits: limits})
	e.SetPod(podAt("shop/client", true, "10.0.0.1"))
	e.SetPod(podAt("shop/web", false, "10.0.0.2", "app=web"))
	e.SetPolicy(networkPolicy(t, "shop/p",
		`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}]}`))
	service := func(name string, backends ...netip.Addr) {
		e.SetService(Service{
			Name: name,
			Frontends: []Frontend{
				{
					Addresses: []netip.Addr{address("203.0.113.9")},
					External:  true,
					Protocol:  TCP,
					Port:      80,
					Backends:  []Backends{{backends, 80}},
				},
			},
		})
	}
	service("large/s", address("10.0.0.2"), address("10.0.0.9"), address("10.0.0.10"), address("10.0.0.11"))
	service("small/s", address("10.0.0.2"))
	e.Compile()
	if r := e.Lists()[ID{"shop", "client"}]["eth0"][Egress].Decide(address("203.0.113.9"), TCP, 80); r.Action != Deny {
		t.Errorf("a denied endpoint: %+v", r)
	}
}

// A Service needs more rules because another one is closed at its addresses, and these have no room.
func TestServiceWithoutRoomDoesNotOpenTheAddressOfAClosedOne(t *testing.T) {
	limits := DefaultLimits
	limits.Services = 2
	limits.NamespaceLookups = 20
	e := NewEngine(Config{Limits: limits})
	e.SetPod(podAt("shop/client", true, "10.0.0.1"))
	e.SetPolicy(networkPolicy(t, "shop/p", `{podSelector: {}, policyTypes: [Egress],
egress: [{to: [{ipBlock: {cidr: 10.0.0.2/32}}, {ipBlock: {cidr: 203.0.113.0/24}}]}]}`))
	permitted := []Backends{{[]netip.Addr{address("10.0.0.2")}, 80}}
	shared := []netip.Addr{address("198.51.100.1")}
	others := []netip.Addr{address("203.0.113.1"), address("203.0.113.2"), address("203.0.113.4")}
	external := func(addresses []netip.Addr, port uint16) Frontend {
		return Frontend{Addresses: addresses, External: true, Protocol: TCP, Port: port, Backends: permitted}
	}
	e.SetService(Service{Name: "small/s", Frontends: []Frontend{external(shared, 80), external(others, 85)}})
	decide := func() Rule {
		e.Compile()
		return e.Lists()[ID{"shop", "client"}]["eth0"][Egress].Decide(shared[0], TCP, 80)
	}
	if r := decide(); r.Action != Allow {
		t.Errorf("alone: %+v", r)
	}
	large := Service{Name: "large/s", Frontends: []Frontend{external(others, 81)}}
	for port := range uint16(10) {
		large.Frontends = append(large.Frontends, external(shared, 80+2*port))
	}
	e.SetService(large)
	if r := decide(); r.Action != Deny || len(e.Excess()) != 2 {
		t.Errorf("with %v: %+v", e.Excess(), r)
	}
}

// If Services need more and more rules at each choice, the last ones have no room. Those that share an address with a
// closed one keep what denies.
func TestServicesWithoutRoomKeepNoRuleThatAClosedOneContradicts(t *testing.T) {
	rule := func(a Action, ip string) Rule {
		remotes := []netip.Prefix{netaddr.Single(address(ip))}
		return Rule{Action: a, Remotes: remotes, Ports: rangesOf(TCP, Range{80, 80})}
	}
	at := func(name, ip string) *Service {
		return &Service{
			Name:      name,
			Frontends: []Frontend{{Addresses: []netip.Addr{address(ip)}, Protocol: TCP, Port: 80}},
		}
	}
	d := &decider{
		plan: &servicePlan{
			open: []*Service{at("a/room", "10.96.0.1"), at("b/shared", "10.96.0.2"), at("c/beside", "10.96.0.3")},
		},
	}
	d.close([]*Service{at("x/closed", "10.96.0.2")})
	decisions := []decision{
		{internal: []Rule{rule(Allow, "10.96.0.1")}},
		{
			internal: []Rule{rule(Allow, "10.96.0.2"), rule(Deny, "10.96.0.2")},
			external: []Rule{rule(Allow, "10.96.0.2"), rule(Deny, "10.96.0.2")},
		},
		{internal: []Rule{rule(Allow, "10.96.0.3")}},
	}
	more := func(of decision) decision {
		return decision{append(of.internal[:len(of.internal):len(of.internal)], rule(Allow, "10.96.9.9")), of.external}
	}
	of := choice{rules: map[int]decision{}}
	for n := range decisions {
		of.rules[n] = more(decisions[n])
	}
	internal, external := d.within(of, decisions, 7) // six, and one for the first that needs more
	want := []Rule{
		rule(Allow, "10.96.0.1"), rule(Allow, "10.96.9.9"), rule(Deny, "10.96.0.2"), rule(Allow, "10.96.0.3"),
	}
	if !reflect.DeepEqual(internal, want) || !reflect.DeepEqual(external, []Rule{rule(Deny, "10.96.0.2")}) {
		t.Errorf("%+v, %+v", internal, external)
	}
}
