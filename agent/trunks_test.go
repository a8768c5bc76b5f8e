package agent

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/internal/netnstest"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/tagged"
)

// trunkLab is a node with network lab: VLANs 100, 101 and 300, on card0 with tags of 802.1Q and untagged, on card1 with
// an outer tag of 802.1ad. VPP cannot receive that tag from a card: there card1 has no outer tag.
type trunkLab struct {
	*lab
	server       *k8stest.Server
	single, pair machineOutside
}

// outerVLAN is the outer VLAN of card1.
const outerVLAN = 500

// onPair returns the tags of a VLAN on card1.
func onPair(vlan uint16) []tagged.Tag {
	if dataplane.Prefix() != "" {
		return []tagged.Tag{tagged.Dot1Q(vlan)}
	}
	return []tagged.Tag{tagged.Dot1AD(outerVLAN), tagged.Dot1Q(vlan)}
}

// openPair connects card1.
func openPair(server *k8stest.Server) {
	part := v1.ExternalNode{Interface: "card1", VLANs: []v1.VLANRange{"300"}}
	if dataplane.Prefix() == "" {
		part.OuterVLAN = new(int32(outerVLAN))
	}
	openTo(server, "pair", "lab", part)
}

func newTrunkLab(t *testing.T) trunkLab {
	t.Helper()
	l, server := outsideLab(t)
	mtu := int32(1400)
	server.Put("customnetworks.contivpp.io", &v1.CustomNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: "lab"},
		Spec:       v1.CustomNetworkSpec{Type: v1.L2, MTU: &mtu, VLANs: []v1.VLANRange{"100-101", "300"}},
	})
	o := trunkLab{l, server, plugOutside(t, "card0"), plugOutside(t, "card1")}
	raise(t, "card0", "card1")
	zero := int32(0)
	openTo(server, "single", "lab", v1.ExternalNode{
		Interface: "card0", VLANs: []v1.VLANRange{"100-101"}, NativeVLAN: &zero,
	})
	openPair(server)
	l.eventually("both trunks are connected", func() bool {
		return slices.Equal(statuses(server), []string{"pair: ", "single: "})
	})
	return o
}

// pod adds a pod with an interface t1 on network lab.
func (l trunkLab) onLab(name, options string) *node.Pod {
	l.Helper()
	p := l.pod(name)
	l.put(l.server, p, map[string]string{
		"contivpp.io/custom-if": "t1/tap/lab", "contivpp.io/custom-if-options": options,
	})
	l.cni("ADD", p, nil)
	return p
}

