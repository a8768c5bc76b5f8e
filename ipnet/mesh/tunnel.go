package mesh

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// overlay is a network that spans several nodes.
type overlay struct {
	network string // "default" for the network default
	label   string // of the bridge domain that the tunnels are in
	bvi     string // loopback that connects a routed network to it; "" for a bridged network
	domain  uint32
	vni     uint32
	mtu     int // of packets that are routed to other nodes
	frames  int // MTU of the network
	vrf     desired.VRF
	own     []netip.Prefix // prefixes that this node has routes for
}

// overlays are the networks that span several nodes.
type overlays struct {
	networks *networks.Networks
	pathMTU  int // of packets of pods, bytes; 0: no limit
}

// custom lists the custom networks that span several nodes.
func (os *overlays) custom() []overlay {
	var all []overlay
	for _, s := range os.networks.Saved() {
		c := os.networks.Custom(s.Network.Name)
		if o, ok := os.of(c); ok {
			all = append(all, o)
			all = append(all, o.vlans(c)...)
		}
	}
	return all
}

// main is the overlay of the network default.
func (os *overlays) main() overlay {
	o := overlay{
		network: pod.DefaultNetwork,
		label:   desired.MeshLabelOf(pod.DefaultNetwork),
		bvi:     desired.BVIOf(pod.DefaultNetwork),
		domain:  os.networks.Config.MeshDomain, vni: os.networks.Config.VNI, vrf: desired.PodsVRF,
	}
	for _, p := range os.networks.Pools().All {
		o.own = append(o.own, p.Prefix)
	}
	o.frames = os.networks.Config.MTU
	o.mtu = os.carried(o.frames, o.own)
	return o
}

// of returns the overlay of a custom network; false if the network is local to the node.
func (os *overlays) of(c *networks.Custom) (overlay, bool) {
	if c == nil || c.Network.VNI == 0 || c.BridgeDomain == 0 || !os.networks.Config.HasTunnels() {
		return overlay{}, false
	}
	o := overlay{
		network: c.Network.Name,
		label:   c.Label,
		domain:  c.BridgeDomain,
		vni:     c.VNI,
		mtu:     os.carried(os.networks.MTUOf(c), c.Network.CIDRs),
		frames:  os.networks.MTUOf(c),
		vrf:     c.VRF,
		own:     c.Network.CIDRs,
	}
	if c.Network.Type == pod.L3 {
		o.label = desired.MeshLabelOf(o.network)
		o.bvi = desired.BVIOf(o.network)
	}
	return o, true
}

// vlans lists the overlays of the VLANs of a network. Their frames have no tags in the tunnels, so they have the MTU of
// the network.
func (o overlay) vlans(c *networks.Custom) []overlay {
	var overlays []overlay
	for id := range c.Network.VLANs.All() {
		vni, ok := pod.VNIOfVLAN(c.VNI, id)
		if !ok { // of the node's own choice: the network has no tunnels
			continue
		}
		part := o
		part.network = fmt.Sprintf("%s.%d", o.network, id)
		part.label = c.VLANLabel(id)
		part.domain = c.VLANDomain(id)
		part.vni = vni
		overlays = append(overlays, part)
	}
	return overlays
}

// carried returns the MTU of an overlay with these prefixes: the MTU of its network, or the one that the paths to other
// nodes carry. A link with IPv6 has at least pod.MinMTU.
func (os *overlays) carried(mtu int, own []netip.Prefix) int {
	if os.pathMTU == 0 {
		return mtu
	}
	return min(mtu, max(os.pathMTU, pod.MinMTU(slices.Contains(desired.FamiliesOf(own), netaddr.IP6))))
}

func (o overlay) isBridged() bool { return o.bvi == "" }

