package conformance

import (
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
	{name: "vlan: deletion of the parent", run: func(l *lab) {
		parent := l.trunk()
		l.make("single", vlanOf(parent, 100))
		l.each(deleteMemif(parent), dumpOf(none))
	}},
}