func TestTrunksCarryTheirVLANsOnly(t *testing.T) {
	l := newTrunkLab(t)
	trunk := tagged.Open(t, l.onLab("trunk", `{"t1": {"vlans": [100, 300]}}`).Netns, "t1")
	plain := tagged.Open(t, l.onLab("plain", "").Netns, "t1")
	single := tagged.Open(t, l.single.netns, "eth0")
	pair := tagged.Open(t, l.pair.netns, "eth0")
	toPair := trunk.To(pair, fmt.Sprint(onPair(300)), tagged.Dot1Q(300))
	fromPair := pair.To(trunk, "[8100:300]", onPair(300)...)
	untagged := trunk.To(plain, "[]")
	for _, c := range []tagged.Crossing{
		trunk.To(single, "[8100:100]", tagged.Dot1Q(100)),
		single.To(trunk, "[8100:100]", tagged.Dot1Q(100)),
		toPair, fromPair, untagged,
		trunk.To(single, "[]"),
		single.To(trunk, "[]"),
	} {
		c.Await()
	}
	for _, in := range [][]tagged.Tag{
		{tagged.Dot1Q(101)}, {tagged.Dot1Q(5)}, {tagged.Dot1AD(500), tagged.Dot1Q(300)},
		{tagged.Dot1Q(100), tagged.Dot1Q(300)}, {tagged.Dot1Q(0)},
	} {
		tagged.Drops(in, untagged, plain, single, pair)
	}
	tagged.Drops([]tagged.Tag{tagged.Dot1Q(100)}, plain.To(trunk, "[]"), single, pair)
	for _, in := range [][]tagged.Tag{{tagged.Dot1Q(300)}, {tagged.Dot1AD(500), tagged.Dot1Q(300)}} {
		tagged.Drops(in, single.To(trunk, "[]"), plain, pair)
	}
	toNone := [][]tagged.Tag{nil, {tagged.Dot1AD(500)}, {tagged.Dot1AD(501), tagged.Dot1Q(300)}}
	if len(onPair(300)) > 1 {
		toNone = append(toNone, []tagged.Tag{tagged.Dot1Q(300)})
	} else {
		toNone = append(toNone, []tagged.Tag{tagged.Dot1AD(500), tagged.Dot1Q(300)}, []tagged.Tag{tagged.Dot1Q(500)})
	}
	for _, in := range toNone {
		tagged.Drops(in, fromPair, plain, single)
	}
	l.eventually("the dropped frames are counted by name", func() bool {
		text, err := l.Weftctl(t.Context(), "counters", "-o", "json")
		return err == nil && strings.Contains(text, "subinterface down") && strings.Contains(text, "unknown vlan")
	})
	l.server.Remove("externalinterfaces.contivpp.io", "", "single")
	l.eventually("it is disconnected", func() bool { return slices.Equal(statuses(l.server), []string{"pair: "}) })
	toPair.Await()
}

// A trunk is made, lost with the dataplane, found by a new agent, removed and made again.
func TestTrunksOutliveRestarts(t *testing.T) {
	l := newTrunkLab(t)
	p := l.onLab("trunk", `{"t1": {"vlans": [100, 300]}}`)
	pair := tagged.Open(t, l.pair.netns, "eth0")
	single := tagged.Open(t, l.single.netns, "eth0")
	carries := func(after string) {
		t.Helper()
		trunk := tagged.Open(t, p.Netns, "t1") // the dataplane may have made another link
		trunk.To(pair, fmt.Sprint(onPair(300)), tagged.Dot1Q(300)).Await()
		single.To(trunk, "[8100:100]", tagged.Dot1Q(100)).Await()
		tagged.Drops([]tagged.Tag{tagged.Dot1Q(101)}, trunk.To(single, "[]"), pair)
		if t.Failed() {
			t.Fatal(after)
		}
	}
	carries("after the ADD")
	must.Succeed(t, l.KillDataplane())
	l.eventually("the dataplane is replayed", func() bool {
		return l.says("repaired ok", "status")() && l.says("dataplane ok", "status")()
	})
	carries("after the end of the dataplane")
	l.restartKnown()
	carries("after a restart of the agent")
	mtu := int32(1400)
	lab := func(vlans ...v1.VLANRange) {
		l.server.Put("customnetworks.contivpp.io", &v1.CustomNetwork{
			ObjectMeta: metav1.ObjectMeta{Name: "lab"}, Spec: v1.CustomNetworkSpec{Type: v1.L2, MTU: &mtu, VLANs: vlans},
		})
	}
	lab("100-101")
	l.eventually("the trunk of the removed VLAN has the reason", func() bool {
		return slices.Equal(statuses(l.server), []string{"pair: network lab has no VLAN 300: its vlans are 100-101", "single: "})
	})
	trunk := tagged.Open(t, p.Netns, "t1")
	tagged.Drops([]tagged.Tag{tagged.Dot1Q(300)}, trunk.To(single, "[8100:100]", tagged.Dot1Q(100)), pair)
	lab("100-101", "300")
	carries("after the return of the VLAN")
	l.cni("DEL", p, nil)
	p = l.onLab("other", `{"t1": {"vlans": [100, 300]}}`)
	carries("after another ADD")
}

