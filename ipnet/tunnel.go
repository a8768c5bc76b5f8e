package ipnet

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// How packets get to other nodes.
const (
	TunnelVXLAN4 = "vxlan4" // inside UDP over IPv4
	TunnelVXLAN6 = "vxlan6" // inside UDP over IPv6
	TunnelNone   = "none"   // as they are, by the node's kernel: nodes share a subnet. The network default only
)

// encapsulation is what a tunnel adds to a packet, in bytes: Ethernet, VXLAN, UDP and the outer IP.
var encapsulation = map[string]int{TunnelNone: 0, TunnelVXLAN4: 14 + 8 + 8 + 20, TunnelVXLAN6: 14 + 8 + 8 + 40}

// hasTunnels reports whether packets to other nodes are put into others.
func (c Config) hasTunnels() bool { return c.Tunnel != TunnelNone }

// mostMTU returns the highest MTU that reaches other nodes without fragments; 0: not known.
func (c Config) mostMTU() int {
	if c.UplinkMTU == 0 && !c.hasTunnels() {
		return 0
	}
	return c.uplinkMTU() - encapsulation[c.Tunnel]
}

// uplinkMTU is what packets between nodes may be long.
func (c Config) uplinkMTU() int { return cmp.Or(c.UplinkMTU, 1500) }

func (c Config) validateTunnel() error {
	if _, known := encapsulation[c.Tunnel]; !known {
		return fmt.Errorf("tunnel %q is none of %s, %s, %s", c.Tunnel, TunnelVXLAN4, TunnelVXLAN6, TunnelNone)
	}
	if c.VNI >= 1<<24 {
		return fmt.Errorf("VNI %d is above 16777215", c.VNI)
	}
	return c.carries("the node's interfaces", c.MTU)
}

// carries refuses an MTU of which larger packets would be than get to other nodes.
func (c Config) carries(what string, mtu int) error {
	most := c.mostMTU()
	if most == 0 || mtu <= most {
		return nil
	}
	return fmt.Errorf("MTU %d of %s is above %d, which is what %s leaves of the uplink's %d",
		mtu, what, most, c.Tunnel, most+encapsulation[c.Tunnel])
}

// endOf is the address of a node that tunnels lead to; not valid if it has none of their family. Without tunnels it is any.
func (c Config) endOf(n pod.Node) netip.Addr {
	for _, a := range n.Addresses {
		if !isHost(a) {
			continue
		}
		if !c.hasTunnels() || a.Is4() == (c.Tunnel == TunnelVXLAN4) {
			return a
		}
	}
	return netip.Addr{}
}

// isHost reports whether an address can be that of one machine for others.
func isHost(a netip.Addr) bool {
	return a.IsValid() && !a.Is4In6() && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() && a.Zone() == ""
}

// overlay is a network as it goes on at other nodes.
type overlay struct {
	network string // "default" for the network default
	label   string // of the bridge domain that the tunnels are in
	bvi     string // that a routed network enters it by; "" for one that is bridged
	domain  uint32
	vni     uint32
	mtu     int
	vrf     vrf
	own     []netip.Prefix // that have routes of this node's already
}

// overlays are the networks that go on at other nodes, but for the network default.
func (n *Network) overlays() []overlay {
	var overlays []overlay
	for _, s := range n.Networks() {
		if o, ok := n.overlayOf(n.custom(s.Network.Name)); ok {
			overlays = append(overlays, o)
		}
	}
	return overlays
}

// defaultOverlay is the network default as it goes on at other nodes.
func (n *Network) defaultOverlay() overlay {
	o := overlay{
		network: pod.DefaultNetwork, label: meshLabelOf(pod.DefaultNetwork), bvi: bviOf(pod.DefaultNetwork),
		domain: n.config.MeshDomain, vni: n.config.VNI, mtu: n.config.MTU, vrf: podsVRF,
	}
	for _, p := range n.pools.Load().all {
		o.own = append(o.own, p.Prefix)
	}
	return o
}

// overlayOf is a custom network as it goes on at other nodes; false if it does not.
func (n *Network) overlayOf(c *custom) (overlay, bool) {
	if c == nil || c.Network.VNI == 0 || c.BridgeDomain == 0 || !n.config.hasTunnels() {
		return overlay{}, false
	}
	o := overlay{
		network: c.Network.Name, label: c.label, domain: c.BridgeDomain, vni: c.VNI, mtu: n.mtuOf(c), vrf: c.vrf, own: c.Network.CIDRs,
	}
	if c.Network.Type == pod.L3 {
		o.label, o.bvi = meshLabelOf(o.network), bviOf(o.network)
	}
	return o, true
}

