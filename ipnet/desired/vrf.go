package desired

import (
	"net/netip"
	"slices"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/wire"
)

// VRF is one routing table for each family, and the loopback that lends its address to unnumbered interfaces.
type VRF struct {
	Label    string
	Loopback string
}

// PodsVRF is the VRF of the network default.
var PodsVRF = VRF{Label: PodsLabel, Loopback: GatewayObject}

// InterfaceOf lists the values of the loopback.
func (r VRF) InterfaceOf(mtu int, families []netaddr.Family) Values {
	var v Values
	v.Add(wire.InterfaceKey(r.Loopback), wire.Interface{
		Type: wire.TypeLoopback, MAC: MACOf(r.Loopback, DataplaneEnd), MTU: mtu, Up: true,
	})
	for _, f := range families {
		v.Add(wire.InterfaceVRFKey(r.Loopback, f), r.Membership(r.Loopback, f))
	}
	return v
}

// Membership puts an interface into the VRF of a family.
func (r VRF) Membership(object string, f netaddr.Family) wire.InterfaceVRF {
	return wire.InterfaceVRF{Interface: object, Family: f, VRF: wire.VRFName(r.Label, f)}
}

// Attach makes the dataplane's end of a link the gateway of the addresses of the Linux end. It lists the addresses that
// the dataplane's end borrows, its VRFs, its IPv6 gateway address, and for each address of the Linux end the
// dataplane's static neighbour and route to it. families are the families of the VRF.
func (r VRF) Attach(l Link, families []netaddr.Family) Values {
	var v Values
	// An unnumbered interface is in all VRFs of its donor, whatever addresses the link has.
	v.Add(wire.UnnumberedKey(l.Object), r.Borrowed(l.Object, families))
	for _, f := range families {
		member := r.Membership(l.Object, f)
		member.AntiSpoofed = l.AntiSpoofed
		member.Filtered = l.IsFiltered()
		v.Add(wire.InterfaceVRFKey(l.Object, f), member)
	}
	if HasFamily(l.Addresses, netaddr.IP6) {
		gateway := netaddr.Single(Gateway6)
		v.Add(wire.AddressKey(l.Object, gateway), wire.Address{Interface: l.Object, Prefix: gateway})
	}
	for _, p := range l.Addresses {
		a := p.Addr()
		if !l.HasMACs() {
			r.Route(&v, netaddr.Single(a), wire.Path{Interface: l.Object})
			continue
		}
		v.Add(wire.NeighbourKey(l.Object, a), wire.Neighbour{Interface: l.Object, Address: a, MAC: l.PeerMAC})
		r.Route(&v, netaddr.Single(a), wire.Path{Interface: l.Object, NextHop: a})
	}
	return v
}

// Borrowed makes an interface use the addresses of the loopback.
func (r VRF) Borrowed(object string, families []netaddr.Family) wire.Unnumbered {
	return wire.Unnumbered{
		Interface: object,
		Donor:     r.Loopback,
		IP4:       slices.Contains(families, netaddr.IP4),
		IP6:       slices.Contains(families, netaddr.IP6),
	}
}

// Unreachable adds the route for the unused addresses of a prefix. Without it packets to them would take the default
// route to the node, and the node's route to the pool would lead them back, until their TTL ends.
func (r VRF) Unreachable(v *Values, p netip.Prefix) {
	r.Route(v, p, wire.Path{Type: wire.PathUnreachable})
}

// Route adds a route of the VRF.
func (r VRF) Route(v *Values, p netip.Prefix, path wire.Path) {
	name := wire.VRFName(r.Label, netaddr.FamilyOf(p.Addr()))
	v.Add(wire.RouteKey(name, p), wire.Route{VRF: name, Prefix: p, Paths: []wire.Path{path}})
}

// MacAge is the number of minutes without a frame after which a bridge domain forgets a learned MAC.
const MacAge = 5

// OnlyFrom makes the dataplane drop packets from the link unless they have the MAC of the Linux end or a virtual one,
// and one of these sources or the IPv6 link-local address of the end. A virtual MAC sends from all of them: a virtual
// router announces itself from the addresses of the end.
func (l Link) OnlyFrom(v *Values, sources []netip.Prefix, virtual []netaddr.MAC) {
	rules := wire.MACIP{Interface: l.Object}
	sources = append(sources, netaddr.Single(LinkLocalOf(l.PeerMAC)))
	for _, mac := range append([]netaddr.MAC{l.PeerMAC}, virtual...) {
		for _, p := range sources {
			r := wire.MACIPRule{MAC: mac, Source: p}
			if !slices.Contains(rules.Rules, r) {
				rules.Rules = append(rules.Rules, r)
			}
		}
	}
	v.Add(wire.MACIPKey(l.Object), rules)
}

