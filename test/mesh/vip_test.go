package mesh

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/internal/netnstest"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/keepalived"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
)

// A pod on each node runs keepalived. A client on each node follows the addresses from one node to the other, when the
// master stops and when its pod is deleted.
func TestVirtualAddressesMoveBetweenNodes(t *testing.T) {
	keepalived.Require(t)
	c := newCluster(t, options{tunnel: "vxlan4"})
	c.control()
	c.meet()
	c.site()
	n1 := c.nodes[0]
	n2 := c.nodes[1]
	clients := []*node.Pod{n1.onSite("client1", ""), n2.onSite("client2", "")}
	one := n1.onSite("one", keepalived.Options)
	two := n2.onSite("two", keepalived.Options)
	first := keepalived.Start(t, one.Netns, 200, keepalived.Instances())
	c.follow("from the first", clients, one)
	keepalived.Start(t, two.Netns, 100, keepalived.Instances())

	began := time.Now()
	first.Stop()
	c.follow("after it stopped", clients, two)
	t.Logf("both clients reach all addresses %v after the master stopped", time.Since(began))

	keepalived.Start(t, one.Netns, 200, keepalived.Instances())
	c.follow("after it came back", clients, one)

	runtime, err := n1.Runtime(t.Output())
	must.Succeed(t, err)
	began = time.Now()
	must.Succeed(t, runtime.Del(t.Context(), one))
	c.follow("after its pod was deleted", clients, two)
	t.Logf("both clients reach all addresses %v after the pod of the master was deleted", time.Since(began))
}

// site makes a network of type L2 that permits the addresses of keepalived.Instances.
func (c *cluster) site() {
	c.t.Helper()
	c.spread("site", v1.CustomNetworkSpec{
		Type:             v1.L2,
		CIDRs:            []v1.CIDR{"10.5.0.0/24", "fd05::/64"},
		AllowedAddresses: []v1.AddressRange{"10.5.0.100-10.5.0.110", "fd05::100/120"},
		VirtualRouters:   []int32{54, 55},
	})
}

// spread makes a network with blocks of the default sizes, and waits until both nodes have it.
func (c *cluster) spread(name string, spec v1.CustomNetworkSpec) {
	c.t.Helper()
	spec.BlockSize = 26
	spec.BlockSizeV6 = 122
	c.server.Put(customNetworks, &v1.CustomNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1, CreationTimestamp: metav1.Now()},
		Spec:       spec,
	})
	c.eventuallyReady(name)
}

// eventuallyReady waits until both nodes have a network.
func (c *cluster) eventuallyReady(network string) {
	c.t.Helper()
	k8stest.Eventually(c.t, network+" is ready", func() bool {
		n := c.get(network)
		return n.Status.ReadyNodes == 2 && meta.IsStatusConditionTrue(n.Status.Conditions, v1.ConditionReady)
	})
}

// onSite adds a pod with an interface t1 on the network site.
func (m *machine) onSite(name, options string) *node.Pod {
	m.t.Helper()
	return m.on("site", name, options)
}

// on adds a pod with an interface t1 on a network.
func (m *machine) on(network, name, options string) *node.Pod {
	m.t.Helper()
	p, err := m.tryOn(network, name, options)
	must.Succeed(m.t, err)
	return p
}

// with adds a pod with interfaces and their options.
func (m *machine) with(name, interfaces, options string) *node.Pod {
	m.t.Helper()
	p, err := m.tryWith(name, interfaces, options)
	must.Succeed(m.t, err)
	return p
}

// follow waits until a pod is the master of all instances, and all clients have its MACs and reach it.
func (c *cluster) follow(when string, clients []*node.Pod, master *node.Pod) {
	c.t.Helper()
	own := macOf(c.t, master)
	for _, i := range keepalived.Instances() {
		a := i.Address.Addr()
		k8stest.Eventually(c.t, master.Name+" has "+a.String()+" "+when, func() bool {
			return keepalived.Has(c.t, master.Netns, a)
		})
		want := i.MAC
		if want == "" {
			want = own
		}
		for _, client := range clients {
			p, err := ping.Open(client.Netns, a)
			must.Succeed(c.t, err)
			k8stest.Eventually(c.t, client.Name+" follows "+a.String()+" "+when, func() bool {
				ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
				defer cancel()
				_, err := p.Once(ctx, a, 1)
				return err == nil && neighbour(c.t, client, a) == want
			})
			must.Succeed(c.t, p.Close())
		}
	}
}

// macOf returns the MAC of the link t1 of a pod.
func macOf(t *testing.T, p *node.Pod) (mac string) {
	t.Helper()
	netnstest.Do(t, p.Netns, func() {
		link, err := netlink.LinkByName("t1")
		must.Succeed(t, err)
		mac = link.Attrs().HardwareAddr.String()
	})
	return mac
}

// neighbour returns the MAC that a pod has for an address on its link t1; "" if it has none.
func neighbour(t *testing.T, p *node.Pod, a netip.Addr) (mac string) {
	t.Helper()
	netnstest.Do(t, p.Netns, func() {
		link, err := netlink.LinkByName("t1")
		must.Succeed(t, err)
		entries, err := netlink.NeighList(link.Attrs().Index, netlink.FAMILY_ALL)
		must.Succeed(t, err)
		for _, n := range entries {
			if n.IP.Equal(net.IP(a.AsSlice())) && len(n.HardwareAddr) > 0 {
				mac = n.HardwareAddr.String()
			}
		}
	})
	return mac
}
