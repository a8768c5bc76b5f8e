package ipnet

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// vrf is a routing table of each family and the loopback that lends its address to the interfaces there.
type vrf struct {
	label    string
	loopback string
}

// podsVRF is that of the network default.
var podsVRF = vrf{label: podVRF, loopback: gatewayObject}

// interfaceOf is a loopback of the VRF's, up.
func (r vrf) interfaceOf(mtu int, families []wire.Family) values {
	var v values
	v.add(wire.InterfaceKey(r.loopback), wire.Interface{
		Type: wire.TypeLoopback, MAC: macOf(r.loopback, dataplaneEnd), MTU: mtu, Up: true,
	})
	for _, f := range families {
		v.add(wire.InterfaceVRFKey(r.loopback, f), r.membership(r.loopback, f, false))
	}
	return v
}

func (r vrf) membership(object string, f wire.Family, judged bool) wire.InterfaceVRF {
	return wire.InterfaceVRF{Interface: object, Family: f, VRF: wire.VRFName(r.label, f), Judged: judged}
}

// attach makes the dataplane's end of a link a gateway for, and the way to, the addresses of the Linux end. families are
// those that the VRF has.
func (r vrf) attach(l link, families []wire.Family) values {
	var v values
	// An interface that borrows from the loopback is in all of its VRFs, whatever addresses the link has.
	v.add(wire.UnnumberedKey(l.object), r.borrowed(l.object, families))
	for _, f := range families {
		v.add(wire.InterfaceVRFKey(l.object, f), r.membership(l.object, f, l.judged))
	}
	if hasFamily(l.addresses, wire.IP6) {
		v.add(wire.AddressKey(l.object, single(gateway6)), wire.Address{Interface: l.object, Prefix: single(gateway6)})
	}
	for _, p := range l.addresses {
		a := p.Addr()
		if !l.hasMACs() {
			r.route(&v, single(a), wire.Path{Interface: l.object})
			continue
		}
		v.add(wire.NeighbourKey(l.object, a), wire.Neighbour{Interface: l.object, Address: a, MAC: l.peerMAC})
		r.route(&v, single(a), wire.Path{Interface: l.object, NextHop: a})
	}
	return v
}

// borrowed has an interface use the loopback's addresses.
func (r vrf) borrowed(object string, families []wire.Family) wire.Unnumbered {
	return wire.Unnumbered{
		Interface: object, Donor: r.loopback, IP4: slices.Contains(families, wire.IP4), IP6: slices.Contains(families, wire.IP6),
	}
}

// unreachable adds what holds for those addresses of a prefix that nobody has. Without it packets to them would take the
// default route to the node, whose route to a pool leads back, until their TTL ends.
func (r vrf) unreachable(v *values, p netip.Prefix) {
	r.route(v, p, wire.Path{Type: wire.PathUnreachable})
}

func (r vrf) route(v *values, p netip.Prefix, path wire.Path) {
	name := wire.VRFName(r.label, wire.FamilyOf(p.Addr()))
	v.add(wire.RouteKey(name, p), wire.Route{VRF: name, Prefix: p, Paths: []wire.Path{path}})
}

// macAge is after how many minutes without a frame a bridge domain forgets where a MAC was.
const macAge = 5

// domain is the bridge domain of an L2 network.
func (c *custom) domain(v *values) {
	v.add(wire.BridgeDomainKey(c.label), wire.BridgeDomain{
		ID: c.BridgeDomain, Label: c.label, Learn: true, Flood: true, UUFlood: true, Forward: true, Age: macAge,
	})
}

// introduce makes a member known to the BVI, if there is one, by the addresses that the network gave it. So that asks
// nobody, and when the member is gone it remembers nothing.
func (c *custom) introduce(v *values, l link) {
	if len(c.Network.CIDRs) == 0 {
		return
	}
	addresses := singles(l.addresses)
	if hasFamily(l.addresses, wire.IP6) {
		addresses = append(addresses, single(linkLocalOf(l.peerMAC))) // neighbours are asked after by that one
	}
	for _, p := range addresses {
		v.add(wire.NeighbourKey(c.loopback, p.Addr()), wire.Neighbour{Interface: c.loopback, Address: p.Addr(), MAC: l.peerMAC})
	}
}

// onlyFrom has the dataplane drop what comes by a link from another MAC than the Linux end's, or from another source than
// these and the end's own IPv6 link-local address.
func (l link) onlyFrom(v *values, sources ...netip.Prefix) {
	rules := wire.MACIP{Interface: l.object}
	for _, p := range append(sources, single(linkLocalOf(l.peerMAC))) {
		rules.Rules = append(rules.Rules, wire.MACIPRule{MAC: l.peerMAC, Source: p})
	}
	v.add(wire.MACIPKey(l.object), rules)
}

// singles are the addresses of prefixes, each alone.
func singles(prefixes []netip.Prefix) []netip.Prefix {
	var all []netip.Prefix
	for _, p := range prefixes {
		all = append(all, single(p.Addr()))
	}
	return all
}

// guardACL is the ACL of the interfaces of pods on networks of type L2 with CIDRs. All of a node share it.
const guardACL = "weft:guard"

// Protocols and types of ICMP that the rules of guardACL name.
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

