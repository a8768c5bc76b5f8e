package agent

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/internal/netnstest"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
)

// tag is a VLAN tag of a frame.
type tag struct{ kind, vlan uint16 }

func dot1q(vlan uint16) tag  { return tag{unix.ETH_P_8021Q, vlan} }
func dot1ad(vlan uint16) tag { return tag{unix.ETH_P_8021AD, vlan} }

// rawLink sends and receives frames of a test's own type on a link of a namespace, with all their tags. No driver for
// VLANs is needed.
type rawLink struct {
	t  *testing.T
	fd int
}

// testType is the type of frames for local experiments (IEEE 802).
const testType = 0x88b5

func openRaw(t *testing.T, netns, link string) *rawLink {
	t.Helper()
	r := &rawLink{t: t}
	netnstest.Do(t, netns, func() {
		of, err := netlink.LinkByName(link)
		if err == nil {
			err = netlink.LinkSetUp(of)
		}
		if err != nil {
			t.Fatal(err)
		}
		const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8
		r.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all)
		if err == nil {
			err = unix.Bind(r.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: of.Attrs().Index})
		}
		if err == nil {
			err = unix.SetsockoptInt(r.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _ = unix.Close(r.fd) })
	return r
}

// send broadcasts a text from a MAC.
func (r *rawLink) send(text string, tags ...tag) {
	r.t.Helper()
	frame := append(bytes.Repeat([]byte{0xff}, 6), 2, 0, 0, 0, 7, byte(r.fd))
	for _, g := range tags {
		frame = binary.BigEndian.AppendUint16(frame, g.kind)
		frame = binary.BigEndian.AppendUint16(frame, g.vlan)
	}
	frame = binary.BigEndian.AppendUint16(frame, testType)
	frame = append(frame, text...)
	frame = append(frame, make([]byte, max(0, 60-len(frame)))...)
	if _, err := unix.Write(r.fd, frame); err != nil {
		r.t.Fatal(err)
	}
}

// received lists the texts that have arrived, with their tags: "text [8100:100]".
func (r *rawLink) received() (texts []string) {
	r.t.Helper()
	for {
		frame := make([]byte, 2048)
		control := make([]byte, 256)
		n, size, _, from, err := unix.Recvmsg(r.fd, frame, control, 0)
		if err != nil {
			return texts
		}
		if link, is := from.(*unix.SockaddrLinklayer); is && link.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		frame = withStrippedTag(frame[:n], control[:size])
		var tags []string
		at := 12
		for kind := binary.BigEndian.Uint16(frame[at:]); kind == unix.ETH_P_8021Q || kind == unix.ETH_P_8021AD; {
			tags = append(tags, tag{kind, binary.BigEndian.Uint16(frame[at+2:])}.String())
			at += 4
			kind = binary.BigEndian.Uint16(frame[at:])
		}
		if binary.BigEndian.Uint16(frame[at:]) == testType {
			texts = append(texts, fmt.Sprintf("%s %v", bytes.TrimRight(frame[at+2:], "\x00"), tags))
		}
	}
}

// withStrippedTag returns a frame with the tag that the kernel reports beside it.
func withStrippedTag(frame, control []byte) []byte {
	messages, _ := unix.ParseSocketControlMessage(control)
	for _, m := range messages {
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA {
			continue
		}
		status := binary.NativeEndian.Uint32(m.Data)
		if status&unix.TP_STATUS_VLAN_VALID != 0 {
			tagged := binary.BigEndian.AppendUint16(slices.Clone(frame[:12]), binary.NativeEndian.Uint16(m.Data[18:]))
			tagged = binary.BigEndian.AppendUint16(tagged, binary.NativeEndian.Uint16(m.Data[16:]))
			return append(tagged, frame[12:]...)
		}
	}
	return frame
}

// crossing is a frame that arrives: with the tags in at the one end, and out, in the form of received, at the other.
type crossing struct {
	from *rawLink
	in   []tag
	to   *rawLink
	out  string
}

// crosses waits until the frame arrives.
func (l *lab) crosses(c crossing) {
	l.Helper()
	var seen []string
	deadline := time.Now().Add(time.Minute)
	for try := 0; time.Now().Before(deadline); try++ {
		text := fmt.Sprintf("%v-%d", c.in, try)
		c.from.send(text, c.in...)
		for range 20 {
			seen = append(seen, c.to.received()...)
			if slices.Contains(seen, text+" "+c.out) {
				return
			}
			<-time.After(5 * time.Millisecond)
		}
	}
	l.Errorf("frame with tags %v did not arrive with %s: %v", c.in, c.out, seen)
}

