package mesh

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
)

// behind are the addresses of a machine behind a router pod.
var behind = []netip.Prefix{netip.MustParsePrefix("10.60.1.9/24"), netip.MustParsePrefix("fd60:0:0:1::9/64")}

const routerOptions = `{"routedPrefixes": ["10.60.1.0/24", "fd60:0:0:1::/64"], "ipForwarding": true}`

// A router pod announces nothing. Pods of both nodes reach the machine behind it, and the prefix moves with the pod.
func TestPodsOfTwoNodesReachTheSubnetBehindAPod(t *testing.T) {
	c := newCluster(t, options{tunnel: "vxlan4"})
	c.control()
	c.meet()
	c.spread("core", v1.CustomNetworkSpec{
		Type:           v1.L3,
		CIDRs:          []v1.CIDR{"10.5.0.0/24", "fd05::/120"},
		RoutedPrefixes: []v1.CIDR{"10.60.0.0/16", "fd60::/48"},
		Routes:         []v1.Route{{To: "10.60.0.0/16"}, {To: "fd60::/48"}},
	})
	n1 := c.nodes[0]
	n2 := c.nodes[1]
	clients := []*node.Pod{n1.on("core", "client1", ""), n2.on("core", "client2", "")}
	router := n1.on("core", "router", routerOptions)
	subnetBehind(t, router)
	c.eventuallyReach(clients, true)

	runtime, err := n2.Runtime(t.Output())
	must.Succeed(t, err)
	thief, err := n2.NewPod("thief")
	must.Succeed(t, err)
	thief.Annotations = map[string]string{
		"contivpp.io/custom-if":         "t1/tap/core",
		"contivpp.io/custom-if-options": `{"t1": ` + routerOptions + `}`,
	}
	_, err = runtime.Add(t.Context(), thief)
	if err == nil || !strings.Contains(err.Error(), "leads to a pod of node n1") {
		t.Errorf("a pod of the other node took the prefix: %v", err)
	}

	for _, m := range c.nodes {
		must.Succeed(t, m.StopAgent())
		m.restart(t)
		m.wantFirstResyncIdle(t)
	}
	c.eventuallyReach(clients, true)

	first, err := n1.Runtime(t.Output())
	must.Succeed(t, err)
	must.Succeed(t, first.Del(t.Context(), router))
	c.eventuallyReach(clients, false)
	k8stest.Eventually(t, "the prefix is free", func() bool {
		_, err := runtime.Add(t.Context(), thief)
		return err == nil
	})
	t.Cleanup(func() { must.Succeed(t, runtime.Del(context.Background(), thief)) })
	subnetBehind(t, thief)
	c.eventuallyReach(clients, true)
}

// subnetBehind connects a machine with a router pod. Its routes lead everything to the pod.
func subnetBehind(t *testing.T, router *node.Pod) {
	t.Helper()
	machine := netnstest.New(t)
	gateways := []netip.Prefix{netip.MustParsePrefix("10.60.1.1/24"), netip.MustParsePrefix("fd60:0:0:1::1/64")}
	netnstest.Do(t, router.Netns, func() {
		pair(t, "inside", "up0", machine)
		settle(t, "inside", gateways)
	})
	netnstest.Do(t, machine, func() {
		settle(t, "up0", behind)
		for _, g := range gateways {
			routeBy(t, linkOf(t, "up0"), netip.PrefixFrom(g.Addr(), 0).Masked(), g.Addr())
		}
	})
}

// settle gives a link of the calling thread's namespace its addresses.
func settle(t *testing.T, name string, addresses []netip.Prefix) {
	t.Helper()
	link := linkOf(t, name)
	must.Succeed(t, netlink.LinkSetUp(link))
	for _, p := range addresses {
		a := &netlink.Addr{
			IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())},
			Flags: unix.IFA_F_NODAD,
		}
		must.Succeed(t, netlink.AddrAdd(link, a))
	}
}

// eventuallyReach waits until all pods reach the machine behind the router, or none does.
func (c *cluster) eventuallyReach(clients []*node.Pod, want bool) {
	c.t.Helper()
	var addresses []netip.Addr
	for _, p := range behind {
		addresses = append(addresses, p.Addr())
	}
	for _, client := range clients {
		c.eventuallyReaches(client, addresses, want)
	}
}

// eventuallyReaches waits until a pod reaches all addresses, or none.
func (c *cluster) eventuallyReaches(client *node.Pod, addresses []netip.Addr, want bool) {
	c.t.Helper()
	for _, to := range addresses {
		p, err := ping.Open(client.Netns, to)
		must.Succeed(c.t, err)
		what := client.Name + " reaches " + to.String()
		if !want {
			what = client.Name + " does not reach " + to.String()
		}
		k8stest.Eventually(c.t, what, func() bool {
			ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
			defer cancel()
			_, err := p.Once(ctx, to, 1)
			return (err == nil) == want
		})
		must.Succeed(c.t, p.Close())
	}
}
