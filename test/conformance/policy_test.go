package conformance

import (
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/arp"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip6_nd"
	"go.fd.io/govpp/binapi/ip_types"
)

// permit returns rules for a sender with a MAC and each of the prefixes.
func permit(m string, prefixes ...string) []acl_types.MacipACLRule {
	rules := make([]acl_types.MacipACLRule, len(prefixes))
	for i, p := range prefixes {
		rules[i] = acl_types.MacipACLRule{
			IsPermit:   acl_types.ACL_ACTION_API_PERMIT,
			SrcPrefix:  prefix(p),
			SrcMac:     mac(m),
			SrcMacMask: mac("ff:ff:ff:ff:ff:ff"),
		}
	}
	return rules
}

func macip(list uint32, text string, rules ...acl_types.MacipACLRule) *acl.MacipACLAddReplace {
	return &acl.MacipACLAddReplace{ACLIndex: list, Tag: text, Count: uint32(len(rules)), R: rules}
}

func apply(i index, list uint32, add bool) *acl.MacipACLInterfaceAddDel {
	return &acl.MacipACLInterfaceAddDel{SwIfIndex: i, ACLIndex: list, IsAdd: add}
}

var (
	macipDump   = &acl.MacipACLDump{ACLIndex: anyID}
	appliedDump = &acl.MacipACLInterfaceListDump{SwIfIndex: none}
)

// aclRule permits or denies packets of a protocol between ranges of ports, from a prefix to all addresses of its
// family.
func aclRule(permit bool, source string, protocol ip_types.IPProto, ports ...uint16) acl_types.ACLRule {
	all := "0.0.0.0/0"
	if strings.Contains(source, ":") {
		all = "::/0"
	}
	r := acl_types.ACLRule{
		SrcPrefix:             prefix(source),
		DstPrefix:             prefix(all),
		Proto:                 protocol,
		SrcportOrIcmptypeLast: 65535,
		DstportOrIcmpcodeLast: 65535,
	}
	if permit {
		r.IsPermit = acl_types.ACL_ACTION_API_PERMIT
	}
	if len(ports) == 4 {
		r.SrcportOrIcmptypeFirst = ports[0]
		r.SrcportOrIcmptypeLast = ports[1]
		r.DstportOrIcmpcodeFirst = ports[2]
		r.DstportOrIcmpcodeLast = ports[3]
	}
	return r
}

// reflecting permits packets from a prefix with sessions.
func reflecting(source string, protocol ip_types.IPProto) acl_types.ACLRule {
	r := aclRule(true, source, protocol)
	r.IsPermit = acl_types.ACL_ACTION_API_PERMIT_REFLECT
	return r
}

// answer swaps the ports of a datagram.
func answer(packet []gopacket.SerializableLayer) []gopacket.SerializableLayer {
	u := packet[1].(*layers.UDP)
	u.SrcPort, u.DstPort = u.DstPort, u.SrcPort
	return packet
}

// answers transmits a packet from b and records what a receives.
func (r routed) answers(packet []gopacket.SerializableLayer) {
	r.b.Helper()
	kind := type4
	if _, six := packet[0].(*layers.IPv6); six {
		kind = type6
	}
	r.b.sends(append([]gopacket.SerializableLayer{ethernet(hw(podB), hw(macB), kind)}, packet...)...)
	r.b.receives()
	r.a.receives()
}

// sctp4 is a packet with the common header of SCTP (RFC 9260 3.1) and no chunk.
func sctp4(from, to string, source, destination layers.SCTPPort) []gopacket.SerializableLayer {
	return []gopacket.SerializableLayer{
		ip4(from, to, 64, layers.IPProtocolSCTP), &layers.SCTP{SrcPort: source, DstPort: destination},
	}
}

func aclMessage(list uint32, text string, rules ...acl_types.ACLRule) *acl.ACLAddReplace {
	return &acl.ACLAddReplace{ACLIndex: list, Tag: text, Count: uint32(len(rules)), R: rules}
}

