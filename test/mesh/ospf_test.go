package mesh

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/thirdparty"
)

// The subnets behind the two routers, of both families: left is a network of type L2, right one of type L3.
var (
	leftSubnets  = []string{"10.61.1.0/24", "fd61:0:0:1::/64"}
	rightSubnets = []string{"10.61.2.0/24", "fd61:0:0:2::/64"}
)

// A router pod on each node runs bird on a network of both nodes, with OSPF for each family. Each learns the subnet
// behind the other one, and so a pod behind the first reaches a pod behind the second while both run.
func TestRouterPodsLearnTheSubnetsOfEachOtherByOSPF(t *testing.T) {
	thirdparty.Require(t, "bird")
	c := newCluster(t, options{tunnel: "vxlan4"})
	c.control()
	c.meet()
	c.spread("core", v1.CustomNetworkSpec{
		Type:             v1.L2,
		CIDRs:            []v1.CIDR{"10.5.0.0/24", "fd05::/64"},
		AllowedAddresses: []v1.AddressRange{"10.61.0.0/16", "fd61::/48"},
	})
	c.spread("left", v1.CustomNetworkSpec{
		Type:             v1.L2,
		CIDRs:            []v1.CIDR{"10.61.1.0/24", "fd61:0:0:1::/64"},
		Gateway:          "none",
		Excluded:         []v1.AddressRange{"10.61.1.1", "fd61:0:0:1::1"},
		AllowedAddresses: []v1.AddressRange{"10.61.2.0/24", "fd61:0:0:2::/64"},
		Routes:           []v1.Route{{To: "10.61.0.0/16", Via: "10.61.1.1"}, {To: "fd61::/48", Via: "fd61:0:0:1::1"}},
	})
	c.spread("right", v1.CustomNetworkSpec{
		Type:           v1.L3,
		CIDRs:          []v1.CIDR{"10.61.2.0/24", "fd61:0:0:2::/64"},
		RoutedPrefixes: []v1.CIDR{"10.61.1.0/24", "fd61:0:0:1::/64"},
		Routes:         []v1.Route{{To: "10.61.1.0/24"}, {To: "fd61:0:0:1::/64"}},
	})
	n1 := c.nodes[0]
	n2 := c.nodes[1]
	one := n1.with("one", "core/tap/core, left/tap/left", `{
		"core": {"allowedAddresses": ["10.61.1.0/24", "fd61:0:0:1::/64"], "ipForwarding": true},
		"left": {"ips": ["10.61.1.1", "fd61:0:0:1::1"], "allowedAddresses": ["10.61.2.0/24", "fd61:0:0:2::/64"]}}`)
	two := n2.with("two", "core/tap/core, right/tap/right", `{
		"core": {"allowedAddresses": ["10.61.2.0/24", "fd61:0:0:2::/64"], "ipForwarding": true},
		"right": {"routedPrefixes": ["10.61.1.0/24", "fd61:0:0:1::/64"]}}`)
	client := n1.on("left", "client", "")
	n2.on("right", "server", `{"ips": ["10.61.2.9", "fd61:0:0:2::9"]}`)
	server := []netip.Addr{netip.MustParseAddr("10.61.2.9"), netip.MustParseAddr("fd61:0:0:2::9")}

	left := startBird(t, one, 1, leftSubnets)
	right := startBird(t, two, 2, rightSubnets)
	left.eventuallyFull()
	right.eventuallyFull()
	left.eventuallyLearned(rightSubnets, true)
	right.eventuallyLearned(leftSubnets, true)
	c.eventuallyReaches(client, server, true)

	right.Stop()
	left.eventuallyLearned(rightSubnets, false)
	c.eventuallyReaches(client, server, false)

	right = startBird(t, two, 2, rightSubnets)
	left.eventuallyLearned(rightSubnets, true)
	right.eventuallyLearned(leftSubnets, true)
	c.eventuallyReaches(client, server, true)
}

