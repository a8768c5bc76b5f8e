package ipnet

import "github.com/weftnet/weft/wire"

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