func setACLs(i index, input uint8, acls ...uint32) *acl.ACLInterfaceSetACLList {
	return &acl.ACLInterfaceSetACLList{SwIfIndex: i, Count: uint8(len(acls)), NInput: input, Acls: acls}
}

var (
	aclDump           = &acl.ACLDump{ACLIndex: anyID}
	interfaceACLsDump = &acl.ACLInterfaceListDump{SwIfIndex: none}
)

func proxied(table uint32, low, high string, add bool) *arp.ProxyArpAddDel {
	first := addr(low)
	last := addr(high)
	return &arp.ProxyArpAddDel{
		IsAdd: add,
		Proxy: arp.ProxyArp{TableID: table, Low: first.Un.GetIP4(), Hi: last.Un.GetIP4()},
	}
}

func proxying(i index, on bool) *arp.ProxyArpIntfcEnableDisable {
	return &arp.ProxyArpIntfcEnableDisable{SwIfIndex: i, Enable: on}
}

var (
	proxyDump    = &arp.ProxyArpDump{}
	proxyingDump = &arp.ProxyArpIntfcDump{}
)

func proxyND(i index, a string, add bool) *ip6_nd.IP6ndProxyAddDel {
	return &ip6_nd.IP6ndProxyAddDel{SwIfIndex: i, IsAdd: add, IP: ip6(a)}
}