func (o overlay) isBridged() bool { return o.bvi == "" }

// enter is what there is of a network's mesh without other nodes.
func (o overlay) enter(self pod.Node) values {
	var v values
	if o.isBridged() {
		return v
	}
	v.add(wire.BridgeDomainKey(o.label), wire.BridgeDomain{ID: o.domain, Label: o.label, Forward: true})
	v.add(wire.InterfaceKey(o.bvi), wire.Interface{Type: wire.TypeLoopback, MAC: meshMAC(self.ID), MTU: o.mtu, Up: true})
	families := familiesOf(o.own)
	v.add(wire.UnnumberedKey(o.bvi), o.vrf.borrowed(o.bvi, families))
	for _, f := range families {
		v.add(wire.InterfaceVRFKey(o.bvi, f), o.vrf.membership(o.bvi, f, false))
		if f == wire.IP4 {
			continue
		}
		own := single(meshAddress(self.ID, f))
		v.add(wire.AddressKey(o.bvi, own), wire.Address{Interface: o.bvi, Prefix: own})
	}
	v.add(wire.BridgeMemberKey(o.bvi), wire.BridgeMember{BridgeDomain: o.label, Interface: o.bvi, BVI: true})
	return v
}

// split is the group of all tunnels: what came by one of them has reached all nodes, and leaves by no other.
const split = 1

// reach is the way to a node: a tunnel, and for a routed network what leads into it.
func (o overlay) reach(t wire.VXLAN, node pod.Node) values {
	var v values
	object, mac := tunnelOf(o.network, node.ID), meshMAC(node.ID)
	t.VNI = o.vni
	v.add(wire.InterfaceKey(object), wire.Interface{Type: wire.TypeVXLAN, Up: true, VXLAN: t})
	v.add(wire.BridgeMemberKey(object), wire.BridgeMember{BridgeDomain: o.label, Interface: object, SplitHorizonGroup: split})
	if o.isBridged() {
		return v
	}
	v.add(wire.L2FIBKey(o.label, mac), wire.L2FIB{BridgeDomain: o.label, MAC: mac, Interface: object})
	for _, f := range familiesOf(o.own) {
		a := meshAddress(node.ID, f)
		v.add(wire.NeighbourKey(o.bvi, a), wire.Neighbour{Interface: o.bvi, Address: a, MAC: mac})
	}
	for _, block := range o.blocksOf(node) {
		o.vrf.route(&v, block, wire.Path{Interface: o.bvi, NextHop: meshAddress(node.ID, wire.FamilyOf(block.Addr()))})
	}
	return v
}

// blocksOf are the blocks of a network on a node that a route can lead to.
func (o overlay) blocksOf(node pod.Node) []netip.Prefix {
	var blocks []netip.Prefix
	for _, part := range node.Parts {
		for _, block := range part.Blocks {
			if part.Network == o.network && o.unroutable(block) == "" {
				blocks = append(blocks, block)
			}
		}
	}
	return blocks
}

// unroutable says why no route can lead to a block; "" if one can.
func (o overlay) unroutable(block netip.Prefix) string {
	sameFamily := false
	for _, own := range o.own {
		if own.Addr().Is4() != block.Addr().Is4() {
			continue
		}
		sameFamily = true
		if block.Overlaps(own) && block.Bits() <= own.Bits() {
			return fmt.Sprintf("it is not a part of %s, but all of it", own)
		}
	}
	if !sameFamily {
		return fmt.Sprintf("this node has no %s there", wire.FamilyOf(block.Addr()))
	}
	return ""
}

// The dataplane's end of all tunnels where the kernel has the network card, on a link of its own to the node's kernel:
//
//	pods' VRF - bridge domain - tunnel (inner to peer) - VRF of the tunnels - tunnelObject (inner)
//	                                                                               ||
//	                    uplink (node) - node's kernel, which translates - TunnelLink
//
// The dataplane sends from an address that it has (VPP drops everything else), and the kernel, which keeps the uplink, puts
// the node's address in its place (wire.TunnelNAT). Peers see tunnels between the addresses of nodes. The VRF has nothing but
// the way to each peer: pods are in other VRFs, and a packet to a machine that is no peer is dropped.
const (
	tunnelObject    = "weft-vtep"
	usualTunnelLink = "weft-vtep0"
	tunnelAlias     = wire.AliasPrefix + "vtep"
	tunnelLabel     = "weft:vxlan:.ends" // begins as meshLabelOf does; no name of a network begins with a dot
)

// tunnelVRF routes the envelopes of all tunnels.
var tunnelVRF = vrf{label: tunnelLabel}

