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
//	                          node's kernel (node) === punting (cardGateway)
//
// The dataplane has the node's addresses on the card, answers ARP, neighbour discovery and echo requests there, and hands all
// else that is for the node to the kernel. The kernel has the node's addresses at its end of the link, and its routes of the card
// lead to the dataplane, which has the routes themselves. Nothing of the link is shared with the one that tunnels have where the
// kernel keeps the card, so that a node can change from one to the other.
const (
	uplinkObject  = "weft-uplink"
	puntingObject = "weft-punt"
	puntingAlias  = wire.AliasPrefix + "punt"
)

// UplinkLink is the name of the kernel's end of the link to a dataplane that owns the node's network card.
const UplinkLink = "weft-uplink0"

// UplinkKey is the key of the dataplane's interface on the card.
func UplinkKey() string { return wire.InterfaceKey(uplinkObject) }

// The addresses of the link, as those of the tunnels' link are.
var (
	cardKernelEnd = map[wire.Family]netip.Addr{
		wire.IP4: netip.AddrFrom4([4]byte{169, 254, 44, 1}), wire.IP6: netip.AddrFrom16([16]byte{0: 0xfd, 1: 'w', 2: 'e', 3: 'f', 4: 't', 5: 1, 15: 1}),
	}
	cardGateway = map[wire.Family]netip.Addr{
		wire.IP4: netip.AddrFrom4([4]byte{169, 254, 44, 2}), wire.IP6: netip.AddrFrom16([16]byte{0: 0xfd, 1: 'w', 2: 'e', 3: 'f', 4: 't', 5: 1, 15: 2}),
	}
)

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
	return link{
		kind: pod.TypeVeth, object: puntingObject, name: UplinkLink, alias: puntingAlias,
		mac: macOf(puntingObject, dataplaneEnd), peerMAC: macOf(puntingObject, linuxEnd), mtu: n.config.Card.MTU,
		gso: true, maxSegment: n.config.MaxSegment,
	}
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
	l, gateway, end := n.cardLink(), cardGateway[f], cardKernelEnd[f]
	for _, object := range []string{uplinkObject, l.object} {
		v.add(wire.InterfaceVRFKey(object, f), tunnelVRF.membership(object, f, false))
	}
	v.add(wire.AddressKey(l.object, single(gateway)), wire.Address{Interface: l.object, Prefix: single(gateway)})
	v.add(wire.NeighbourKey(l.object, end), wire.Neighbour{Interface: l.object, Address: end, MAC: l.peerMAC})
	v.add(wire.PuntRedirectKey(uplinkObject, f), wire.PuntRedirect{Interface: uplinkObject, Family: f, Via: l.object, NextHop: end})
	uplink.Gateways = append(uplink.Gateways, gateway)
	uplink.Needs = append(uplink.Needs, wire.AddressKey(l.object, single(gateway)), wire.PuntRedirectKey(uplinkObject, f))
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
	n.cardLink().linuxRoute(v, block, cardGateway[wire.FamilyOf(block.Addr())], netip.Addr{})
	tunnelVRF.route(v, block, wire.Path{Interface: uplinkObject, NextHop: node})
}
