package ipnet_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// behind returns a network that routes prefixes to pods.
func behind() pod.Network {
	n := vni(custom("blue", pod.L3, "10.5.0.0/24", "fd05::/120"), 500)
	n.AntiSpoof = true
	n.RoutedPrefixes = []netip.Prefix{netip.MustParsePrefix("10.60.0.0/16"), netip.MustParsePrefix("fd60::/48")}
	return n
}

// withRouted adds prefixes behind pods of a network to a node.
func withRouted(n pod.Node, network string, prefixes ...string) pod.Node {
	part := pod.NodePart{Network: network}
	for _, p := range prefixes {
		part.Routed = append(part.Routed, netip.MustParsePrefix(p))
	}
	n.Parts = append(slices.Clone(n.Parts), part)
	return n
}

// routesTo describes the routes of network blue within the permitted prefixes.
func (n *node) routesTo() string {
	var lines []string
	network := behind()
	for _, value := range n.committer.Values() {
		r, isRoute := value.(wire.Route)
		if isRoute && strings.HasPrefix(r.VRF, "weft:blue") && network.PermitsRouted(r.Prefix) {
			lines = append(lines, fmt.Sprint(r.Prefix, " to ", r.Paths[0].Interface, " via ", r.Paths[0].NextHop))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestANetworkRoutesPrefixesToAPod(t *testing.T) {
	n := newNode(t, four).run(t)
	n.set(t, behind())
	router := asking("router", "t1/tap/blue", `{"t1": {"routedPrefixes": ["10.60.1.0/24", "fd60:0:0:1::/64"]}}`)
	a := n.add(t, router)
	t1 := a.Interfaces[1]
	want := fmt.Sprintf("10.60.1.0/24 to %s via %s\nfd60:0:0:1::/64 to %s via %s",
		t1.Object, t1.Addresses[0].Addr(), t1.Object, t1.Addresses[1].Addr())
	check := func(when, want string) {
		t.Helper()
		if got := n.routesTo(); got != want {
			t.Errorf("%s: routes\n%s\nwant\n%s", when, got, want)
		}
	}
	check("added", want)
	rules, _ := n.committer.Values()[wire.MACIPKey(t1.Object)].(wire.MACIP)
	for _, p := range t1.RoutedPrefixes {
		if !slices.ContainsFunc(rules.Rules, func(r wire.MACIPRule) bool { return r.Source == p }) {
			t.Errorf("the pod cannot send from %s: %v", p, rules.Rules)
		}
	}
	n = n.restarted(t)
	check("after a restart", want)
	n.delete(t, router)
	check("deleted", "")
}

func TestAPrefixLeadsToOnePod(t *testing.T) {
	n := nodeOf(t, meshed("vxlan4", four)).run(t)
	n.set(t, behind())
	if refused := n.join(t, self(), withRouted(other(2), "blue", "10.60.2.0/24")); len(refused) > 0 {
		t.Fatal(refused)
	}
	router := asking("router", "t1/tap/blue", `{"t1": {"routedPrefixes": ["10.60.1.0/24"]}}`)
	n.add(t, router)
	for _, tt := range []struct {
		interfaces, options string
		code                uint
		want                string
	}{
		{
			"t1/tap/blue", `{"t1": {"routedPrefixes": ["10.60.1.128/25"]}}`, pod.CodeAddressInUse,
			"10.60.1.0/24 leads to pod default/router",
		},
		{
			"t1/tap/blue", `{"t1": {"routedPrefixes": ["10.60.0.0/16"]}}`, pod.CodeAddressInUse,
			"10.60.1.0/24 leads to pod default/router",
		},
		{
			"t1/tap/blue", `{"t1": {"routedPrefixes": ["10.60.2.0/25"]}}`, pod.CodeTryAgain,
			"10.60.2.0/24 leads to a pod of node node2",
		},
		{
			"t1/tap/blue, t2/tap/blue",
			`{"t1": {"routedPrefixes": ["10.60.3.0/24"]}, "t2": {"routedPrefixes": ["10.60.3.0/25"]}}`,
			pod.CodeInvalidAnnotation, "interfaces t1 and t2 of network blue have the same routedPrefixes 10.60.3.0/25",
		},
		{
			"t1/tap/blue", `{"t1": {"routedPrefixes": ["10.61.0.0/24"]}}`, pod.CodeInvalidAnnotation,
			"network blue does not permit 10.61.0.0/24",
		},
	} {
		checkRefusal(t, n.refuses(t, asking("second", tt.interfaces, tt.options)), tt.code, tt.want)
	}
	refused := n.join(t, self(), withRouted(other(2), "blue", "10.60.1.0/24"),
		withRouted(other(3), "blue", "10.60.4.0/24"), withRouted(other(4), "blue", "10.60.4.0/25"))
	want := "map[" +
		"node2:prefix 10.60.1.0/24 of network blue: it leads to pod default/router on this node " +
		"node4:prefix 10.60.4.0/25 of network blue: 10.60.4.0/24 leads to node node3]"
	if got := fmt.Sprint(refused); got != want {
		t.Errorf("refused %s\nwant %s", got, want)
	}
	got := n.routesTo()
	if !strings.Contains(got, "10.60.4.0/24 to weft-bvi-blue") || strings.Contains(got, "10.60.4.0/25") {
		t.Errorf("routes\n%s", got)
	}
}

// The runtime makes a new sandbox of the pod before it deletes the old one.
func TestANewSandboxTakesOverThePrefixes(t *testing.T) {
	n := newNode(t, four).run(t)
	n.set(t, behind())
	options := `{"t1": {"routedPrefixes": ["10.60.1.0/24"]}}`
	old := asking("router", "t1/tap/blue", options)
	n.add(t, old)
	next := asking("router", "t1/tap/blue", options)
	next.Key.ContainerID = "next"
	next.Netns.Path += "-next"
	a := n.add(t, next)
	n.delete(t, old)
	if got := n.routesTo(); !strings.Contains(got, a.Interfaces[1].Object) {
		t.Errorf("routes %q, want one to %s", got, a.Interfaces[1].Object)
	}
}

// A route of the network to the prefix would lead the router's own packets back to it.
func TestTheRouterHasNoRouteToItsPrefix(t *testing.T) {
	n := newNode(t, four).run(t)
	network := behind()
	network.Routes = []pod.RouteRequest{routeTo("10.60.1.0/24", ""), routeTo("10.60.2.0/24", "")}
	n.set(t, network)
	a := n.add(t, asking("router", "t1/tap/blue", `{"t1": {"routedPrefixes": ["10.60.1.0/24"]}}`))
	got := routesOf(a)
	if strings.Contains(got, "10.60.1.0/24") || !strings.Contains(got, "10.60.2.0/24 via 10.5.0.1") {
		t.Errorf("routes %s", got)
	}
}