var policyCases = []testCase{
	{name: "macip: lists are created, applied, replaced and deleted", run: func(l *lab) {
		a := l.loop(0, "a")
		b := l.loop(1, "b")
		rules := permit("02:00:00:00:00:09", "10.1.1.7/32", "fd00::7/128", "fe80::/10")
		l.each(macip(anyID, "pod", rules...), macipDump, appliedDump, apply(a, 0, true), apply(b, 0, true),
			apply(b, 0, true), appliedDump,
			macip(0, "new", rules[:1]...), macipDump, &acl.MacipACLDump{ACLIndex: 0}, macip(anyID, "second"),
			apply(a, 1, true), appliedDump, &acl.MacipACLInterfaceGet{},
			&acl.MacipACLInterfaceListDump{SwIfIndex: b}, apply(a, 0, false), appliedDump, apply(a, 0, false),
			&acl.MacipACLDel{ACLIndex: 0}, appliedDump, macipDump,
			&acl.MacipACLDel{ACLIndex: 0}, &acl.MacipACLInterfaceListDump{SwIfIndex: unknown})
	}},
	{name: "macip: refusals", run: func(l *lab) {
		a := l.loop(0, "a")
		long := permit("02:00:00:00:00:09", "10.0.0.0/8")
		long[0].SrcPrefix.Len = 33
		l.each(macip(77, "x"), &acl.MacipACLDel{ACLIndex: 77}, apply(a, 77, true), apply(a, 77, false),
			apply(unknown, 77, false), apply(unknown, 0, true),
			macip(anyID, "x", long...), macip(anyID, strings.Repeat("x", 64)), &acl.MacipACLDump{ACLIndex: 77},
			macipDump)
	}},
	{name: "macip: the index of a deleted list", run: func(l *lab) {
		l.each(macip(anyID, "a"), macip(anyID, "b"), &acl.MacipACLDel{ACLIndex: 0}, macip(anyID, "c"),
			macip(anyID, "d"), macipDump)
	}},
	{name: "macip: deleted lists and interfaces", run: func(l *lab) {
		a := l.loop(0, "a")
		l.must(macip(anyID, "a"))
		l.must(apply(a, 0, true))
		l.each(&interfaces.DeleteLoopback{SwIfIndex: a}, appliedDump)
		b := l.loop(1, "b")
		l.each(appliedDump, apply(b, 0, true), appliedDump)
	}},
	{name: "acl: lists are created, applied, replaced and deleted", run: func(l *lab) {
		a := l.loop(0, "a")
		b := l.loop(1, "b")
		flags := aclRule(true, "10.1.0.0/16", 6, 0, 1023, 80, 443)
		flags.TCPFlagsMask = 18
		flags.TCPFlagsValue = 2
		rules := []acl_types.ACLRule{aclRule(false, "::/0", 58, 134, 134, 0, 255), flags, aclRule(true, "fd00::/8", 0)}
		l.each(aclMessage(anyID, "x", rules...), aclDump, interfaceACLsDump, setACLs(a, 1, 0), setACLs(b, 1, 0),
			interfaceACLsDump,
			aclMessage(0, "new", rules[:1]...), aclDump, &acl.ACLDump{ACLIndex: 0}, aclMessage(anyID, "none"),
			setACLs(a, 2, 1, 0), interfaceACLsDump,
			&acl.ACLInterfaceListDump{SwIfIndex: b}, &acl.ACLDel{ACLIndex: 0}, setACLs(a, 1, 1), setACLs(b, 0),
			interfaceACLsDump, &acl.ACLDel{ACLIndex: 0},
			&acl.ACLDel{ACLIndex: 0}, aclDump, &acl.ACLInterfaceListDump{SwIfIndex: unknown})
	}},
	{name: "acl: refusals", run: func(l *lab) {
		a := l.loop(0, "a")
		long := aclRule(true, "10.0.0.0/8", 0)
		mixed := aclRule(true, "10.0.0.0/8", 0)
		long.DstPrefix.Len = 33
		mixed.DstPrefix = prefix("::/0")
		l.each(aclMessage(77, "x"), &acl.ACLDel{ACLIndex: 77}, setACLs(a, 1, 77), setACLs(unknown, 0),
			setACLs(unknown, 1, 77), aclMessage(anyID, "x", long),
			aclMessage(anyID, "x", mixed), aclMessage(anyID, "x", aclRule(true, "::/0", 17, 2, 1, 0, 0)),
			aclMessage(anyID, "x", aclRule(true, "::/0", 17, 0, 0, 2, 1)),
			aclMessage(anyID, strings.Repeat("x", 64)), &acl.ACLDump{ACLIndex: 77}, aclMessage(anyID, "x"),
			setACLs(a, 2, 0, 0), interfaceACLsDump, aclDump)
	}},
	{name: "acl: deleted lists and interfaces", run: func(l *lab) {
		a := l.loop(0, "a")
		l.must(aclMessage(anyID, "x"))
		l.must(setACLs(a, 1, 0))
		l.each(&interfaces.DeleteLoopback{SwIfIndex: a}, interfaceACLsDump)
		l.loop(1, "b")
		l.each(interfaceACLsDump, &acl.ACLDel{ACLIndex: 0})
	}},
	{name: "acl: reflection and output lists", run: func(l *lab) {
		a := l.loop(0, "a")
		l.each(aclMessage(anyID, "in", reflecting("10.0.0.0/8", 6), reflecting("fd00::/8", 58)),
			aclMessage(anyID, "out", aclRule(false, "0.0.0.0/0", 0)), aclDump,
			setACLs(a, 1, 0, 1), interfaceACLsDump, setACLs(a, 0, 1, 0), interfaceACLsDump, setACLs(a, 1, 0, 0),
			interfaceACLsDump, &acl.ACLDel{ACLIndex: 0},
			setACLs(a, 0, 1), &acl.ACLDel{ACLIndex: 1}, &acl.ACLDel{ACLIndex: 0},
			&acl.ACLStatsIntfCountersEnable{Enable: true}, setACLs(a, 0), &acl.ACLDel{ACLIndex: 1})
	}},
	{name: "acl: sessions of routed interfaces", run: func(l *lab) {
		r := l.routed()
		l.must(aclMessage(anyID, "in", reflecting("10.0.1.0/24", 17), reflecting("fd00:1::/64", 17)))
		l.must(aclMessage(anyID, "out", aclRule(false, "0.0.0.0/0", 0), aclRule(false, "::/0", 0)))
		l.must(setACLs(r.indexA, 1, 0, 1))
		for _, flow := range [][2][]gopacket.SerializableLayer{
			{udp4("10.0.1.2", "10.0.2.2", 30), answer(udp4("10.0.2.2", "10.0.1.2", 40))}, {
				udp6("fd00:1::2", "fd00:2::2", 30), answer(udp6("fd00:2::2", "fd00:1::2", 40)),
			},
		} {
			r.answers(flow[1]) // before there is a session
			r.sends(flow[0])
			r.answers(flow[1])
		}
		r.sends(echo4("10.0.1.2", "10.0.2.2", 64, 10)) // no rule permits it
	}},
	{name: "acl: ports of SCTP", run: func(l *lab) {
		r := l.routed()
		l.must(aclMessage(anyID, "in", aclRule(true, "10.0.1.0/24", 132, 0, 65535, 80, 80)))
		l.must(setACLs(r.indexA, 1, 0))
		r.sends(sctp4("10.0.1.2", "10.0.2.2", 1000, 80), sctp4("10.0.1.2", "10.0.2.2", 1000, 81))
	}},
	{name: "acl: sessions of SCTP", run: func(l *lab) {
		r := l.routed()
		l.must(aclMessage(anyID, "in", reflecting("10.0.1.0/24", 132)))
		l.must(aclMessage(anyID, "out", aclRule(false, "0.0.0.0/0", 0)))
		l.must(setACLs(r.indexA, 1, 0, 1))
		r.sends(sctp4("10.0.1.2", "10.0.2.2", 1000, 80))
		r.answers(sctp4("10.0.2.2", "10.0.1.2", 80, 1000)) // of the association
		r.answers(sctp4("10.0.2.2", "10.0.1.2", 2000, 81)) // another one, which no rule permits
	}},
	{name: "proxy ARP: ranges", run: func(l *lab) {
		l.must(tableMessage(7, false, true))
		l.each(proxied(0, "10.1.1.2", "10.1.1.9", true), proxied(7, "10.1.1.2", "10.1.1.9", true),
			proxied(0, "10.1.1.2", "10.1.1.9", true), proxyDump,
			proxied(0, "10.1.1.9", "10.1.1.2", true), proxied(8, "10.1.1.2", "10.1.1.9", true),
			proxied(8, "10.1.1.2", "10.1.1.9", false), proxyDump, proxied(0, "10.1.1.2", "10.1.1.9", false),
			proxied(0, "10.1.1.2", "10.1.1.9", false), proxyDump, tableMessage(7, false, false), proxyDump)
	}},
	{name: "proxy ARP: interfaces", run: func(l *lab) {
		a := l.loop(0, "a")
		b := l.loop(1, "b")
		l.each(proxyingDump, proxying(a, true), proxying(b, true), proxying(b, true), proxyingDump, proxying(a, false),
			proxying(a, false), proxyingDump,
			proxying(unknown, true), &interfaces.DeleteLoopback{SwIfIndex: b}, proxyingDump)
		c := l.loop(2, "c")
		l.each(proxyingDump, proxying(c, true), proxyingDump)
	}},
	{name: "proxy ND: hosts", run: func(l *lab) {
		a := l.loop(0, "a")
		b := l.loop(1, "b")
		dump := &ip6_nd.IP6ndProxyDump{}
		l.each(dump, proxyND(a, "fd00::7", true), proxyND(b, "fd00::7", true), proxyND(a, "fd00::7", true), dump,
			allRoutes(0, true), proxyND(a, "fd00::7", false), proxyND(a, "fd00::7", false),
			dump, allRoutes(0, true), &interfaces.DeleteLoopback{SwIfIndex: b}, dump, allRoutes(0, true),
			proxyND(unknown, "fd00::7", true))
	}},
}
