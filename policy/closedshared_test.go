package policy

import (
	"net/netip"
	"testing"
)

// Two Services have an address and port, so both must be permitted. One is over the limit, and one of its endpoints is denied.
func TestServiceOverALimitIsNotOpenedByAnotherOneAtItsAddress(t *testing.T) {
	limits := DefaultLimits
	limits.NamespaceLookups = 5
	e := NewEngine(Config{Limits: limits})
	e.SetPod(podAt("shop/client", true, "10.0.0.1"))
	e.SetPod(podAt("shop/web", false, "10.0.0.2", "app=web"))
	e.SetPolicy(networkPolicy(t, "shop/p", `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}]}`))
	service := func(name string, backends ...netip.Addr) {
		e.SetService(Service{Name: name, Frontends: []Frontend{{Addresses: []netip.Addr{address("203.0.113.9")}, External: true, Protocol: TCP, Port: 80, Backends: []Backends{{backends, 80}}}}})
	}
	service("large/s", address("10.0.0.2"), address("10.0.0.9"), address("10.0.0.10"), address("10.0.0.11"))
	service("small/s", address("10.0.0.2"))
	e.Compile()
	if r := e.Lists()[ID{"shop", "client"}]["eth0"][Egress].Decide(address("203.0.113.9"), TCP, 80); r.Action != Deny {
		t.Errorf("a denied endpoint: %+v", r)
	}
}