// enter lists the values of an overlay without other nodes.
func (o overlay) enter(self pod.Node) desired.Values {
	var v desired.Values
	if o.isBridged() {
		return v
	}
	v.Add(wire.BridgeDomainKey(o.label), wire.BridgeDomain{ID: o.domain, Label: o.label, Forward: true})
	v.Add(wire.InterfaceKey(o.bvi), wire.Interface{
		Type: wire.TypeLoopback,
		MAC:  desired.MeshMAC(self.ID),
		MTU:  o.mtu,
		Up:   true,
	})
	families := desired.FamiliesOf(o.own)
	v.Add(wire.UnnumberedKey(o.bvi), o.vrf.Borrowed(o.bvi, families))
	for _, f := range families {
		v.Add(wire.InterfaceVRFKey(o.bvi, f), o.vrf.Membership(o.bvi, f))
		if f == netaddr.IP4 {
			continue
		}
		own := netaddr.Single(desired.MeshAddress(self.ID, f))
		v.Add(wire.AddressKey(o.bvi, own), wire.Address{Interface: o.bvi, Prefix: own})
	}
	v.Add(wire.BridgeMemberKey(o.bvi), wire.BridgeMember{BridgeDomain: o.label, Interface: o.bvi, BVI: true})
	return v
}

// split is the split-horizon group of all tunnels: a packet from one tunnel has reached all nodes, and leaves through
// no other tunnel.
const split = 1

// reach lists the values that lead to a node: a tunnel, and for a routed network the routes into it.
func (o overlay) reach(t wire.VXLAN, node pod.Node) desired.Values {
	var v desired.Values
	object := desired.TunnelOf(o.network, node.ID)
	mac := desired.MeshMAC(node.ID)
	t.VNI = o.vni
	v.Add(wire.InterfaceKey(object), wire.Interface{Type: wire.TypeVXLAN, MTU: o.tunnelMTU(), Up: true, VXLAN: t})
	v.Add(wire.BridgeMemberKey(object), wire.BridgeMember{
		BridgeDomain:      o.label,
		Interface:         object,
		SplitHorizonGroup: split,
	})
	if o.isBridged() {
		return v
	}
	v.Add(wire.L2FIBKey(o.label, mac), wire.L2FIB{BridgeDomain: o.label, MAC: mac, Interface: object})
	for _, f := range desired.FamiliesOf(o.own) {
		a := desired.MeshAddress(node.ID, f)
		v.Add(wire.NeighbourKey(o.bvi, a), wire.Neighbour{Interface: o.bvi, Address: a, MAC: mac})
	}
	for _, p := range slices.Concat(o.blocksOf(node), o.routedTo(node)) {
		o.route(&v, p, node)
	}
	return v
}

// newTunnelMTU is the MTU of a tunnel that the dataplane creates.
const newTunnelMTU = 9000

// tunnelMTU is the MTU of the overlay's tunnels; 0: the one that the dataplane gives them carries all packets.
func (o overlay) tunnelMTU() int {
	if o.frames <= newTunnelMTU {
		return 0
	}
	return pod.MaxMTU
}

// route routes a prefix to a node.
func (o overlay) route(v *desired.Values, p netip.Prefix, node pod.Node) {
	o.vrf.Route(v, p, wire.Path{Interface: o.bvi, NextHop: desired.MeshAddress(node.ID, netaddr.FamilyOf(p.Addr()))})
}

// blocksOf lists the blocks of the network on a node that can be routed.
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

// routedTo lists the prefixes behind pods of a node that a route can lead to: this node has an address of their family.
func (o overlay) routedTo(node pod.Node) []netip.Prefix {
	families := desired.FamiliesOf(o.own)
	var prefixes []netip.Prefix
	for _, part := range node.Parts {
		for _, p := range part.Routed {
			if part.Network == o.network && slices.Contains(families, netaddr.FamilyOf(p.Addr())) {
				prefixes = append(prefixes, p)
			}
		}
	}
	return prefixes
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
		return fmt.Sprintf("this node has no %s there", netaddr.FamilyOf(block.Addr()))
	}
	return ""
}

// The addresses of the link. No other machine sees them, so they are the same on all nodes. The kernel does not have
// the address of its end, which it could choose as a source; it only identifies the dataplane's neighbour.
var (
	kernelEnd4    = netip.AddrFrom4([4]byte{169, 254, 43, 1})
	dataplaneEnd4 = netip.AddrFrom4([4]byte{169, 254, 43, 2})
	kernelEnd6    = netip.AddrFrom16([16]byte{0: 0xfd, 1: 'w', 2: 'e', 3: 'f', 4: 't', 15: 1})
	dataplaneEnd6 = netip.AddrFrom16([16]byte{0: 0xfd, 1: 'w', 2: 'e', 3: 'f', 4: 't', 15: 2})
)

