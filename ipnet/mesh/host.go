package mesh

import (
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// Host makes the values of this node without pods and other nodes: the VRF and gateway of pods, the link between the
// node's kernel and the dataplane, the link for tunnels, and the network card if the dataplane owns it.
type Host struct {
	Config    Config
	networks  *networks.Networks
	linkTypes atomic.Pointer[LinkTypes]
}

// NewHost validates the configuration.
func NewHost(c Config, networks *networks.Networks) (*Host, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	h := &Host{Config: c, networks: networks}
	h.linkTypes.Store(&c.LinkTypes)
	return h, nil
}

// Values lists the values of the node without pods. Pods reach the networks of the node's kernel by the host link.
func (h *Host) Values() desired.Values {
	var v desired.Values
	families := h.networks.Pools().Families()
	for _, f := range families {
		v.Add(wire.VRFKey(desired.PodsLabel, f), wire.VRF{
			ID:     h.networks.Config.PodVRFTable,
			Family: f,
			Label:  desired.PodsLabel,
		})
	}
	v = append(v, desired.PodsVRF.InterfaceOf(h.networks.Config.MTU, families)...)
	v.Add(wire.ACLKey(desired.GuardACL), desired.Guard())
	for _, f := range families {
		own := netaddr.Single(desired.Gateway4)
		if f == netaddr.IP6 { // the gateway's address is on each interface
			own = netaddr.Single(desired.ErrorSource6)
		}
		v.Add(wire.AddressKey(desired.GatewayObject, own), wire.Address{Interface: desired.GatewayObject, Prefix: own})
	}
	host := h.HostLink()
	v = append(v, host.Ends()...)
	v = append(v, desired.PodsVRF.Attach(host, families)...)
	for _, f := range families {
		// the kernel routes between its link to the dataplane and the network
		host.Forward(&v, f)
	}
	for _, f := range families {
		if own := h.networks.NodeAddress(f); own.IsValid() {
			desired.PodsVRF.Route(&v, desired.DefaultOf(f), wire.Path{Interface: host.Object, NextHop: own})
			host.LinuxNeighbour(&v, desired.GatewayOf(f))
		}
	}
	for _, p := range h.networks.Pools().All {
		desired.PodsVRF.Unreachable(&v, p.Prefix)
		if own := h.networks.NodeIn(p); own.IsValid() {
			host.LinuxRoute(&v, p.Prefix, desired.GatewayOf(netaddr.FamilyOf(p.Prefix.Addr())), own)
		}
	}
	return append(v, h.uplinkValues()...)
}

// HostLink is the link between the node's kernel and the dataplane.
func (h *Host) HostLink() desired.Link {
	var addresses []netip.Prefix
	for _, p := range h.networks.Pools().All {
		if own := h.networks.NodeIn(p); own.IsValid() && !slices.Contains(addresses, netaddr.Single(own)) {
			addresses = append(addresses, netaddr.Single(own))
		}
	}
	return desired.Link{
		Kind: h.LinkTypes().Host, Object: desired.HostObject,
		LinuxPlace: desired.LinuxPlace{Name: h.Config.HostLink, Alias: desired.HostAlias},
		Ethernet: desired.Ethernet{
			MAC:        desired.MACOf(desired.HostObject, desired.DataplaneEnd),
			PeerMAC:    desired.MACOf(desired.HostObject, desired.LinuxEnd),
			MTU:        h.networks.Config.MTU,
			MaxSegment: h.Config.MaxSegment,
		},
		Addresses: addresses,
	}
}

// The path between a network card that the dataplane owns and the node's kernel:
//
//	pods' VRF - bridge domain - tunnel (node to peer) --- VRF of the tunnels --- uplinkObject (node) === network
//	                                                              |
//	                          node's kernel (node) === punting (cardGateway)
//
// The dataplane has the node's addresses on the card, answers ARP, neighbour discovery and echo requests there, and
// passes all other packets for the node to the kernel. The kernel has the node's addresses at its end of the link, and
// its routes of the card lead to the dataplane, which has the routes themselves. The link is independent of the link
// for tunnels where the kernel keeps the card, so a node can change from one to the other.
const puntingAlias = wire.AliasPrefix + "punt"

// The addresses of the link, chosen like the addresses of the link for tunnels.
var (
	cardKernelEnd = map[netaddr.Family]netip.Addr{
		netaddr.IP4: netip.AddrFrom4([4]byte{169, 254, 44, 1}),
		netaddr.IP6: netip.AddrFrom16([16]byte{0: 0xfd, 1: 'w', 2: 'e', 3: 'f', 4: 't', 5: 1, 15: 1}),
	}
	cardGateway = map[netaddr.Family]netip.Addr{
		netaddr.IP4: netip.AddrFrom4([4]byte{169, 254, 44, 2}),
		netaddr.IP6: netip.AddrFrom16([16]byte{0: 0xfd, 1: 'w', 2: 'e', 3: 'f', 4: 't', 5: 1, 15: 2}),
	}
)

// uplinkVRFs adds the VRFs of the card and the tunnels, one for each family.
func (h *Host) uplinkVRFs(v *desired.Values, families []netaddr.Family) {
	for _, f := range families {
		v.Add(wire.VRFKey(desired.TunnelLabel, f), wire.VRF{
			ID:     h.Config.TunnelVRFTable,
			Family: f,
			Label:  desired.TunnelLabel,
		})
	}
}

// cardLink is the link between the card's VRF and the node's kernel. It is always a veth: the kernel's end has the
// node's addresses, and must stay when the dataplane ends.
func (h *Host) cardLink() desired.Link {
	return desired.Link{
		Kind: pod.TypeVeth, Object: desired.PuntingObject,
		LinuxPlace: desired.LinuxPlace{Name: desired.UplinkLink, Alias: puntingAlias},
		Ethernet: desired.Ethernet{
			MAC:        desired.MACOf(desired.PuntingObject, desired.DataplaneEnd),
			PeerMAC:    desired.MACOf(desired.PuntingObject, desired.LinuxEnd),
			MTU:        h.Config.Card.MTU,
			GSO:        true,
			MaxSegment: h.Config.MaxSegment,
		},
	}
}

// uplinkValues lists the values of the card; none if the kernel keeps it.
func (h *Host) uplinkValues() desired.Values {
	if !h.Config.ownsCard() {
		return nil
	}
	card := *h.Config.Card
	l := h.cardLink()
	families := card.Families()
	var v desired.Values
	h.uplinkVRFs(&v, families)
	v = append(v, l.Ends()...)
	on := wire.LinkKey(card.Link)
	v.Add(on, wire.Link{Name: card.Link, Up: true})
	v.Add(wire.InterfaceKey(desired.UplinkObject), wire.Interface{
		Type:     wire.TypeAFPacket,
		MAC:      card.MAC,
		MTU:      card.MTU,
		Up:       true,
		GSO:      true,
		AFPacket: wire.AFPacket{Link: card.Link, On: on},
	})
	uplink := wire.Uplink{Card: card, On: l.LinuxKey(), To: l.Name, MAC: l.MAC}
	for _, f := range families {
		h.cardFamily(&v, f, &uplink)
	}
	for _, a := range card.Addresses {
		key := wire.AddressKey(desired.UplinkObject, a.Prefix)
		v.Add(key, wire.Address{Interface: desired.UplinkObject, Prefix: a.Prefix})
		uplink.Needs = append(uplink.Needs, key)
	}
	for _, r := range cardRoutes(card) {
		desired.TunnelVRF.Route(&v, r.Destination, wire.Path{Interface: desired.UplinkObject, NextHop: r.Gateway})
		uplink.Needs = append(uplink.Needs,
			wire.RouteKey(wire.VRFName(desired.TunnelLabel, netaddr.FamilyOf(r.Destination.Addr())), r.Destination))
	}
	v.Add(wire.UplinkKey(card.Link), uplink)
	return v
}

// cardFamily adds the values of one family between card and kernel.
func (h *Host) cardFamily(v *desired.Values, f netaddr.Family, uplink *wire.Uplink) {
	l := h.cardLink()
	gateway := cardGateway[f]
	end := cardKernelEnd[f]
	for _, object := range []string{desired.UplinkObject, l.Object} {
		v.Add(wire.InterfaceVRFKey(object, f), desired.TunnelVRF.Membership(object, f))
	}
	v.Add(wire.AddressKey(l.Object, netaddr.Single(gateway)), wire.Address{
		Interface: l.Object,
		Prefix:    netaddr.Single(gateway),
	})
	v.Add(wire.NeighbourKey(l.Object, end), wire.Neighbour{Interface: l.Object, Address: end, MAC: l.PeerMAC})
	v.Add(wire.PuntRedirectKey(desired.UplinkObject, f), wire.PuntRedirect{
		Interface: desired.UplinkObject,
		Family:    f,
		Via:       l.Object,
		NextHop:   end,
	})
	if slices.Contains(h.networks.Pools().Families(), f) { // replies to pods come from the link
		l.Forward(v, f)
	}
	uplink.Gateways = append(uplink.Gateways, gateway)
	uplink.Needs = append(uplink.Needs, wire.AddressKey(l.Object, netaddr.Single(gateway)),
		wire.PuntRedirectKey(desired.UplinkObject, f))
}

// cardRoutes lists the routes of a card that the dataplane needs, for each destination the route with the lowest
// metric. The dataplane has the subnets of its addresses already.
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

// cardRoute routes a block of another node from the node's kernel through the dataplane and the card.
func (h *Host) cardRoute(v *desired.Values, block netip.Prefix, node netip.Addr) {
	h.cardLink().LinuxRoute(v, block, cardGateway[netaddr.FamilyOf(block.Addr())], netip.Addr{})
	desired.TunnelVRF.Route(v, block, wire.Path{Interface: desired.UplinkObject, NextHop: node})
}
