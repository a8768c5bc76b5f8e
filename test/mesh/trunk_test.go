package mesh

import (
	"testing"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/test/tagged"
)

// Frames with tags cross the tunnel between two nodes, in both directions, to the pods whose trunks have the VLAN. The
// VLANs are apart from each other and from the untagged frames of the network.
func TestTrunksCarryTheirVLANsBetweenNodes(t *testing.T) {
	c := newCluster(t, options{tunnel: "vxlan4"})
	c.control()
	c.meet()
	mtu := int32(1400)
	c.spread("site", v1.CustomNetworkSpec{Type: v1.L2, MTU: &mtu, VLANs: []v1.VLANRange{"100-101", "300"}})
	n1 := c.nodes[0]
	n2 := c.nodes[1]
	here := tagged.Open(t, n1.onSite("here", `{"vlans": [100, 300]}`).Netns, "t1")
	there := tagged.Open(t, n2.onSite("there", `{"vlans": ["100-101"]}`).Netns, "t1")
	plain := tagged.Open(t, n2.onSite("plain", "").Netns, "t1")
	untagged := here.To(plain, "[]")
	for _, c := range []tagged.Crossing{
		here.To(there, "[8100:100]", tagged.Dot1Q(100)),
		there.To(here, "[8100:100]", tagged.Dot1Q(100)),
		untagged,
		plain.To(here, "[]"),
	} {
		c.Await()
	}
	for _, in := range [][]tagged.Tag{
		{tagged.Dot1Q(300)}, {tagged.Dot1Q(101)}, {tagged.Dot1Q(5)}, {tagged.Dot1AD(100)},
		{tagged.Dot1Q(100), tagged.Dot1Q(100)},
	} {
		tagged.Drops(in, untagged, there, plain)
	}
	tagged.Drops([]tagged.Tag{tagged.Dot1Q(101)}, there.To(here, "[]"), here, plain)

	third := tagged.Open(t, n2.onSite("third", `{"vlans": [300]}`).Netns, "t1")
	here.To(third, "[8100:300]", tagged.Dot1Q(300)).Await()
	third.To(here, "[8100:300]", tagged.Dot1Q(300)).Await()
}
