package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
	"github.com/weftnet/weft/test/programs"
)

// prefixes parses prefixes.
func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// by is a route.
func by(to, via string) node.Route {
	return node.Route{To: netip.MustParsePrefix(to), Via: netip.MustParseAddr(via)}
}

// newSite is a node with networks, without pods.
func newSite(t *testing.T, networks ...node.Network) *lab {
	t.Helper()
	l := newLabWith(t, programs.Build(t), node.Options{Embedded: true})
	must.Succeed(t, l.SetNetworks(networks))
	must.Succeed(t, errors.Join(l.StopAgent(), l.StartAgent(t.Context())))
	return l
}

// add connects a pod with interfaces and their options.
func (l *lab) add(name, interfaces, options string) (p *node.Pod, result []byte) {
	l.Helper()
	p = l.pod(name)
	annotations := map[string]string{customInterfaces: interfaces}
	if options != "" {
		annotations[customOptions] = options
	}
	return p, l.cni("ADD", p, annotated(annotations))
}

// routesOf lists the kernel's routes of a pod to a destination, as ip-route(8) prints them.
func (l *lab) routesOf(p *node.Pod, to string) (routes []string) {
	l.Helper()
	netnstest.Do(l.T, p.Netns, func() {
		out, err := exec.CommandContext(l.Context(), "ip", "route", "show", "to", "exact", to).Output()
		must.Succeed(l.T, err)
		for line := range strings.Lines(string(out)) {
			routes = append(routes, strings.Join(strings.Fields(line), " "))
		}
	})
	return routes
}

// wantRoute fails the test unless the pod has one route to a destination, which begins with these words.
func (l *lab) wantRoute(p *node.Pod, to, words string) {
	l.Helper()
	if routes := l.routesOf(p, to); len(routes) != 1 || !strings.HasPrefix(routes[0], words) {
		l.Errorf("%s: routes to %s: %q, want %q", p.Name, to, routes, words)
	}
}

// mustNotReach fails the test if an address answers a ping within a second.
func (l *lab) mustNotReach(from *node.Pod, to netip.Addr) {
	l.Helper()
	p, err := ping.Open(from.Netns, to)
	must.Succeed(l.T, err)
	defer p.Close()
	ctx, cancel := context.WithTimeout(l.Context(), time.Second)
	defer cancel()
	if _, err := p.Once(ctx, to, 1); err == nil {
		l.Errorf("from %s: %s answers", from.Name, to)
	}
}

// Two networks with a pod between them that routes: no pod is privileged, and none sets a route itself. The router is
// the next hop of both networks' routes, so it gets neither.
func TestAPodRoutesBetweenTwoNetworks(t *testing.T) {
	for _, kind := range []string{"tap", "veth"} {
		t.Run(kind, func(t *testing.T) {
			l := newSite(t,
				node.Network{
					Name: "left", Type: "L2", CIDRs: prefixes("10.78.0.0/24", "fd78::/64"),
					Routes: []node.Route{by("10.79.0.0/24", "10.78.0.254"), by("fd79::/64", "fd78::fe")},
				},
				node.Network{
					Name: "right", Type: "L2", CIDRs: prefixes("10.79.0.0/24", "fd79::/64"),
					Routes: []node.Route{by("10.78.0.0/24", "10.79.0.254"), by("fd78::/64", "fd79::fe")},
				})
			before := l.snapshot()
			router, routed := l.add("router", "left/"+kind+"/left, right/"+kind+"/right", `{
				"left": {"ips": ["10.78.0.254", "fd78::fe"], "ipForwarding": true},
				"right": {"ips": ["10.79.0.254", "fd79::fe"], "ipForwarding": true}}`)
			a, result := l.add("a", "left/"+kind+"/left", "")
			b, _ := l.add("b", "right/"+kind+"/right", `{"right": {"ips": ["10.79.0.10", "fd79::10"]}}`)
			l.wantRoute(a, "10.79.0.0/24", "10.79.0.0/24 via 10.78.0.254 dev left")
			for _, network := range []string{"10.78.0.0/24", "10.79.0.0/24"} {
				for _, route := range l.routesOf(router, network) {
					if strings.Contains(route, "via") {
						t.Errorf("the router has the route %q", route)
					}
				}
			}
			for _, to := range []string{"10.79.0.10", "fd79::10"} {
				l.mustReach(a, netip.MustParseAddr(to))
			}
			l.check(a, result)
			l.check(router, routed)
			must.Succeed(t, l.KillAgent())
			l.start()
			if operations := l.resyncs(); len(operations) > 0 {
				t.Errorf("the resync after a restart does %v", operations)
			}
			l.mustReach(a, netip.MustParseAddr("10.79.0.10"))
			for _, p := range []*node.Pod{a, b, router} {
				l.cni("DEL", p, nil)
			}
			if left := l.snapshot().Since(before); len(left) > 0 {
				t.Errorf("the pods left %v", left)
			}
		})
	}
}

