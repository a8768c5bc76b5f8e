package conformance

import (
	"net"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/l2"
)

// vlanCase sends all messages of VLANs that the agent sends.
const vlanCase = "vlan: sub-interfaces are created, dumped and deleted"

// Matches of sub-interfaces, and operations of a tag rewrite.
const (
	oneTag  = interface_types.SUB_IF_API_FLAG_ONE_TAG | interface_types.SUB_IF_API_FLAG_EXACT_MATCH
	twoTags = interface_types.SUB_IF_API_FLAG_TWO_TAGS | interface_types.SUB_IF_API_FLAG_EXACT_MATCH
	dot1ad  = interface_types.SUB_IF_API_FLAG_DOT1AD
	rest    = interface_types.SUB_IF_API_FLAG_DEFAULT

	rewriteOff  = 0
	rewritePop1 = 3
	rewritePop2 = 4
)

func vlanOf(parent index, id uint32) *interfaces.CreateVlanSubif {
	return &interfaces.CreateVlanSubif{SwIfIndex: parent, VlanID: id}
}

func subOf(parent index, id uint32, flags interface_types.SubIfFlags, tags ...uint16) *interfaces.CreateSubif {
	tags = append(tags, 0, 0)
	return &interfaces.CreateSubif{
		SwIfIndex: parent, SubID: id, SubIfFlags: flags, OuterVlanID: tags[0], InnerVlanID: tags[1],
	}
}

func rewrite(i index, op uint32) *l2.L2InterfaceVlanTagRewrite {
	return &l2.L2InterfaceVlanTagRewrite{SwIfIndex: i, VtrOp: op}
}

func deleteSub(i index) *interfaces.DeleteSubif { return &interfaces.DeleteSubif{SwIfIndex: i} }

// trunk makes a memif that is up, the parent of sub-interfaces.
func (l *lab) trunk() index {
	l.must(socket(1, l.inRun("trunk.sock"), true))
	parent := l.make("trunk", newMemif(1, 1))
	l.must(setUp(parent, true))
	return parent
}

// trunked is two ports of bridge domain 1, which also have a VLAN in bridge domain 2: 100 of a, and 200 of b. Other
// tagged frames are dropped.
type trunked struct {
	bridged
	subA, subB index
}

func (l *lab) trunked() trunked {
	l.Helper()
	t := trunked{bridged: l.bridged(0, 0)}
	l.must(bridgeMessage(2, true))
	part := func(name string, parent index, vlan uint16) index {
		l.make(name+".rest", subOf(parent, 1<<24, rest))
		i := l.make(name+".vlan", subOf(parent, uint32(vlan), oneTag, vlan))
		l.must(rewrite(i, rewritePop1))
		l.must(joinAs(i, 2, 0, 0))
		l.must(setUp(i, true))
		return i
	}
	t.subA = part("a", t.indexA, 100)
	t.subB = part("b", t.indexB, 200)
	return t
}

// experiment is the payload of a frame of the type for experiments.
var experiment = []gopacket.SerializableLayer{gopacket.Payload(make([]byte, 50))}

// tagged is a frame with a tag of 802.1Q.
func tagged(vlan uint16, src, dst net.HardwareAddr, inner ...gopacket.SerializableLayer) []gopacket.SerializableLayer {
	kind := layers.EthernetType(0x88b5)
	switch inner[0].(type) {
	case *layers.IPv4:
		kind = type4
	case *layers.IPv6:
		kind = type6
	case *layers.ARP:
		kind = layers.EthernetTypeARP
	}
	tag := &layers.Dot1Q{VLANIdentifier: vlan, Type: kind}
	return append([]gopacket.SerializableLayer{ethernet(src, dst, layers.EthernetTypeDot1Q), tag}, inner...)
}

