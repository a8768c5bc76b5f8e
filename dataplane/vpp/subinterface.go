package vpp

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/l2"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// Matches of sub-interfaces. Exact means that frames with further tags do not match.
const (
	oneTag  = interface_types.SUB_IF_API_FLAG_ONE_TAG | interface_types.SUB_IF_API_FLAG_EXACT_MATCH
	twoTags = interface_types.SUB_IF_API_FLAG_TWO_TAGS | interface_types.SUB_IF_API_FLAG_DOT1AD |
		interface_types.SUB_IF_API_FLAG_EXACT_MATCH
	restOfTags = interface_types.SUB_IF_API_FLAG_DEFAULT
)

// vlanBits is the width of a VLAN in the number of a sub-interface, and restID the number of the one for the rest.
const (
	vlanBits = 12
	restID   = 1 << (2 * vlanBits)
)

func validateSub(v wire.Interface) error {
	s := v.Sub
	switch {
	case s.Parent == "" || len(s.Parent) > maxName:
		return fmt.Errorf("interface %q of the frames: a name has 1 to %d bytes", s.Parent, maxName)
	case s.VLAN < 0 || s.VLAN > wire.MaxVLAN:
		return fmt.Errorf("VLAN %d is not within 1 and %d", s.VLAN, wire.MaxVLAN)
	case s.Outer < 0 || s.Outer > wire.MaxVLAN || s.Outer != 0 && s.VLAN == 0:
		return fmt.Errorf("outer VLAN %d of VLAN %d: both are within 1 and %d", s.Outer, s.VLAN, wire.MaxVLAN)
	case s.VLAN == 0 && v.Up:
		return errors.New("the rest of the tagged frames is dropped: its interface is down")
	}
	return nil
}

// parentOf returns the dependency on the parent. The dataplane deletes a sub-interface with its parent.
func parentOf(s wire.Sub) []kvscheduler.Dep {
	return []kvscheduler.Dep{
		{Label: "interface of the frames", On: ref(wire.KindInterface, s.Parent), Mode: kvscheduler.Follow},
	}
}

// idOf returns the number of a sub-interface on its parent.
func idOf(s wire.Sub) uint32 {
	if s.Tags() == 0 {
		return restID
	}
	return uint32(s.Outer)<<vlanBits | uint32(s.VLAN)
}

func newSub(name string, s wire.Sub, parent Index) *request {
	m := &interfaces.CreateSubif{SwIfIndex: parent.api(), SubID: idOf(s)}
	switch s.Tags() {
	case 0:
		m.SubIfFlags = restOfTags
	case 1:
		m.SubIfFlags = oneTag
		m.OuterVlanID = uint16(s.VLAN)
	default:
		m.SubIfFlags = twoTags
		m.OuterVlanID = uint16(s.Outer)
		m.InnerVlanID = uint16(s.VLAN)
	}
	return ask(fmt.Sprintf("create_subif %s of %s", name, s.Parent), m, &interfaces.CreateSubifReply{})
}

// refuseOuter refuses pairs of tags on interfaces of type af_packet of VPP.
func (b ifaces) refuseOuter(ctx context.Context, batch []interfaceItem) {
	_, isVPP := releaseOf(b.c.Version())
	isPair := func(it interfaceItem) bool { return it.Want.Sub.Tags() > 1 }
	if !isVPP || !slices.ContainsFunc(batch, isPair) {
		return
	}
	p, err := b.c.ports(ctx)
	for i := range batch {
		it := &batch[i]
		switch {
		case !isPair(*it):
		case err != nil:
			it.Err = kvscheduler.Refused(err)
		default:
			it.Err = p.outerRefusal(it.Want.Sub, handle[Index](it, 0))
		}
	}
}

// outerRefusal returns why VPP cannot receive a pair of tags on an interface; nil if it can. The kernel takes the first
// tag off the frames that a packet socket receives, and VPP adds one of 802.1Q instead, whatever it was
// (af_packet_v3_device_input_fn in src/plugins/af_packet/node.c of 25.10 and 26.06). So no frame of 802.1ad arrives.
func (p *ports) outerRefusal(s wire.Sub, parent Index) error {
	link, isLink := p.links[parent]
	if !isLink {
		return nil
	}
	return permanent(fmt.Errorf("outer VLAN %d on %s: VPP does not receive tags of 802.1ad from a network card: "+
		"remove outerVLAN, or use weft-vswitch", s.Outer, link))
}

func deleteSub(name string, i Index) *request {
	return ask("delete_subif "+name, &interfaces.DeleteSubif{SwIfIndex: i.api()}, &interfaces.DeleteSubifReply{}).
		fineIf(api.INVALID_SW_IF_INDEX)
}

func isSub(d *interfaces.SwInterfaceDetails) bool { return d.Type == interface_types.IF_API_TYPE_SUB }

// subOf returns a sub-interface as dumped. A match that Weft never requests has the VLAN -1.
func (p *ports) subOf(d *interfaces.SwInterfaceDetails) wire.Sub {
	s := wire.Sub{Parent: p.byIndex.of(Index(d.SupSwIfIndex))}
	switch d.SubIfFlags {
	case oneTag:
		s.VLAN = int(d.SubOuterVlanID)
	case twoTags:
		s.Outer = int(d.SubOuterVlanID)
		s.VLAN = int(d.SubInnerVlanID)
	case restOfTags:
	default:
		s.VLAN = -1
	}
	return s
}

// Operations of a tag rewrite.
const (
	untagOff = iota
	untag1   = iota + 2
	untag2
)

// untagged returns the number of tags that the dataplane removes from the frames of a member.
func untagged(d *interfaces.SwInterfaceDetails) int {
	switch d.VtrOp {
	case untagOff:
		return 0
	case untag1:
		return 1
	case untag2:
		return 2
	}
	return -1
}

// untaggedBy is untagged for an interface of the dump.
func (p *ports) untaggedBy(i Index) int {
	for _, d := range p.list {
		if Index(d.SwIfIndex) == i {
			return untagged(d)
		}
	}
	return 0
}

// untag removes the tags of a member's frames, and adds them to frames that it sends. A member that leaves its bridge
// domain loses the setting.
func untag(v wire.BridgeMember, i Index) *request {
	op := uint32(untagOff)
	switch v.Untag {
	case 1:
		op = untag1
	case 2:
		op = untag2
	}
	return ask(fmt.Sprintf("l2_interface_vlan_tag_rewrite: %d tags of %s", v.Untag, v.Interface),
		&l2.L2InterfaceVlanTagRewrite{SwIfIndex: i.api(), VtrOp: op}, &l2.L2InterfaceVlanTagRewriteReply{})
}
