package mesh

import (
	"fmt"
	"testing"

	"github.com/weftnet/weft/pod"
)

// The cards of the nodes carry more than the largest MTU of pods and the headers of a tunnel. Pods get the largest MTU,
// and packets of it pass in both directions without fragments.
func TestPodsOfTwoNodesExchangeJumboPackets(t *testing.T) {
	const cards = 9700
	for _, o := range []options{
		{tunnel: "vxlan4", mtu: cards}, {tunnel: "vxlan6", mtu: cards},
		{tunnel: "vxlan4", uplink: "up0", mtu: cards}, {tunnel: "vxlan6", uplink: "up0", mtu: cards},
	} {
		t.Run(fmt.Sprint(owner(o.uplink), ", ", o.tunnel), func(t *testing.T) {
			c := newCluster(t, o)
			c.meet()
			for _, m := range c.nodes {
				m.addPod()
				if got := m.podMTU(); got != pod.MaxMTU {
					t.Errorf("the MTU of the pod of %s is %d", m.name, got)
				}
			}
			for i, m := range c.nodes {
				for _, six := range []bool{false, true} {
					c.exchangeJumbo(m, c.nodes[1-i], six)
				}
			}
			for _, m := range c.nodes {
				m.wantNothingToRepair()
			}
		})
	}
}

// exchangeJumbo sends packets of the largest MTU with DF from a pod to another one.
func (c *cluster) exchangeJumbo(from, to *machine, six bool) {
	c.t.Helper()
	what := fmt.Sprintf("%s to %s, IPv6 %t", from.name, to.name, six)
	address := to.address(six)
	if err := from.echo(address, pod.MaxMTU); err != nil {
		c.t.Errorf("%s: an echo request of %d bytes: %v", what, pod.MaxMTU, err)
	}
	if err := sized(c.t, way{from.pod.Netns, to.pod.Netns}, address, pod.MaxMTU); err != nil {
		c.t.Errorf("%s: a datagram of %d bytes: %v", what, pod.MaxMTU, err)
	}
	if err := from.echo(address, pod.MaxMTU+1); err == nil {
		c.t.Errorf("%s: a packet of %d bytes passed", what, pod.MaxMTU+1)
	}
}
