package ipnet_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/ipnet/mesh"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// settingsOf returns the desired forwarding settings of pods' namespaces.
func settingsOf(n *node) (settings []string) {
	for _, value := range n.committer.Values() {
		if v, ok := value.(wire.Sysctl); ok && v.Namespace != "" && strings.Contains(v.Name, "forward") {
			settings = append(settings, fmt.Sprint(v.Namespace, " ", v.Name, "=", v.Value))
		}
	}
	slices.Sort(settings)
	return slices.Compact(settings)
}

// Forwarding is enabled for the pod's families, by any of its attachments; a restart with another configuration changes
// running pods too.
func TestPodsForwardWhereThatIsAllowed(t *testing.T) {
	const (
		ip4 = "/run/netns/a net/ipv4/ip_forward=1"
		ip6 = "/run/netns/a net/ipv6/conf/all/forwarding=1"
	)
	for name, want := range map[string][]string{"ip4": {ip4}, "ip6": {ip6}, "dual": {ip4, ip6}} {
		for _, kind := range []string{pod.TypeTap, pod.TypeVeth} {
			t.Run(name+"-"+kind, func(t *testing.T) {
				n := nodeOf(t, ipnet.Config{
					Networks: networks.Config{Pools: families[name]},
					Mesh:     mesh.Config{LinkTypes: mesh.LinkTypes{Pod: kind}},
					Pods:     attach.Config{AllowIPForwarding: true},
				}).run(t)
				n.add(t, asking("a", "s1/tap/stub", ""))
				if got := settingsOf(n); !slices.Equal(got, want) {
					t.Errorf("got %v, want %v", got, want)
				}
				n.config.Pods.AllowIPForwarding = false
				if got := settingsOf(n.restarted(t)); len(got) > 0 {
					t.Errorf("no longer allowed, but desired: %v", got)
				}
			})
		}
	}
}

// The main interface has only routes to the pools. An existing pod keeps its routes, and a lost state file changes
// nothing.
func TestPodsWithoutDefaultRoutesReachThePools(t *testing.T) {
	n := newNode(t, four, six).run(t)
	before := n.add(t, sandbox("before")).Interfaces
	n.config.Pods.NoDefaultRoutes = true
	n = n.restarted(t)
	if got := n.kept().Attachments[0].Interfaces; !reflect.DeepEqual(got, before) {
		t.Errorf("existing pod: %+v, want %+v", got, before)
	}
	a := n.add(t, asking("a", "x1/tap/default", ""))
	gateway4 := netip.MustParseAddr("10.1.0.1")
	gateway6 := netip.MustParseAddr("fe80::1")
	want := []pod.Route{
		{Destination: netip.PrefixFrom(gateway4, 32)}, {Destination: four.Prefix, Gateway: gateway4}, {
			Destination: six.Prefix,
			Gateway:     gateway6,
		},
	}
	if got := a.Interfaces[0]; !reflect.DeepEqual(got.Routes, want) ||
		!slices.Equal(got.Gateways, []netip.Addr{gateway4, gateway6}) {
		t.Errorf("main interface has gateways %v and routes %v, want %v", got.Gateways, got.Routes, want)
	}
	if got := a.Interfaces[1].Routes; len(got) > 0 {
		t.Errorf("another interface on the same network has routes too: %v", got)
	}
	for key, value := range n.committer.Values() {
		if r, ok := value.(wire.LinuxRoute); ok && r.Namespace == "/run/netns/a" && r.Destination.Bits() == 0 {
			t.Errorf("the pod has %s", key)
		}
	}
	fresh := nodeOf(t, ipnet.Config{
		Networks: networks.Config{Pools: n.config.Networks.Pools},
		Pods:     attach.Config{NoDefaultRoutes: true},
	})
	again, err := reconstruct(fresh,
		foundOf(t, n, &pod.Attachment{Key: a.Key, Netns: a.Netns, Interfaces: a.Interfaces[:1]}))
	if err != nil || !reflect.DeepEqual(again.Interfaces, a.Interfaces[:1]) {
		t.Errorf("reconstructed %+v, %v, want %+v", again, err, a.Interfaces[:1])
	}
}

// They are configured explicitly.
func TestRoutesOfAnotherPluginAreAddedWithoutDefaultRoutes(t *testing.T) {
	n := nodeOf(t, ipnet.Config{
		Networks: networks.Config{Pools: families["ip4"]},
		Pods:     attach.Config{NoDefaultRoutes: true},
	}).run(t)
	ev := sandbox("a")
	ev.Requested.Delegated = []netip.Prefix{netip.MustParsePrefix("10.7.0.7/24")}
	asked := pod.Route{Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("10.7.0.1")}
	ev.Requested.Delegation.Routes = []pod.Route{asked}
	asked.Gateway = netip.MustParseAddr("10.1.0.1")
	if got := n.add(t, ev).Interfaces[0].Routes; !slices.Contains(got, asked) {
		t.Errorf("routes %v, want them to include %v", got, asked)
	}
}