// The addresses of the link. No other machine sees them, so they are the same on all nodes. The kernel's end has none that
// the kernel knows: it could be chosen as a source, and is but a name for the dataplane's neighbour.
var (
	kernelEnd4    = netip.AddrFrom4([4]byte{169, 254, 43, 1})
	dataplaneEnd4 = netip.AddrFrom4([4]byte{169, 254, 43, 2})
	kernelEnd6    = netip.AddrFrom16([16]byte{0: 0xfd, 1: 'w', 2: 'e', 3: 'f', 4: 't', 15: 1})
	dataplaneEnd6 = netip.AddrFrom16([16]byte{0: 0xfd, 1: 'w', 2: 'e', 3: 'f', 4: 't', 15: 2})
)

// innerEnd is the address of the dataplane's end that stands for a node's address. In IPv6 its last but one word makes the
// sums of both addresses the same, so that no checksum changes when one takes the place of the other (RFC 6296, 3.1).
func innerEnd(node netip.Addr) netip.Addr {
	if node.Is4() {
		return dataplaneEnd4
	}
	inner := dataplaneEnd6.As16()
	const modulus = 1<<16 - 1 // of sums with end-around carry
	word := (uint32(wire.AddressSum(node)) + modulus - uint32(wire.AddressSum(dataplaneEnd6))) % modulus
	inner[12], inner[13] = byte(word>>8), byte(word)
	return netip.AddrFrom16(inner)
}

// kernelEnd is the next hop of the tunnels' VRF.
func kernelEnd(f wire.Family) netip.Addr {
	if f == wire.IP4 {
		return kernelEnd4
	}
	return kernelEnd6
}

// tunnelLink is the link that envelopes go by. They are as long as the uplink carries.
func (n *Network) tunnelLink() link {
	return link{
		kind: n.hostLink().kind, object: tunnelObject, name: n.config.TunnelLink, alias: tunnelAlias,
		mac: macOf(tunnelObject, dataplaneEnd), peerMAC: macOf(tunnelObject, linuxEnd), mtu: n.config.uplinkMTU(),
		gso: true, maxSegment: n.config.MaxSegment,
	}
}

// tunnelSource is the address that the dataplane sends tunnel packets from: the node's, or where the kernel has the card the one
// that stands for it.
func (n *Network) tunnelSource(self netip.Addr) netip.Addr {
	if n.config.ownsCard() {
		return self
	}
	return innerEnd(self)
}

// tunnelEnd is the dataplane's end of the tunnels of a node, without other nodes; nothing where the dataplane owns the card,
// which has the node's address.
func (n *Network) tunnelEnd(self netip.Addr) values {
	if n.config.ownsCard() {
		return nil
	}
	f, inner, l := wire.FamilyOf(self), innerEnd(self), n.tunnelLink()
	var v values
	v.add(wire.VRFKey(tunnelLabel, f), wire.VRF{ID: n.config.TunnelVRFTable, Family: f, Label: tunnelLabel})
	v = append(v, l.ends()...)
	v.add(wire.InterfaceVRFKey(l.object, f), tunnelVRF.membership(l.object, f, false))
	v.add(wire.AddressKey(l.object, single(inner)), wire.Address{Interface: l.object, Prefix: single(inner)})
	v.add(wire.NeighbourKey(l.object, kernelEnd(f)), wire.Neighbour{Interface: l.object, Address: kernelEnd(f), MAC: l.peerMAC})
	l.setting(&v, forwarding[f], "1")
	l.linuxNeighbour(&v, inner)
	l.linuxRoute(&v, single(inner), netip.Addr{}, netip.Addr{})
	return v
}

// routeToPeer leads envelopes to a peer; nothing where the dataplane has the routes of the card.
func (n *Network) routeToPeer(peer netip.Addr) values {
	var v values
	if n.config.ownsCard() {
		return v
	}
	tunnelVRF.route(&v, single(peer), wire.Path{Interface: tunnelObject, NextHop: kernelEnd(wire.FamilyOf(peer))})
	return v
}

// tunnelNAT is the translation of all tunnels of a mesh; nothing where there are none, or the dataplane owns the card.
func (n *Network) tunnelNAT(m *mesh) values {
	if !n.isPart(m) || !n.config.hasTunnels() || n.config.ownsCard() {
		return nil
	}
	self := n.config.endOf(m.self)
	is := wire.TunnelNAT{Link: n.config.TunnelLink, Port: n.config.VXLANPort, Inner: innerEnd(self), Node: self}
	for _, node := range m.nodes {
		is.Peers = append(is.Peers, n.config.endOf(node))
	}
	slices.SortFunc(is.Peers, netip.Addr.Compare)
	var v values
	v.add(wire.TunnelNATKey(), is)
	return v
}