// drops sends a frame with tags before one that crosses, and fails the test if it arrives anywhere.
func (l *lab) drops(in []tag, before crossing, others ...*rawLink) {
	l.Helper()
	before.from.send("forbidden", in...)
	l.crosses(before)
	for n, o := range others {
		for _, text := range o.received() {
			if strings.HasPrefix(text, "forbidden") {
				l.Errorf("link %d received %s", n, text)
			}
		}
	}
}

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
func onPair(vlan uint16) []tag {
	if dataplane.Prefix() != "" {
		return []tag{dot1q(vlan)}
	}
	return []tag{dot1ad(outerVLAN), dot1q(vlan)}
}

// String has the form of received.
func (g tag) String() string { return fmt.Sprintf("%x:%d", g.kind, g.vlan) }

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
	trunk := openRaw(t, l.onLab("trunk", `{"t1": {"vlans": [100, 300]}}`).Netns, "t1")
	plain := openRaw(t, l.onLab("plain", "").Netns, "t1")
	single := openRaw(t, l.single.netns, "eth0")
	pair := openRaw(t, l.pair.netns, "eth0")
	toPair := crossing{trunk, []tag{dot1q(300)}, pair, fmt.Sprint(onPair(300))}
	fromPair := crossing{pair, onPair(300), trunk, "[8100:300]"}
	untagged := crossing{trunk, nil, plain, "[]"}
	for _, c := range []crossing{
		{trunk, []tag{dot1q(100)}, single, "[8100:100]"},
		{single, []tag{dot1q(100)}, trunk, "[8100:100]"},
		toPair, fromPair, untagged,
		{trunk, nil, single, "[]"},
		{single, nil, trunk, "[]"},
	} {
		l.crosses(c)
	}
	for _, in := range [][]tag{
		{dot1q(101)}, {dot1q(5)}, {dot1ad(500), dot1q(300)}, {dot1q(100), dot1q(300)}, {dot1q(0)},
	} {
		l.drops(in, untagged, plain, single, pair)
	}
	l.drops([]tag{dot1q(100)}, crossing{plain, nil, trunk, "[]"}, single, pair)
	for _, in := range [][]tag{{dot1q(300)}, {dot1ad(500), dot1q(300)}} {
		l.drops(in, crossing{single, nil, trunk, "[]"}, plain, pair)
	}
	toNone := [][]tag{nil, {dot1ad(500)}, {dot1ad(501), dot1q(300)}}
	if len(onPair(300)) > 1 {
		toNone = append(toNone, []tag{dot1q(300)})
	} else {
		toNone = append(toNone, []tag{dot1ad(500), dot1q(300)}, []tag{dot1q(500)})
	}
	for _, in := range toNone {
		l.drops(in, fromPair, plain, single)
	}
	l.eventually("the dropped frames are counted by name", func() bool {
		text, err := l.Weftctl(t.Context(), "counters", "-o", "json")
		return err == nil && strings.Contains(text, "subinterface down") && strings.Contains(text, "unknown vlan")
	})
	l.server.Remove("externalinterfaces.contivpp.io", "", "single")
	l.eventually("it is disconnected", func() bool { return slices.Equal(statuses(l.server), []string{"pair: "}) })
	l.crosses(toPair)
}

// A trunk is made, lost with the dataplane, found by a new agent, removed and made again.
func TestTrunksOutliveRestarts(t *testing.T) {
	l := newTrunkLab(t)
	p := l.onLab("trunk", `{"t1": {"vlans": [100, 300]}}`)
	pair := openRaw(t, l.pair.netns, "eth0")
	single := openRaw(t, l.single.netns, "eth0")
	carries := func(after string) {
		t.Helper()
		trunk := openRaw(t, p.Netns, "t1") // the dataplane may have made another link
		l.crosses(crossing{trunk, []tag{dot1q(300)}, pair, fmt.Sprint(onPair(300))})
		l.crosses(crossing{single, []tag{dot1q(100)}, trunk, "[8100:100]"})
		l.drops([]tag{dot1q(101)}, crossing{trunk, nil, single, "[]"}, pair)
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
	trunk := openRaw(t, p.Netns, "t1")
	l.drops([]tag{dot1q(300)}, crossing{trunk, []tag{dot1q(100)}, single, "[8100:100]"}, pair)
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
