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
	a := wire.ACL{Label: guardACL}
	add := func(permit bool, f wire.Family, protocols, sources, destinations wire.Range) {
		a.Rules = append(a.Rules, wire.ACLRule{Permit: permit, Family: f, Protocols: protocols, Sources: sources, Destinations: destinations})
	}
	icmp, icmpv6, udp := wire.Single(protocolICMP), wire.Single(protocolICMPv6), wire.Single(protocolUDP)

	add(true, wire.IP4, icmp, below(icmpRedirect), allTypes)
	add(false, wire.IP4, icmp, wire.Single(icmpRedirect), allTypes)
	add(true, wire.IP4, icmp, allTypes, allTypes)
	add(true, wire.IP4, udp, allPorts, below(portDHCPClient))
	add(false, wire.IP4, udp, allPorts, wire.Single(portDHCPClient))
	add(true, wire.IP4, udp, allPorts, allPorts)
	add(true, wire.IP4, wire.Range{}, wire.Range{}, wire.Range{})

	add(true, wire.IP6, icmpv6, below(icmpv6RouterAdvert), allTypes)
	add(false, wire.IP6, icmpv6, wire.Single(icmpv6RouterAdvert), allTypes)
	add(false, wire.IP6, icmpv6, wire.Single(icmpv6Redirect), allTypes)
	add(true, wire.IP6, icmpv6, allTypes, allTypes)
	add(true, wire.IP6, udp, allPorts, below(portDHCPv6Client))
	add(false, wire.IP6, udp, allPorts, wire.Single(portDHCPv6Client))
	add(true, wire.IP6, udp, allPorts, allPorts)
	for _, p := range notExtensions {
		add(true, wire.IP6, p, allPorts, allPorts)
	}
	return a
}

var allPorts, allTypes = wire.Range{Last: 65535}, wire.Range{Last: 255}

func below(n uint16) wire.Range { return wire.Range{Last: n - 1} }

// guarded has guardACL decide about what comes by the link.
func (l link) guarded(v *values) {
	v.add(wire.InterfaceACLKey(l.object), wire.InterfaceACL{Interface: l.object, ACL: guardACL})
}
