package mesh

import (
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// trunkOf lists the values of an external interface with VLANs: the card in the dataplane, and a part of it for each
// VLAN, in the bridge domain that the VLAN has on the network. Several trunks may share a card.
func (es *Externals) trunkOf(e pod.External, c *networks.Custom) desired.Values {
	var v desired.Values
	card := desired.CardOf(e.Interface)
	on := wire.LinkKey(e.Interface)
	v.Add(on, es.linkOf(e.Interface))
	v.Add(wire.InterfaceKey(card), wire.Interface{
		Type:     wire.TypeAFPacket,
		MAC:      desired.MACOf(card+"@"+e.Node, desired.DataplaneEnd),
		Up:       true,
		AFPacket: wire.AFPacket{Link: e.Interface, On: on},
	})
	for id := range e.VLANs.All() {
		part := desired.VLANOf(card, id)
		if e.Outer != 0 {
			part = desired.PairOf(card, e.Outer, id)
		}
		sub := wire.Sub{Parent: card, Outer: e.Outer, VLAN: id}
		v.Add(wire.InterfaceKey(part), wire.Interface{Type: wire.TypeSub, Up: true, Sub: sub})
		v.Add(wire.BridgeMemberKey(part), wire.BridgeMember{
			BridgeDomain: c.VLANLabel(id), Interface: part, Untag: sub.Tags(),
		})
	}
	if e.Native == nil {
		return v
	}
	domain := c.Label
	if *e.Native != 0 {
		domain = c.VLANLabel(*e.Native)
	}
	return append(v, untagged(card, c, domain)...)
}

// untagged makes an interface a member of a bridge domain. On a network with VLANs its tagged frames are dropped,
// unless they belong to a part of the interface.
func untagged(object string, c *networks.Custom, domain string) desired.Values {
	var v desired.Values
	member := wire.BridgeMember{BridgeDomain: domain, Interface: object}
	if len(c.Network.VLANs) > 0 {
		rest := desired.RestOf(object)
		member.Rest = wire.InterfaceKey(rest)
		v.Add(member.Rest, wire.Interface{Type: wire.TypeSub, Sub: wire.Sub{Parent: object}})
	}
	v.Add(wire.BridgeMemberKey(object), member)
	return v
}

// linkOf is the link of a card, which all its external interfaces share.
func (es *Externals) linkOf(card string) wire.Link {
	link := wire.Link{Name: card, Up: true, Unmerged: es.mesh.config.MaxSegment != 0}
	for _, e := range es.All() {
		if e.Interface == card && e.IsTrunk() {
			link.Room = max(link.Room, es.networks.MTUOf(es.networks.Custom(e.Network))+tagRoom(e))
		}
	}
	return link
}

// tagRoom is the room that the MTU of a card must have for tags. Linux sends a tag of 802.1Q in addition to the MTU,
// and tags of 802.1ad within it.
func tagRoom(e pod.External) int {
	const tag = 4
	if e.Outer == 0 {
		return 0
	}
	return 2 * tag
}

// checkTrunk rejects VLANs that contradict each other, or that the network does not have.
func (es *Externals) checkTrunk(e pod.External, c *networks.Custom) error {
	if !e.IsTrunk() {
		return nil
	}
	if err := e.ValidateTrunk(); err != nil {
		return err
	}
	network := pod.Network{Name: pod.DefaultNetwork}
	if c != nil {
		network = c.Network
	}
	return network.SuitsExternal(e)
}