// GuardACL is the ACL that all interfaces of pods on networks of type L2 with CIDRs share.
const GuardACL = "weft:guard"

// Protocols and types of ICMP in the rules of GuardACL.
const (
	protocolICMP   = 1
	protocolUDP    = 17
	protocolICMPv6 = 58

	icmpRedirect       = 5   // RFC 792
	icmpv6RouterAdvert = 134 // RFC 4861 4.2
	icmpv6Redirect     = 137 // RFC 4861 4.5
	portDHCPClient     = 68  // RFC 2131 4.1
	portDHCPv6Client   = 546 // RFC 8415 7.2
)

// notExtensions are the protocols of IPv6 without ICMPv6, UDP, and the extension headers of VPP: 0, 43, 44, 60, 135,
// 139, 140, 253, 254.
var notExtensions = []wire.Range{
	{First: 1, Last: 16}, {First: 18, Last: 42}, {First: 45, Last: 57}, {First: 59, Last: 59}, {First: 61, Last: 134}, {
		First: 136,
		Last:  138,
	},
	{First: 141, Last: 252}, {First: 255, Last: 255},
}

// Guard makes the dataplane drop packets that only routers and DHCP servers send: advertisements, redirects, and
// packets to the ports of DHCP clients, with any source port, because clients do not check it (RFC 7610 3).
//
// The first rule of a protocol applies to later fragments, which have no ports. It permits them: a packet without its
// first fragment is never reassembled. No rule permits all protocols of IPv6, because it would permit a first fragment
// with a chain of headers that ends in the next fragment (RFC 7113 2).
func Guard() wire.ACL {
	icmp := wire.Single(protocolICMP)
	icmpv6 := wire.Single(protocolICMPv6)
	udp := wire.Single(protocolUDP)
	types := func(f netaddr.Family, protocol, types wire.Range, permit bool) wire.ACLRule {
		return wire.ACLRule{
			Permit: permit,
			Family: f,
			Ports:  []wire.ACLPorts{{Protocols: protocol, Sources: types, Destinations: allTypes}},
		}
	}
	ports := func(f netaddr.Family, protocols, destinations wire.Range, permit bool) wire.ACLRule {
		return wire.ACLRule{
			Permit: permit,
			Family: f,
			Ports:  []wire.ACLPorts{{Protocols: protocols, Sources: allPorts, Destinations: destinations}},
		}
	}
	rules := []wire.ACLRule{
		types(netaddr.IP4, icmp, above(icmpRedirect, allTypes), true),
		types(netaddr.IP4, icmp, below(icmpRedirect), true),
		types(netaddr.IP4, icmp, allTypes, false),
		ports(netaddr.IP4, udp, above(portDHCPClient, allPorts), true),
		ports(netaddr.IP4, udp, below(portDHCPClient), true),
		ports(netaddr.IP4, udp, allPorts, false),
		{Permit: true, Family: netaddr.IP4},

		types(netaddr.IP6, icmpv6, below(icmpv6RouterAdvert), true),
		types(netaddr.IP6, icmpv6, wire.Range{First: icmpv6RouterAdvert + 1, Last: icmpv6Redirect - 1}, true),
		types(netaddr.IP6, icmpv6, above(icmpv6Redirect, allTypes), true),
		types(netaddr.IP6, icmpv6, allTypes, false),
		ports(netaddr.IP6, udp, above(portDHCPv6Client, allPorts), true),
		ports(netaddr.IP6, udp, below(portDHCPv6Client), true),
		ports(netaddr.IP6, udp, allPorts, false),
	}
	for _, p := range notExtensions {
		rules = append(rules, ports(netaddr.IP6, p, allPorts, true))
	}
	return wire.ACL{Label: GuardACL, Rules: rules}
}

var (
	allPorts = wire.Range{Last: 65535}
	allTypes = wire.Range{Last: 255}
)

func below(n uint16) wire.Range { return wire.Range{Last: n - 1} }

func above(n uint16, all wire.Range) wire.Range { return wire.Range{First: n + 1, Last: all.Last} }
