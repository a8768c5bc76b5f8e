package ipnet_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/pod"
)

func routeTo(to, via string) pod.RouteRequest {
	r := pod.RouteRequest{To: netip.MustParsePrefix(to)}
	if via != "" {
		r.Via = netip.MustParseAddr(via)
	}
	return r
}

// sites are three networks: left and right have routes through a pod, routed leads through the dataplane.
func sites() []pod.Network {
	left := custom("left", pod.L2, "10.78.0.0/24", "fd78::/64")
	left.Routes = []pod.RouteRequest{routeTo("10.79.0.0/24", "10.78.0.254"), routeTo("10.50.0.0/16", "10.78.0.254")}
	right := custom("right", pod.L2, "10.79.0.0/24")
	right.Routes = []pod.RouteRequest{routeTo("10.78.0.0/24", "10.79.0.254")}
	routed := custom("routed", pod.L3, "10.76.0.0/24")
	routed.Routes = []pod.RouteRequest{routeTo("10.60.0.0/16", "")}
	bare := custom("bare", pod.L2)
	bare.CIDRs = nil
	return []pod.Network{left, right, routed, bare}
}

// routesOf describes the routes of the interfaces of an attachment.
func routesOf(a *pod.Attachment) string {
	var lines []string
	for _, i := range a.Interfaces {
		lines = append(lines, fmt.Sprint(i.Name, " ", i.Routes))
	}
	return strings.Join(lines, "\n")
}

func TestPodsGetTheRoutesOfTheirNetworksAndOptions(t *testing.T) {
	const main = "eth0 [169.254.1.1/32 0.0.0.0/0 via 169.254.1.1]\n"
	for name, tt := range map[string]struct{ interfaces, options, want string }{
		"of the network": {
			"t1/tap/left", "", main + "t1 [10.79.0.0/24 via 10.78.0.254 10.50.0.0/16 via 10.78.0.254]",
		},
		"of the router itself": {
			"t1/tap/left, t2/veth/right", `{"t1": {"ips": ["10.78.0.254"]}, "t2": {"ips": ["10.79.0.254"]}}`,
			main + "t1 []\nt2 []",
		},
		"of a second router, which is connected to both": {
			"t1/tap/left, t2/veth/right", "",
			main + "t1 [10.50.0.0/16 via 10.78.0.254]\nt2 []",
		},
		"of two interfaces on the network": {
			"t1/tap/left, t2/veth/left", "",
			main + "t1 [10.79.0.0/24 via 10.78.0.254 10.50.0.0/16 via 10.78.0.254]\nt2 []",
		},
		"of a kernel's interface and a memif on the network": {
			"t1/tap/left, m1/memif/left", "",
			main + "t1 [10.79.0.0/24 via 10.78.0.254 10.50.0.0/16 via 10.78.0.254]\n" +
				"m1 [10.79.0.0/24 via 10.78.0.254 10.50.0.0/16 via 10.78.0.254]",
		},
		"by two interfaces of the dataplane": {
			"t1/tap/routed, t2/tap/routed", "",
			main + "t1 [10.76.0.1/32 10.76.0.0/24 via 10.76.0.1 10.60.0.0/16 via 10.76.0.1]\nt2 []",
		},
		"by the dataplane": {
			"t1/tap/routed", "",
			main + "t1 [10.76.0.1/32 10.76.0.0/24 via 10.76.0.1 10.60.0.0/16 via 10.76.0.1]",
		},
		"an option precedes the network": {
			"t1/tap/left", `{"t1": {"routes": [{"to": "10.50.0.0/16", "via": "10.78.0.9"}]}}`,
			main + "t1 [10.50.0.0/16 via 10.78.0.9 10.79.0.0/24 via 10.78.0.254]",
		},
		"another metric stands beside the network's": {
			"t1/tap/left", `{"t1": {"routes": [{"to": "10.50.0.0/16", "via": "10.78.0.9", "metric": 5}]}}`,
			main + "t1 [10.50.0.0/16 via 10.78.0.9 metric 5 10.79.0.0/24 via 10.78.0.254 10.50.0.0/16 via 10.78.0.254]",
		},
		"through another interface": {
			"t1/tap/routed", `{"t1": {"routes": [{"to": "10.96.0.0/12", "interface": "eth0"}]}}`,
			"eth0 [169.254.1.1/32 0.0.0.0/0 via 169.254.1.1 10.96.0.0/12 via 169.254.1.1]\n" +
				"t1 [10.76.0.1/32 10.76.0.0/24 via 10.76.0.1 10.60.0.0/16 via 10.76.0.1]",
		},
		"the default route": {
			"t1/tap/left", `{"t1": {"gateway": "10.78.0.254"}}`,
			"eth0 [169.254.1.1/32 10.1.0.0/28 via 169.254.1.1]\n" +
				"t1 [0.0.0.0/0 via 10.78.0.254 10.79.0.0/24 via 10.78.0.254 10.50.0.0/16 via 10.78.0.254]",
		},
		"the default route by the dataplane": {
			"t1/tap/routed", `{"t1": {"defaultRoute": true}}`,
			"eth0 [169.254.1.1/32 10.1.0.0/28 via 169.254.1.1]\n" +
				"t1 [10.76.0.1/32 10.76.0.0/24 via 10.76.0.1 0.0.0.0/0 via 10.76.0.1 10.60.0.0/16 via 10.76.0.1]",
		},
		"a network without addresses": {
			"t1/tap/bare", `{"t1": {"ips": ["192.0.2.5/24"], "routes": [{"to": "10.2.0.0/16", "via": "192.0.2.1"}]}}`,
			main + "t1 [10.2.0.0/16 via 192.0.2.1]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, four).run(t)
			if refused := n.set(t, sites()...); len(refused) > 0 {
				t.Fatal(refused)
			}
			ev := asking("a", tt.interfaces, tt.options)
			a := n.add(t, ev)
			if got := routesOf(a); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
			before := list(t, n.committer.Values())
			n = n.restarted(t)
			if after := list(t, n.committer.Values()); after != before {
				t.Errorf("after a restart\n%s\nbefore\n%s", after, before)
			}
			n.delete(t, ev)
		})
	}
}

