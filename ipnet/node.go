package ipnet

import (
	"net/netip"
	"slices"

	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// nodeValues is what is there without pods: the pods' VRF, their gateway, and the link between the node and the
// dataplane. Pods reach by that link whatever the node reaches.
func (n *Network) nodeValues() values {
	var v values
	families := n.pools.Load().families()
	for _, f := range families {
		v.add(wire.VRFKey(podVRF, f), wire.VRF{ID: n.config.PodVRFTable, Family: f, Label: podVRF})
	}
	v = append(v, podsVRF.interfaceOf(n.config.MTU, families)...)
	v.add(wire.ACLKey(guardACL), guard())
	for _, f := range families {
		own := single(gateway4)
		if f == wire.IP6 { // the gateway's address is on each interface
			own = single(errorSource6)
		}
		v.add(wire.AddressKey(gatewayObject, own), wire.Address{Interface: gatewayObject, Prefix: own})
	}
	host := n.hostLink()
	v = append(v, host.ends()...)
	v = append(v, podsVRF.attach(host, families)...)
	v = append(v, n.kernelValues(families)...)
	for _, f := range families {
		if own := n.nodeAddress(f); own.IsValid() {
			podsVRF.route(&v, defaultOf(f), wire.Path{Interface: host.object, NextHop: own})
			host.linuxNeighbour(&v, gatewayOf(f))
		}
	}
	for _, p := range n.pools.Load().all {
		podsVRF.unreachable(&v, p.Prefix)
		if own := n.nodeIn(p); own.IsValid() {
			host.linuxRoute(&v, p.Prefix, gatewayOf(wire.FamilyOf(p.Prefix.Addr())), own)
		}
	}
	return append(v, n.uplinkValues()...)
}

func (n *Network) hostLink() link {
	var addresses []netip.Prefix
	for _, p := range n.pools.Load().all {
		if own := n.nodeIn(p); own.IsValid() && !slices.Contains(addresses, single(own)) {
			addresses = append(addresses, single(own))
		}
	}
	return link{
		kind: n.linkTypes.Load().Host, object: hostObject, name: n.config.HostLink, alias: hostAlias,
		mac: macOf(hostObject, dataplaneEnd), peerMAC: macOf(hostObject, linuxEnd),
		mtu: n.config.MTU, maxSegment: n.config.MaxSegment, addresses: addresses,
	}
}

// nodeAddress is the node's own address of a family: in the first pool that is the node's as a whole, else in a block; not
// valid if there is none.
func (n *Network) nodeAddress(f wire.Family) netip.Addr {
	for _, p := range n.pools.Load().all {
		if !p.Blocks && wire.FamilyOf(p.Prefix.Addr()) == f {
			return p.Node()
		}
	}
	return (*n.own.Load())[f]
}

// nodeIn is the address of the node's own by which it reaches a pool; not valid if it has none yet.
func (n *Network) nodeIn(p ipam.Pool) netip.Addr {
	if p.Blocks {
		return n.nodeAddress(wire.FamilyOf(p.Prefix.Addr()))
	}
	return p.Node()
}

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

// forwarding are the settings by which a kernel's namespace, the node's or a pod's, forwards packets of a family.
var forwarding = map[wire.Family]string{
	wire.IP4: "net/ipv4/ip_forward",
	wire.IP6: "net/ipv6/conf/all/forwarding",
}

// kernelValues make the node's kernel a router between its link to the dataplane and the rest of the world.
func (n *Network) kernelValues(families []wire.Family) values {
	var v values
	host := n.hostLink()
	for _, f := range families {
		host.setting(&v, forwarding[f], "1")
	}
	return append(v, n.masquerade(n.mesh)...)
}

// masquerade is how the node translates what pods send. Pods of other nodes see pods as they are, and so do those nodes
// where routes lead back. Into tunnels no route of another node leads: its address is translated for, so that replies come
// the same way, whatever filters are there.
func (n *Network) masquerade(m *mesh) values {
	is := wire.Masquerade{Link: n.config.HostLink, Egress: n.config.IPMasq, Exclude: slices.Clone(n.config.IPMasqExclude)}
	for _, p := range n.pools.Load().all {
		is.Pods = append(is.Pods, p.Prefix)
	}
	for _, name := range n.others(m) {
		is.Pods = append(is.Pods, n.defaultOverlay().blocksOf(m.nodes[name])...)
		if !n.config.hasTunnels() {
			for _, a := range m.nodes[name].Addresses {
				is.Exclude = append(is.Exclude, single(a))
			}
		}
	}
	is.Pods = outermost(is.Pods)
	is.Guard = n.tunnelGuard(m)
	var v values
	v.add(wire.MasqueradeKey(), is)
	return v
}

// tunnelGuard keeps pods' packets from the tunnels of all nodes. Pods of this dataplane are kept from the port whether or not the
// other nodes are known yet.
func (n *Network) tunnelGuard(m *mesh) wire.TunnelGuard {
	if !n.config.hasTunnels() {
		return wire.TunnelGuard{}
	}
	guard := wire.TunnelGuard{Port: n.config.VXLANPort}
	if !n.config.ownsCard() {
		guard.Link = n.config.TunnelLink
	}
	if !n.isPart(m) {
		return guard
	}
	addresses := slices.Clone(m.self.Addresses)
	for _, node := range m.nodes {
		addresses = append(addresses, node.Addresses...)
	}
	for _, a := range addresses {
		if isHost(a) {
			guard.Nodes = append(guard.Nodes, single(a))
		}
	}
	slices.SortFunc(guard.Nodes, netip.Prefix.Compare)
	guard.Nodes = slices.Compact(guard.Nodes)
	return guard
}

// others are the names of the nodes that this one reaches.
func (n *Network) others(m *mesh) []string {
	if !n.isPart(m) {
		return nil
	}
	return m.names(m)
}

// outermost are, in order, those prefixes that are in no other.
func outermost(prefixes []netip.Prefix) (outer []netip.Prefix) {
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	for _, p := range prefixes { // one that holds others comes before them
		if end := len(outer) - 1; end < 0 || !outer[end].Overlaps(p) {
			outer = append(outer, p)
		}
	}
	return outer
}