// Any pod of the network can announce a subnet. Only one with the permission can send from its addresses.
func TestARouterPodNeedsThePermissionToSendFromItsSubnets(t *testing.T) {
	thirdparty.Require(t, "bird")
	c := newCluster(t, options{tunnel: "vxlan4"})
	c.control()
	c.meet()
	c.spread("core", v1.CustomNetworkSpec{
		Type:             v1.L2,
		CIDRs:            []v1.CIDR{"10.5.0.0/24", "fd05::/64"},
		AllowedAddresses: []v1.AddressRange{"10.61.0.0/16", "fd61::/48"},
	})
	peer := c.nodes[1].with("peer", "core/tap/core", "")
	other := startBird(t, peer, 3, []string{"10.62.0.0/24", "fd62::/64"})
	for i, options := range []string{"", `{"core": {"allowedAddresses": ["10.61.0.0/24", "fd61::/64"]}}`} {
		router := c.nodes[0].with(fmt.Sprint("router", i), "core/tap/core", options)
		own := []netip.Prefix{netip.MustParsePrefix("10.61.0.1/24"), netip.MustParsePrefix("fd61::1/64")}
		netnstest.Do(t, router.Netns, func() { settle(t, "lo", own) })
		subnets := []string{"10.61.0.0/24", "fd61::/64"}
		b := startBird(t, router, i+1, subnets)
		other.eventuallyLearned(subnets, true)
		c.eventuallyReaches(peer, []netip.Addr{own[0].Addr(), own[1].Addr()}, options != "")
		if text := c.nodes[0].weftctl("dataplane", "drops"); !strings.Contains(text, "l2-input-acl: input ACL misses") {
			t.Errorf("the drops are not counted:\n%s", text)
		}
		b.Stop()
		other.eventuallyLearned(subnets, false)
	}
}

// bird is a bird in a router pod, with OSPFv2 and OSPFv3 on the link core.
type bird struct {
	*thirdparty.Daemon
	t       *testing.T
	pod     *node.Pod
	control string // path of its socket
}

// startBird runs bird in a pod until the test ends. It announces the subnets.
func startBird(t *testing.T, p *node.Pod, id int, subnets []string) *bird {
	t.Helper()
	dir := t.TempDir()
	var text strings.Builder
	fmt.Fprintf(&text, "log stderr all;\nrouter id 192.0.2.%d;\nprotocol device {}\n", id)
	for i, version := range []string{"v2", "v3"} {
		family := []string{"ipv4", "ipv6"}[i]
		fmt.Fprintf(&text, "protocol kernel { %s { export where source = RTS_OSPF; }; }\n", family)
		fmt.Fprintf(&text, "protocol ospf %s %s_core {\n %s { import all; };\n area 0 {\n", version, family, family)
		fmt.Fprintf(&text, "  stubnet %s;\n  interface \"core\" { hello 1; dead 4; wait 2; };\n };\n}\n", subnets[i])
	}
	file := filepath.Join(dir, "bird.conf")
	must.Succeed(t, os.WriteFile(file, []byte(text.String()), 0o600))
	b := &bird{t: t, pod: p, control: filepath.Join(dir, "bird.ctl")}
	b.Daemon = thirdparty.Start(t, p.Netns, "bird", "-f", "-c", file, "-s", b.control)
	return b
}

// eventuallyFull waits until the adjacencies of both families are complete.
func (b *bird) eventuallyFull() {
	b.t.Helper()
	for _, protocol := range []string{"ipv4_core", "ipv6_core"} {
		k8stest.Eventually(b.t, "the adjacency of "+b.pod.Name+" is full: "+protocol, func() bool {
			out, err := exec.CommandContext(b.t.Context(), "birdc", "-r", "-s", b.control, "show", "ospf", "neighbors",
				protocol).Output()
			return err == nil && strings.Contains(string(out), "Full/")
		})
	}
}

// eventuallyLearned waits until the kernel of the pod has routes of bird to all subnets by the link core, or has none.
func (b *bird) eventuallyLearned(subnets []string, want bool) {
	b.t.Helper()
	for _, subnet := range subnets {
		k8stest.Eventually(b.t, fmt.Sprint(b.pod.Name, " has a route to ", subnet, ": ", want), func() (has bool) {
			netnstest.Do(b.t, b.pod.Netns, func() {
				filter := &netlink.Route{
					Protocol:  unix.RTPROT_BIRD,
					Dst:       ipNet(netip.MustParsePrefix(subnet)),
					LinkIndex: linkOf(b.t, "core").Attrs().Index,
				}
				routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, filter,
					netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_DST|netlink.RT_FILTER_OIF)
				must.Succeed(b.t, err)
				has = len(routes) > 0
			})
			return has == want
		})
	}
}
