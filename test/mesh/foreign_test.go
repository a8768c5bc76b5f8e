package mesh

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/wire"
)

// foreignVNI is the default of Calico's VXLAN, which also has the IANA port.
const foreignVNI = 4096

// foreignAddress is the address of a node's end of the other tunnel.
func foreignAddress(i int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("10.99.0.%d/24", i+1))
}

// A kernel's VXLAN device between the same addresses and on the same port, such as that of another CNI plugin, works
// beside the tunnels.
func TestOtherVXLANDevicesOfNodesKeepWorking(t *testing.T) {
	for _, uplink := range []string{"", "up0"} {
		for tunnel := range tunnels {
			t.Run(owner(uplink)+", "+tunnel, func(t *testing.T) {
				if uplink != "" && dataplane.Prefix() != "" {
					t.Skip("VPP drops all VXLAN packets to its addresses that are of no tunnel of its own")
				}
				c := newCluster(t, options{tunnel: tunnel, uplink: uplink})
				c.addForeignTunnel(tunnel == "vxlan6")
				c.meet()
				for _, m := range c.nodes {
					m.addPod()
				}
				for i, m := range c.nodes {
					other := c.nodes[1-i]
					reach(t, m.pod.Netns, other.address(false))
					to := foreignAddress(1 - i).Addr()
					reach(t, m.namespace, to)
					converse(t, m.namespace, other.namespace, to)
					if err := echo(t, m.namespace, to, uplinkMTU-70); err != nil {
						t.Errorf("a packet of the device's MTU: %v", err)
					}
				}
				for _, m := range c.nodes {
					m.eventually("tunnel-port", true, "UDP port 4789 is also that of foreign0 (VNI 4096)")
				}
			})
		}
	}
}

// eventually waits until a condition holds, or does not, and its line has all words.
func (m *machine) eventually(condition string, holds bool, words ...string) {
	m.t.Helper()
	k8stest.Eventually(m.t, fmt.Sprintf("%s: condition %s is %t with %q", m.name, condition, holds, words),
		func() bool {
			for line := range strings.Lines(m.weftctl("status", "--wide")) {
				fields := strings.Fields(line)
				if len(fields) < 2 || fields[0] != condition {
					continue
				}
				lacks := slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) })
				return (fields[1] == "ok") == holds && !lacks
			}
			return false
		})
}

// A VXLAN device with a VNI of the tunnels and their port takes their packets, or they take its own: the condition
// names it.
func TestVXLANDeviceWithAVNIOfTheTunnelsIsNamed(t *testing.T) {
	c := newCluster(t, options{tunnel: "vxlan4"})
	c.meet()
	m := c.nodes[0]
	link := &netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: "foreign0"},
		VxlanId:   networks.DefaultVNI,
		Port:      wire.VXLANPort,
	}
	must.Succeed(t, netlink.LinkAdd(link))
	t.Cleanup(func() { _ = netlink.LinkDel(link) })
	m.eventually("tunnel-port", false, "foreign0 has VNI 10 and UDP port 4789, as network default")
	must.Succeed(t, netlink.LinkDel(link))
	m.eventually("tunnel-port", true)
}

func TestTunnelsHaveTheConfiguredPort(t *testing.T) {
	const port = 8472
	for _, uplink := range []string{"", "up0"} {
		t.Run(owner(uplink), func(t *testing.T) {
			c := newCluster(t, options{tunnel: "vxlan4", uplink: uplink, port: port})
			c.addForeignTunnel(false)
			c.meet()
			for _, m := range c.nodes {
				m.addPod()
			}
			for i, m := range c.nodes {
				reach(t, m.pod.Netns, c.nodes[1-i].address(false))
				reach(t, m.namespace, foreignAddress(1-i).Addr())
				m.eventually("tunnel-port", true)
			}
			m := c.nodes[0]
			must.Succeed(t, m.StopAgent())
			must.Succeed(t, m.VXLANPort(0))
			m.restart(t)
			reason := "kubernetes.vxlanPort must be the same on all nodes"
			m.eventually("announcements", false, "node n2: its tunnels have UDP port 8472, and those of this node 4789",
				reason)
			c.nodes[1].eventually("announcements", false,
				"node n1: its tunnels have UDP port 4789, and those of this node 8472", reason)
			must.Succeed(t, m.StopAgent())
			must.Succeed(t, m.VXLANPort(port))
			m.restart(t)
			for i, m := range c.nodes {
				m.eventually("announcements", true)
				reach(t, m.pod.Netns, c.nodes[1-i].address(false))
			}
		})
	}
}

// Packets between nodes with other families of tunnels would be lost.
func TestNodesWithOtherFamiliesOfTunnelsAreNamed(t *testing.T) {
	c := newCluster(t, options{tunnel: "vxlan4"})
	c.meet()
	m := c.nodes[0]
	must.Succeed(t, m.StopAgent())
	must.Succeed(t, m.Tunnel("vxlan6"))
	m.restart(t)
	reason := "kubernetes.tunnel must be the same on all nodes"
	m.eventually("announcements", false, "node n2: its tunnels have addresses of IPv4, and those of this node IPv6",
		reason)
	c.nodes[1].eventually("announcements", false,
		"node n1: its tunnels have addresses of IPv6, and those of this node IPv4", reason)
	must.Succeed(t, m.StopAgent())
	must.Succeed(t, m.Tunnel("vxlan4"))
	m.restart(t)
	for _, m := range c.nodes {
		m.eventually("announcements", true)
	}
}

// addForeignTunnel makes a VXLAN device on each node.
func (c *cluster) addForeignTunnel(six bool) {
	c.t.Helper()
	for i, m := range c.nodes {
		m.inside(func() {
			link := &netlink.Vxlan{
				LinkAttrs: netlink.LinkAttrs{Name: "foreign0", MTU: uplinkMTU - 70},
				VxlanId:   foreignVNI,
				Port:      wire.VXLANPort,
				SrcAddr:   m.own(six).AsSlice(), Group: c.nodes[1-i].own(six).AsSlice(), UDP6ZeroCSumRx: true,
			}
			must.Succeed(c.t, netlink.LinkAdd(link))
			c.t.Cleanup(func() { m.inside(func() { _ = netlink.LinkDel(link) }) })
			must.Succeed(c.t, netlink.LinkSetUp(link))
			must.Succeed(c.t, netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(foreignAddress(i))}))
		})
	}
}