var vlanCases = []testCase{
	{name: vlanCase, run: func(l *lab) {
		parent := l.trunk()
		single := l.make("single", vlanOf(parent, 100))
		double := l.make("double", subOf(parent, 7, twoTags|dot1ad, 500, 100))
		other := l.make("rest", subOf(parent, 8, rest))
		l.each(dumpOf(single), dumpOf(double), dumpOf(other), setUp(single, true), dumpOf(single),
			rewrite(single, rewritePop1), dumpOf(single), deleteSub(single), deleteSub(single), dumpOf(single),
			deleteSub(parent), deleteSub(unknown), deleteSub(double),
			dumpOf(none))
	}},
	{name: "vlan: refusals of sub-interfaces", run: func(l *lab) {
		parent := l.trunk()
		l.make("single", vlanOf(parent, 100))
		l.each(vlanOf(parent, 100), vlanOf(parent, 0), vlanOf(parent, 4096), vlanOf(unknown, 5),
			subOf(parent, 100, oneTag, 9), subOf(parent, 9, oneTag, 100), subOf(unknown, 9, oneTag, 9))
	}},
	{name: "vlan: a sub-interface needs its parent up", run: func(l *lab) {
		parent := l.trunk()
		l.must(setUp(parent, false))
		single := l.make("single", vlanOf(parent, 100))
		l.each(setUp(single, true), setUp(single, false), setUp(parent, true), setUp(single, true), dumpOf(single))
	}},
	{name: "vlan: tag rewrites", run: func(l *lab) {
		parent := l.trunk()
		single := l.make("single", vlanOf(parent, 100))
		double := l.make("double", subOf(parent, 7, twoTags|dot1ad, 500, 100))
		l.each(rewrite(single, rewritePop1), dumpOf(single), rewrite(single, rewritePop2), rewrite(double, rewritePop2),
			dumpOf(double), rewrite(parent, rewritePop1), rewrite(single, rewriteOff), dumpOf(single),
			rewrite(single, 9),
			rewrite(unknown, rewritePop1), rewrite(0, rewritePop1))
	}},
	{name: "vlan: a tag rewrite ends with the membership of a bridge domain", run: func(l *lab) {
		single := l.make("single", vlanOf(l.trunk(), 100))
		leave := &l2.SwInterfaceSetL2Bridge{RxSwIfIndex: single}
		l.must(rewrite(single, rewritePop1))
		l.each(join(single, 5), dumpOf(single), join(single, 6), dumpOf(single), leave, dumpOf(single))
	}},
	{name: "vlan: frames of a trunk", run: func(l *lab) {
		t := l.trunked()
		for _, frame := range [][]gopacket.SerializableLayer{
			tagged(100, hw(podA), broadcast, experiment...), tagged(101, hw(podA), broadcast, experiment...),
			tagged(200, hw(podA), broadcast, experiment...), tagged(0, hw(podA), broadcast, experiment...),
		} {
			t.a.sends(frame...)
			t.receives()
		}
		t.b.sends(tagged(200, hw(podB), hw(podA), experiment...)...)
		t.receives()
		t.a.sends(append([]gopacket.SerializableLayer{ethernet(hw(podA), broadcast, 0x88b5)}, experiment...)...)
		t.receives()
	}},
	{name: "vlan: MACIP lists on a sub-interface", run: func(l *lab) {
		t := l.trunked()
		l.must(macip(anyID, "vlan", permit(podA, "0.0.0.0/0", "::/0")...))
		l.must(apply(t.subA, 0, true))
		forged := "02:00:00:00:99:99"
		for _, sender := range []string{podA, forged} {
			t.a.sends(tagged(100, hw(sender), hw(podB), udp4("10.0.9.2", "10.0.9.3", 100)...)...)
			t.receives()
			t.a.sends(tagged(100, hw(sender), hw(podB), udp6("fd00:9::2", "fd00:9::3", 100)...)...)
			t.receives()
			t.a.sends(tagged(100, hw(podA), broadcast,
				arpMessage(layers.ARPRequest, hw(sender), "10.0.9.2", make(net.HardwareAddr, 6), "10.0.9.3"))...)
			t.receives()
		}
		t.a.sends(tagged(100, hw(podA), broadcast, experiment...)...)
		t.receives()
	}},
	{name: "vlan: deletion of the parent", run: func(l *lab) {
		parent := l.trunk()
		l.make("single", vlanOf(parent, 100))
		l.each(deleteMemif(parent), dumpOf(none))
	}},
}
