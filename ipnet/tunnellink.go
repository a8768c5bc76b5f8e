package ipnet

import (
	"net/netip"
	"slices"

	"github.com/weftnet/weft/wire"
)

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
