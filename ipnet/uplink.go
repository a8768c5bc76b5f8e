package ipnet

import (
	"net/netip"

	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// A network card that the dataplane owns, and the way between it and the node's kernel:
//
//	pods' VRF - bridge domain - tunnel (node to peer) --- VRF of the tunnels --- uplinkObject (node) === network
//	                                                              |
//	                          node's kernel (node) === tunnelObject (dataplaneEnd)
//
// The dataplane has the node's addresses on the card, answers ARP, neighbour discovery and echo requests there, and hands all
// else that is for the node to the kernel, by the link that carries tunnel packets where the kernel has the card. The kernel has
// the node's addresses at its end, and its routes of the card lead to the dataplane. The dataplane has the routes of the card.
const uplinkObject = "weft-uplink"

// ownsCard reports whether the dataplane owns the node's network card.
func (c Config) ownsCard() bool { return c.Card != nil }

// uplinkVRFs are the VRFs that the card is in: of the tunnels, one for each family.
func (n *Network) uplinkVRFs(v *values, families []wire.Family) {
	for _, f := range families {
		v.add(wire.VRFKey(tunnelLabel, f), wire.VRF{ID: n.config.TunnelVRFTable, Family: f, Label: tunnelLabel})
	}
}

// cardLink is the link between the card's VRF and the node's kernel. It is a veth, whatever other links are: the kernel's end
// has the node's addresses, and must stay when the dataplane ends.
func (n *Network) cardLink() link {
	l := n.tunnelLink()
	l.kind, l.mtu = pod.TypeVeth, n.config.Card.MTU
	return l
}

// uplinkValues are what there is for the card; nothing where the kernel keeps it.
func (n *Network) uplinkValues() values {
	if !n.config.ownsCard() {
		return nil
	}
	card, l := *n.config.Card, n.cardLink()
	families := card.Families()
	var v values
	n.uplinkVRFs(&v, families)
	v = append(v, l.ends()...)
	on := wire.LinkKey(card.Link)
	v.add(on, wire.Link{Name: card.Link, Up: true})
	v.add(wire.InterfaceKey(uplinkObject), wire.Interface{
		Type: wire.TypeAFPacket, MAC: card.MAC, MTU: card.MTU, Up: true, GSO: true, AFPacket: wire.AFPacket{Link: card.Link, On: on},
	})
	uplink := wire.Uplink{Card: card, On: l.on(), To: l.name, MAC: l.mac}
	for _, f := range families {
		n.cardFamily(&v, f, &uplink)
	}
	for _, a := range card.Addresses {
		key := wire.AddressKey(uplinkObject, a.Prefix)
		v.add(key, wire.Address{Interface: uplinkObject, Prefix: a.Prefix})
		uplink.Needs = append(uplink.Needs, key)
	}
	for _, r := range cardRoutes(card) {
		tunnelVRF.route(&v, r.Destination, wire.Path{Interface: uplinkObject, NextHop: r.Gateway})
		uplink.Needs = append(uplink.Needs, wire.RouteKey(wire.VRFName(tunnelLabel, wire.FamilyOf(r.Destination.Addr())), r.Destination))
	}
	v.add(wire.UplinkKey(card.Link), uplink)
	return v
}

// cardFamily is what there is of one family between card and kernel.
func (n *Network) cardFamily(v *values, f wire.Family, uplink *wire.Uplink) {
	l, inner := n.cardLink(), dataplaneEnd4
	if f == wire.IP6 {
		inner = dataplaneEnd6
	}
	for _, object := range []string{uplinkObject, l.object} {
		v.add(wire.InterfaceVRFKey(object, f), tunnelVRF.membership(object, f, false))
	}
	v.add(wire.AddressKey(l.object, single(inner)), wire.Address{Interface: l.object, Prefix: single(inner)})
	v.add(wire.NeighbourKey(l.object, kernelEnd(f)), wire.Neighbour{Interface: l.object, Address: kernelEnd(f), MAC: l.peerMAC})
	v.add(wire.PuntRedirectKey(uplinkObject, f), wire.PuntRedirect{
		Interface: uplinkObject, Family: f, Via: l.object, NextHop: kernelEnd(f),
	})
	uplink.Gateways = append(uplink.Gateways, inner)
	uplink.Needs = append(uplink.Needs, wire.AddressKey(l.object, single(inner)), wire.PuntRedirectKey(uplinkObject, f))
}

// cardRoutes are the routes of a card that the dataplane needs, one for each destination: that of the lowest metric. Subnets of
// addresses are the dataplane's without.
func cardRoutes(card wire.Card) []wire.CardRoute {
	best := make(map[netip.Prefix]wire.CardRoute)
	for _, a := range card.Addresses {
		best[a.Prefix.Masked()] = wire.CardRoute{Metric: -1}
	}
	var routes []wire.CardRoute
	for _, r := range card.Routes {
		other, there := best[r.Destination]
		if there && other.Metric <= r.Metric {
			continue
		}
		best[r.Destination] = r
	}
	for _, r := range card.Routes {
		if best[r.Destination] == r {
			routes = append(routes, r)
		}
	}
	return routes
}

// cardRoute leads the node's kernel to a block of another node's pods, by the dataplane and the card.
func (n *Network) cardRoute(v *values, block netip.Prefix, node netip.Addr) {
	inner := dataplaneEnd4
	if block.Addr().Is6() {
		inner = dataplaneEnd6
	}
	n.cardLink().linuxRoute(v, block, inner, netip.Addr{})
	tunnelVRF.route(v, block, wire.Path{Interface: uplinkObject, NextHop: node})
}