// innerEnd is the address of the dataplane's end for a node's address. In IPv6 its last but one word makes the sums of
// both addresses equal, so that the translation changes no checksum (RFC 6296, 3.1).
func innerEnd(node netip.Addr) netip.Addr {
	if node.Is4() {
		return dataplaneEnd4
	}
	inner := dataplaneEnd6.As16()
	const modulus = 1<<16 - 1 // of sums with end-around carry
	word := (uint32(wire.AddressSum(node)) + modulus - uint32(wire.AddressSum(dataplaneEnd6))) % modulus
	inner[12] = byte(word >> 8)
	inner[13] = byte(word)
	return netip.AddrFrom16(inner)
}

// kernelEnd is the next hop of the tunnels' VRF.
func kernelEnd(f netaddr.Family) netip.Addr {
	if f == netaddr.IP4 {
		return kernelEnd4
	}
	return kernelEnd6
}

// tunnelLink is the link for tunnel packets. It has the MTU of the uplink.
func (h *Host) tunnelLink() desired.Link {
	return desired.Link{
		Kind: h.HostLink().Kind, Object: desired.TunnelObject,
		LinuxPlace: desired.LinuxPlace{Name: h.Config.TunnelLink, Alias: desired.TunnelAlias},
		Ethernet: desired.Ethernet{
			MAC:        desired.MACOf(desired.TunnelObject, desired.DataplaneEnd),
			PeerMAC:    desired.MACOf(desired.TunnelObject, desired.LinuxEnd),
			MTU:        h.networks.Config.PathMTU(),
			GSO:        true,
			MaxSegment: h.Config.MaxSegment,
		},
	}
}

// tunnelSource is the source of the dataplane's tunnel packets: the node's address, or innerEnd where the kernel has
// the card.
func (h *Host) tunnelSource(self netip.Addr) netip.Addr {
	if h.Config.ownsCard() {
		return self
	}
	return innerEnd(self)
}

// tunnelEnd lists the values of the dataplane's end of all tunnels; none where the dataplane owns the card, which has
// the node's address.
func (h *Host) tunnelEnd(self netip.Addr) desired.Values {
	if h.Config.ownsCard() {
		return nil
	}
	f := netaddr.FamilyOf(self)
	inner := innerEnd(self)
	l := h.tunnelLink()
	var v desired.Values
	v.Add(wire.VRFKey(desired.TunnelLabel, f), wire.VRF{
		ID:     h.Config.TunnelVRFTable,
		Family: f,
		Label:  desired.TunnelLabel,
	})
	v = append(v, l.Ends()...)
	v.Add(wire.InterfaceVRFKey(l.Object, f), desired.TunnelVRF.Membership(l.Object, f))
	v.Add(wire.AddressKey(l.Object, netaddr.Single(inner)), wire.Address{
		Interface: l.Object,
		Prefix:    netaddr.Single(inner),
	})
	v.Add(wire.NeighbourKey(l.Object, kernelEnd(f)), wire.Neighbour{
		Interface: l.Object,
		Address:   kernelEnd(f),
		MAC:       l.PeerMAC,
	})
	l.Forward(&v, f)
	l.LinuxNeighbour(&v, inner)
	l.LinuxRoute(&v, netaddr.Single(inner), netip.Addr{}, netip.Addr{})
	return v
}

// routeToPeer routes tunnel packets to a peer, unless the dataplane has the routes of the card.
func (h *Host) routeToPeer(peer netip.Addr) desired.Values {
	var v desired.Values
	if h.Config.ownsCard() {
		return v
	}
	desired.TunnelVRF.Route(&v, netaddr.Single(peer), wire.Path{
		Interface: desired.TunnelObject,
		NextHop:   kernelEnd(netaddr.FamilyOf(peer)),
	})
	return v
}

// vnis lists the VNIs of the networks that span several nodes.
func (os *overlays) vnis() []uint32 {
	vnis := []uint32{os.main().vni}
	for _, o := range os.custom() {
		vnis = append(vnis, o.vni)
	}
	slices.Sort(vnis)
	return slices.Compact(vnis)
}