// The default routes of both families move to the routers, and the pods of the network default stay reachable in both.
func TestDefaultRoutesOfBothFamiliesMove(t *testing.T) {
	n := newNode(t, four, six).run(t)
	n.set(t, sites()...)
	a := n.add(t, asking("a", "t1/tap/left", `{"t1": {"gateway": "10.78.0.254,fd78::fe"}}`))
	want := "eth0 [169.254.1.1/32 10.1.0.0/28 via 169.254.1.1 2001:db8:1::/64 via fe80::1]\n" +
		"t1 [0.0.0.0/0 via 10.78.0.254 ::/0 via fd78::fe " +
		"10.79.0.0/24 via 10.78.0.254 10.50.0.0/16 via 10.78.0.254]"
	if got := routesOf(a); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestContradictoryRoutesAreRefused(t *testing.T) {
	for options, want := range map[string]string{
		`{"t1": {"gateway": "198.51.100.9"}}`: "route 0.0.0.0/0 via 198.51.100.9: interface t1 has no address of this family",
		`{"t1": {"routes": [{"to": "10.2.0.0/16", "via": "10.9.0.1"}]}}`: "interface t1: routes: 10.2.0.0/16 via 10.9.0.1: " +
			"via is not the address of a host in the cidrs of network left",
		`{"t1": {"ips": ["192.0.2.5/24"], "gateway": "198.51.100.1"}}`:     "198.51.100.1 is not on the link of interface t1",
		`{"t1": {"routes": [{"to": "10.78.0.0/24"}]}}`:                     "this is the network itself",
		`{"t1": {"routes": [{"to": "10.79.0.0/24", "via": "10.78.0.9"}]}}`: "the pod is connected to it by interface t2",
		`{"t1": {"routes": [{"to": "10.2.0.0/16", "interface": "t9"}]}}`:   "the pod has no interface t9 that Weft connects",
		`{"t1": {"routes": [{"to": "fd02::/64", "interface": "t2"}]}}`:     "interface t2 has no address of this family",
		`{"t1": {"gateway": "10.78.0.9"}, "t2": {"gateway": "10.79.0.9"}}`: "interface t1 has a route to this destination",
		`{"t1": {"ips": ["10.78.0.9"], "gateway": "10.78.0.9"}}`:           "10.78.0.9 is the interface's own address",
		`{"t1": {"routes": [{"to": "0.0.0.0/0", "via": "169.254.1.1"}]}}`:  "via is not the address of a host in the cidrs",
		`{"t2": {"routes": [{"to": "10.2.0.0/16"}]}, "t1": {"routes": [{"to": "10.2.0.0/16", "via": "10.78.0.9"}]}}`: "interface " +
			"t1 has a route to this destination; give one of them another metric",
	} {
		n := newNode(t, four).run(t)
		n.set(t, sites()...)
		before := n.state(t)
		interfaces := "t1/tap/left, t2/veth/right"
		if strings.Contains(options, "192.0.2.5") {
			interfaces = "t1/tap/bare"
		} else if strings.Contains(options, "198.51.100.9") {
			interfaces = "t1/tap/bare"
		}
		err := n.refuses(t, asking("a", interfaces, options))
		checkRefusal(t, err, pod.CodeInvalidAnnotation, want)
		if after := n.state(t); after != before {
			t.Errorf("%s left\n%s\nbefore\n%s", options, after, before)
		}
	}
}

// A network with pods takes over new routes and ranges, and keeps its gateway.
func TestANetworkWithPodsChangesItsRoutesAndRanges(t *testing.T) {
	n := newNode(t, four).run(t)
	blue := custom("blue", pod.L2, "10.5.0.0/24")
	n.set(t, blue)
	first := n.add(t, asking("a", "x1/tap/blue", ""))
	blue.Routes = []pod.RouteRequest{routeTo("10.50.0.0/16", "10.5.0.9")}
	blue.Reserved = netaddr.Ranges{{First: netip.MustParseAddr("10.5.0.1"), Last: netip.MustParseAddr("10.5.0.9")}}
	if refused := n.set(t, blue); len(refused) > 0 {
		t.Fatal(refused)
	}
	n = n.restarted(t)
	second := n.add(t, asking("b", "x1/tap/blue", ""))
	if got := routesOf(second); !strings.HasSuffix(got, "x1 [10.50.0.0/16 via 10.5.0.9]") ||
		second.Interfaces[1].Addresses[0] != netip.MustParsePrefix("10.5.0.10/24") {
		t.Errorf("the next pod has %v and\n%s", second.Interfaces[1].Addresses, got)
	}
	if routes := first.Interfaces[1].Routes; len(routes) > 0 {
		t.Errorf("the running pod has %v", routes)
	}
	err := n.refuses(t, asking("c", "x1/tap/blue", `{"x1": {"ips": ["10.5.0.7"]}}`))
	checkRefusal(t, err, pod.CodeUnknownNetwork, "address 10.5.0.7 of pool blue:ip4 is reserved")
	other := blue
	other.Gateway = pod.Gateway{None: true}
	if refused := n.set(t, other); !strings.Contains(refused["blue"], "gateway, VNI and direct cannot change") {
		t.Errorf("another gateway: refused %v", refused)
	}
	n.delete(t, asking("a", "", ""))
	n.delete(t, asking("b", "", ""))
	if refused := n.set(t, other); len(refused) > 0 {
		t.Errorf("another gateway without pods: %v", refused)
	}
	third := n.add(t, asking("d", "x1/tap/blue", ""))
	isNeighbour := func(key string) bool {
		return strings.HasPrefix(key, "vpp.neighbour/") && strings.Contains(key, "-x1/")
	}
	if i := third.Interfaces[1]; len(i.Gateways) > 0 || slices.ContainsFunc(n.Pods.Objects(third), isNeighbour) {
		t.Errorf("gateways %v and objects %v of a network without a gateway", i.Gateways, n.Pods.Objects(third))
	}
}