// A network whose router is a pod with the first address: the dataplane has no address there, and answers for none.
func TestAPodIsTheRouterWithTheFirstAddress(t *testing.T) {
	l := newSite(t, node.Network{
		Name: "site", Type: "L2", CIDRs: prefixes("10.77.0.0/24", "fd77::/64"), Gateway: "none",
		Reserved: []string{"10.77.0.2-10.77.0.9", "fd77::2-fd77::9"}, Excluded: []string{"10.77.0.1", "fd77::1"},
		Routes: []node.Route{by("10.50.0.0/16", "10.77.0.1"), by("fd50::/64", "fd77::1")},
	})
	a, result := l.add("a", "t1/tap/site", "")
	if got := l.addresses(result); !slices.Contains(got, netip.MustParseAddr("10.77.0.10")) ||
		!slices.Contains(got, netip.MustParseAddr("fd77::a")) {
		t.Errorf("the addresses %v are not the first that are neither reserved nor excluded", got)
	}
	var reply struct {
		IPs []struct{ Address, Gateway string }
	}
	must.Succeed(t, json.Unmarshal(result, &reply))
	for _, ip := range reply.IPs {
		if strings.Contains(ip.Address, "77") && ip.Gateway != "" {
			t.Errorf("%s has the gateway %s", ip.Address, ip.Gateway)
		}
	}
	l.mustNotReach(a, netip.MustParseAddr("10.77.0.1"))
	router, _ := l.add("router", "t1/veth/site", `{"t1": {"ips": ["10.77.0.1", "fd77::1"]}}`)
	for _, to := range []string{"10.77.0.1", "fd77::1"} {
		l.mustReach(a, netip.MustParseAddr(to))
	}
	l.wantRoute(a, "10.50.0.0/16", "10.50.0.0/16 via 10.77.0.1 dev t1")
	l.check(a, result)
	l.cni("DEL", router, nil)
	l.cni("DEL", a, nil)
}

// The default route of a pod leads through a custom network, the pods of the node stay reachable through the main
// interface, and a route names another interface.
func TestTheDefaultRouteLeadsThroughACustomNetwork(t *testing.T) {
	l := newSite(t,
		node.Network{Name: "site", Type: "L2", CIDRs: prefixes("10.77.0.0/24", "fd77::/64"), Gateway: "10.77.0.254"},
		node.Network{Name: "routed", Type: "L3", CIDRs: prefixes("10.76.0.0/24")})
	other, otherResult := l.add("other", "", "")
	p, result := l.add("p", "t1/tap/site, t2/veth/routed", `{
		"t1": {"gateway": "10.77.0.9", "routes": [{"to": "10.96.0.0/12", "interface": "eth0"}]},
		"t2": {"routes": [{"to": "10.60.0.0/16"}, {"to": "0.0.0.0/0", "metric": 100}]}}`)
	l.wantRoute(p, "10.96.0.0/12", "10.96.0.0/12 via 169.254.1.1 dev eth0")
	l.wantRoute(p, "10.60.0.0/16", "10.60.0.0/16 via 10.76.0.1 dev t2")
	defaults := l.routesOf(p, "default")
	if len(defaults) != 2 || !strings.HasPrefix(defaults[0], "default via 10.77.0.9 dev t1") ||
		!strings.HasPrefix(defaults[1], "default via 10.76.0.1 dev t2") || !strings.Contains(defaults[1], "metric 100") {
		t.Errorf("default routes: %q", defaults)
	}
	if !strings.Contains(string(result), `"priority": 100`) {
		t.Errorf("the result has no priority of the second default route: %s", result)
	}
	for _, a := range l.addresses(otherResult) {
		l.mustReach(p, a)
	}
	l.mustReach(p, netip.MustParseAddr("10.77.0.254"))
	l.check(p, result)
	must.Succeed(t, l.KillAgent())
	l.start()
	if operations := l.resyncs(); len(operations) > 0 {
		t.Errorf("the resync after a restart does %v", operations)
	}
	l.cni("DEL", p, nil)
	l.cni("DEL", other, nil)
}
