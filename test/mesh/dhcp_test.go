package mesh

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/internal/netnstest"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/thirdparty"
)

// addressScript is what the DHCP clients execute when they have an address, and dhclient before it sends.
const addressScript = `#!/bin/sh
case "$1$reason" in
bound) exec ip address replace "$ip/$mask" dev "$interface" ;;
PREINIT6) while ip -6 address show dev "$interface" tentative | grep -q inet6; do sleep 0.1; done ;;
BOUND6) exec ip -6 address replace "$new_ip6_address/64" dev "$interface" nodad ;;
esac
`

// A pod with dnsmasq serves pods of both nodes on a network without cidrs, with antiSpoof and without it. They reach
// the server and each other from the addresses that it gave them.
func TestPodsGetAddressesFromADHCPServerInAPod(t *testing.T) {
	for _, program := range []string{"dnsmasq", "udhcpc", "dhclient"} {
		thirdparty.Require(t, program)
	}
	for _, antiSpoof := range []bool{false, true} {
		t.Run(fmt.Sprint("antiSpoof ", antiSpoof), func(t *testing.T) {
			c := newCluster(t, options{tunnel: "vxlan4"})
			c.control()
			c.meet()
			c.spread("lan", v1.CustomNetworkSpec{Type: v1.L2, AntiSpoof: &antiSpoof})
			server := c.nodes[0].on("lan", "server", `{"ips": ["10.9.0.1/24", "fd09::1/64"]}`)
			startDnsmasq(t, server)
			near := c.nodes[0].on("lan", "near", "")
			far := c.nodes[1].on("lan", "far", "")
			leased := append(c.lease(near), c.lease(far)...)
			for _, client := range []*node.Pod{near, far} {
				c.eventuallyReaches(client, leased, true)
				c.eventuallyReaches(client, dhcpServers, true)
			}
		})
	}
}

var dhcpServers = []netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("fd09::1")}

// startDnsmasq serves addresses of both families in a pod until the test ends.
func startDnsmasq(t *testing.T, p *node.Pod) {
	t.Helper()
	leases := filepath.Join(t.TempDir(), "leases")
	thirdparty.Start(t, p.Netns, "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--user=root",
		"--pid-file=", "--log-facility=-", "--log-dhcp", "--dhcp-leasefile="+leases, "--interface=t1",
		"--bind-interfaces", "--no-ping", "--dhcp-authoritative",
		"--dhcp-range=10.9.0.128,10.9.0.250,255.255.255.0,1h", "--dhcp-range=fd09::8000,fd09::ffff,64,1h")
}

// lease runs DHCP clients of both families in a pod until the test ends, and returns the addresses that the link t1
// then has.
func (c *cluster) lease(p *node.Pod) (leased []netip.Addr) {
	c.t.Helper()
	dir := c.t.TempDir()
	script := filepath.Join(dir, "script")
	must.Succeed(c.t, os.WriteFile(script, []byte(addressScript), 0o700))
	thirdparty.Start(c.t, p.Netns, "udhcpc", "-f", "-i", "t1", "-s", script)
	thirdparty.Start(c.t, p.Netns, "dhclient", "-6", "-d", "-sf", script, "-lf", filepath.Join(dir, "leases"), "-pf",
		filepath.Join(dir, "pid"), "-cf", "/dev/null", "t1")
	for _, within := range []string{"10.9.0.128/25", "fd09::8000/113"} {
		k8stest.Eventually(c.t, p.Name+" has an address of "+within, func() bool {
			list := addressesOf(c.t, p)
			at := slices.IndexFunc(list, netip.MustParsePrefix(within).Contains)
			if at >= 0 {
				leased = append(leased, list[at])
			}
			return at >= 0
		})
	}
	return leased
}

// addressesOf returns the addresses of the link t1 of a pod.
func addressesOf(t *testing.T, p *node.Pod) (addresses []netip.Addr) {
	t.Helper()
	netnstest.Do(t, p.Netns, func() {
		list, err := netlink.AddrList(linkOf(t, "t1"), netlink.FAMILY_ALL)
		must.Succeed(t, err)
		for _, a := range list {
			if address, is := netip.AddrFromSlice(a.IP); is {
				addresses = append(addresses, address.Unmap())
			}
		}
	})
	return addresses
}