// The card has room for the tags, or the status says how much is missing.
func TestCardOfATrunkNeedsRoomForTheTags(t *testing.T) {
	l := newTrunkLab(t)
	limit := func(mtu string) {
		out, err := exec.CommandContext(t.Context(), "ip", "link", "set", "card1", "mtu", mtu).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	l.server.Remove("externalinterfaces.contivpp.io", "", "pair")
	l.eventually("it is disconnected", func() bool { return slices.Equal(statuses(l.server), []string{"single: "}) })
	limit("1407")
	outer := int32(500)
	openTo(l.server, "pair", "lab", v1.ExternalNode{
		Interface: "card1",
		VLANs:     []v1.VLANRange{"300"},
		OuterVLAN: &outer,
	})
	l.eventually("the status names both numbers", func() bool {
		all := statuses(l.server)
		return len(all) == 2 && strings.Contains(all[0],
			"link card1 has MTU 1407, and the frames of its VLANs need 1408: raise it, or lower the mtu of the network")
	})
	limit("1408")
	end := "pair: "
	if dataplane.Prefix() != "" {
		end = "VPP does not receive tags of 802.1ad from a network card: remove outerVLAN, or use weft-vswitch"
	}
	l.eventually("it is connected, or VPP cannot receive the tags", func() bool {
		all := statuses(l.server)
		return len(all) == 2 && strings.HasSuffix(all[0], end)
	})
	openPair(l.server)
	l.eventually("both are connected", func() bool {
		return slices.Equal(statuses(l.server), []string{"pair: ", "single: "})
	})
}

// The machines have Linux's driver for VLANs, and so has the pod. It runs in make vm-test.
func TestTrunksReachTheVLANDriver(t *testing.T) {
	l := newTrunkLab(t)
	p := l.onLab("trunk", `{"t1": {"vlans": [100, 300]}}`)
	vlans := true
	link := func(netns, on, name string, id int, protocol netlink.VlanProtocol) {
		vlan := netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: name}, VlanId: id, VlanProtocol: protocol}
		netnstest.Do(t, netns, func() { vlans = vlans && addTagged(t, on, vlan) })
	}
	link(p.Netns, "t1", "t1.100", 100, netlink.VLAN_PROTOCOL_8021Q)
	if !vlans {
		t.Skip("needs VLAN links, which this kernel lacks (module 8021q)")
	}
	link(p.Netns, "t1", "t1.300", 300, netlink.VLAN_PROTOCOL_8021Q)
	link(l.single.netns, "eth0", "q100", 100, netlink.VLAN_PROTOCOL_8021Q)
	below := "eth0"
	if len(onPair(300)) > 1 {
		below = "s500"
		link(l.pair.netns, "eth0", below, outerVLAN, netlink.VLAN_PROTOCOL_8021AD)
	}
	link(l.pair.netns, below, "q300", 300, netlink.VLAN_PROTOCOL_8021Q)
	l.single.address(t, "q100", "10.100.0.1/24")
	l.pair.address(t, "q300", "10.100.3.1/24")
	inPod := machineOutside{netns: p.Netns}
	inPod.address(t, "t1.100", "10.100.0.2/24")
	inPod.address(t, "t1.300", "10.100.3.2/24")
	l.reaches(p.Netns, "10.100.0.1", "10.100.3.1")
	l.reaches(l.single.netns, "10.100.0.2")
	l.reaches(l.pair.netns, "10.100.3.2")
}

// addTagged makes a link of a VLAN in the calling thread's namespace; false: this kernel has no VLANs.
func addTagged(t *testing.T, on string, link netlink.Vlan) bool {
	t.Helper()
	parent, err := netlink.LinkByName(on)
	if err == nil {
		err = netlink.LinkSetUp(parent)
	}
	if err != nil {
		t.Fatal(err)
	}
	link.ParentIndex = parent.Attrs().Index
	err = netlink.LinkAdd(&link)
	if err != nil && !strings.Contains(err.Error(), "not supported") {
		t.Fatal(err)
	}
	return err == nil
}