// notExtensions are the protocols of IPv6 other than ICMPv6, UDP, and those behind which VPP looks for another header: 0, 43, 44, 60,
// 135, 139, 140, 253 and 254.
var notExtensions = []wire.Range{
	{First: 1, Last: 16}, {First: 18, Last: 42}, {First: 45, Last: 57}, {First: 59, Last: 59}, {First: 61, Last: 134}, {First: 136, Last: 138},
	{First: 141, Last: 252}, {First: 255, Last: 255},
}

// guard has the dataplane drop what only routers and DHCP servers send: advertisements, redirects, and packets to the ports of DHCP
// clients, whatever their source port, which clients do not check (RFC 7610 3).
//
// The first rule of a protocol decides about fragments that are not the first: it permits them, since they have no ports, and a packet
// without its first fragment is never whole. There is no rule for any protocol of IPv6, because it would permit a first fragment whose
// chain of headers ends in the next (RFC 7113 2).
func guard() wire.ACL {
	icmp, icmpv6, udp := wire.Single(protocolICMP), wire.Single(protocolICMPv6), wire.Single(protocolUDP)
	types := func(f wire.Family, protocol, types wire.Range, permit bool) wire.ACLRule {
		return wire.ACLRule{Permit: permit, Family: f, Protocols: protocol, Sources: types, Destinations: allTypes}
	}
	ports := func(f wire.Family, protocols, destinations wire.Range, permit bool) wire.ACLRule {
		return wire.ACLRule{Permit: permit, Family: f, Protocols: protocols, Sources: allPorts, Destinations: destinations}
	}
	rules := []wire.ACLRule{
		types(wire.IP4, icmp, above(icmpRedirect, allTypes), true),
		types(wire.IP4, icmp, below(icmpRedirect), true),
		types(wire.IP4, icmp, allTypes, false),
		ports(wire.IP4, udp, above(portDHCPClient, allPorts), true),
		ports(wire.IP4, udp, below(portDHCPClient), true),
		ports(wire.IP4, udp, allPorts, false),
		{Permit: true, Family: wire.IP4},

		types(wire.IP6, icmpv6, below(icmpv6RouterAdvert), true),
		types(wire.IP6, icmpv6, wire.Range{First: icmpv6RouterAdvert + 1, Last: icmpv6Redirect - 1}, true),
		types(wire.IP6, icmpv6, above(icmpv6Redirect, allTypes), true),
		types(wire.IP6, icmpv6, allTypes, false),
		ports(wire.IP6, udp, above(portDHCPv6Client, allPorts), true),
		ports(wire.IP6, udp, below(portDHCPv6Client), true),
		ports(wire.IP6, udp, allPorts, false),
	}
	for _, p := range notExtensions {
		rules = append(rules, ports(wire.IP6, p, allPorts, true))
	}
	return wire.ACL{Label: guardACL, Rules: rules}
}

var allPorts, allTypes = wire.Range{Last: 65535}, wire.Range{Last: 255}

func below(n uint16) wire.Range { return wire.Range{Last: n - 1} }

func above(n uint16, all wire.Range) wire.Range { return wire.Range{First: n + 1, Last: all.Last} }

// guarded has guardACL decide about what comes by the link.
func (l link) guarded(v *values) {
	v.add(wire.InterfaceACLKey(l.object), wire.InterfaceACL{Interface: l.object, ACL: guardACL})
}

// interfaceList is the file interfaces.json: what a program in a container needs to know of its memifs.
type interfaceList struct {
	Version    int           `json:"version"`
	Interfaces []listedMemif `json:"interfaces"`
}

// listedMemif is a memif as the pod's program sees it.
type listedMemif struct {
	Name       string         `json:"name"`
	ID         uint32         `json:"id"`
	Network    string         `json:"network"`
	Role       string         `json:"role"`
	Mode       string         `json:"mode"`
	MAC        string         `json:"mac"`
	MTU        int            `json:"mtu"`
	Addresses  []netip.Prefix `json:"addresses,omitempty"`
	Gateways   []netip.Addr   `json:"gateways,omitempty"` // of Addresses, in the same order
	GatewayMAC string         `json:"gatewayMAC,omitempty"`
	Routes     []pod.Route    `json:"routes,omitempty"`
	RingSize   int            `json:"ringSize"`
	BufferSize int            `json:"bufferSize"`
	RxQueues   int            `json:"rxQueues"`
	TxQueues   int            `json:"txQueues"`
}

// interfacesFile lists the memifs of an allocation, which are in the order of their ids.
func interfacesFile(members []member) string {
	list := interfaceList{Version: 1}
	for _, i := range members {
		m := i.Memif
		entry := listedMemif{
			Name: i.Name, ID: m.ID, Network: cmp.Or(i.Network, pod.DefaultNetwork), Role: "client", Mode: m.Mode, MAC: i.MAC, MTU: i.MTU,
			Addresses: i.Addresses, Gateways: i.Gateways, Routes: i.Routes,
			RingSize: m.RingSize, BufferSize: m.BufferSize, RxQueues: m.RxQueues, TxQueues: m.TxQueues,
		}
		if l := linkOf(i.of, i.Interface); l.hasMACs() && len(i.Routes) > 0 {
			entry.GatewayMAC = l.mac.String()
		}
		list.Interfaces = append(list.Interfaces, entry)
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		panic(err) //nolint:forbidigo // impossible: all of it is plain data
	}
	return string(text) + "\n"
}
