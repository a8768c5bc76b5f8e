package conformance

import (
	"strings"

	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/arp"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip6_nd"
)

// permit are rules for a sender with a MAC and each of the prefixes.
func permit(m string, prefixes ...string) []acl_types.MacipACLRule {
	rules := make([]acl_types.MacipACLRule, len(prefixes))
	for i, p := range prefixes {
		rules[i] = acl_types.MacipACLRule{IsPermit: acl_types.ACL_ACTION_API_PERMIT, SrcPrefix: prefix(p), SrcMac: mac(m), SrcMacMask: mac("ff:ff:ff:ff:ff:ff")}
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

func proxied(table uint32, low, high string, add bool) *arp.ProxyArpAddDel {
	first, last := addr(low), addr(high)
	return &arp.ProxyArpAddDel{IsAdd: add, Proxy: arp.ProxyArp{TableID: table, Low: first.Un.GetIP4(), Hi: last.Un.GetIP4()}}
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
		a, b := l.loop(0, "a"), l.loop(1, "b")
		rules := permit("02:00:00:00:00:09", "10.1.1.7/32", "fd00::7/128", "fe80::/10")
		l.each(macip(anyID, "pod", rules...), macipDump, appliedDump, apply(a, 0, true), apply(b, 0, true), apply(b, 0, true), appliedDump,
			macip(0, "new", rules[:1]...), macipDump, &acl.MacipACLDump{ACLIndex: 0}, macip(anyID, "second"), apply(a, 1, true), appliedDump, &acl.MacipACLInterfaceGet{},
			&acl.MacipACLInterfaceListDump{SwIfIndex: b}, apply(a, 0, false), appliedDump, apply(a, 0, false), &acl.MacipACLDel{ACLIndex: 0}, appliedDump, macipDump,
			&acl.MacipACLDel{ACLIndex: 0}, &acl.MacipACLInterfaceListDump{SwIfIndex: unknown})
	}},
	{name: "macip: refusals", run: func(l *lab) {
		a := l.loop(0, "a")
		long := permit("02:00:00:00:00:09", "10.0.0.0/8")
		long[0].SrcPrefix.Len = 33
		l.each(macip(77, "x"), &acl.MacipACLDel{ACLIndex: 77}, apply(a, 77, true), apply(a, 77, false), apply(unknown, 77, false), apply(unknown, 0, true),
			macip(anyID, "x", long...), macip(anyID, strings.Repeat("x", 64)), &acl.MacipACLDump{ACLIndex: 77}, macipDump)
	}},
	{name: "macip: the index of a deleted list", run: func(l *lab) {
		l.each(macip(anyID, "a"), macip(anyID, "b"), &acl.MacipACLDel{ACLIndex: 0}, macip(anyID, "c"), macip(anyID, "d"), macipDump)
	}},
	{name: "macip: lists and interfaces that go", run: func(l *lab) {
		a := l.loop(0, "a")
		l.must(macip(anyID, "a"))
		l.must(apply(a, 0, true))
		l.each(&interfaces.DeleteLoopback{SwIfIndex: a}, appliedDump)
		b := l.loop(1, "b")
		l.each(appliedDump, apply(b, 0, true), appliedDump)
	}},
	{name: "proxy ARP: ranges", run: func(l *lab) {
		l.must(tableMessage(7, false, true))
		l.each(proxied(0, "10.1.1.2", "10.1.1.9", true), proxied(7, "10.1.1.2", "10.1.1.9", true), proxied(0, "10.1.1.2", "10.1.1.9", true), proxyDump,
			proxied(0, "10.1.1.9", "10.1.1.2", true), proxied(8, "10.1.1.2", "10.1.1.9", true), proxied(8, "10.1.1.2", "10.1.1.9", false), proxyDump, proxied(0, "10.1.1.2", "10.1.1.9", false),
			proxied(0, "10.1.1.2", "10.1.1.9", false), proxyDump, tableMessage(7, false, false), proxyDump)
	}},
	{name: "proxy ARP: interfaces", run: func(l *lab) {
		a, b := l.loop(0, "a"), l.loop(1, "b")
		l.each(proxyingDump, proxying(a, true), proxying(b, true), proxying(b, true), proxyingDump, proxying(a, false), proxying(a, false), proxyingDump,
			proxying(unknown, true), &interfaces.DeleteLoopback{SwIfIndex: b}, proxyingDump)
		c := l.loop(2, "c")
		l.each(proxyingDump, proxying(c, true), proxyingDump)
	}},
	{name: "proxy ND: hosts", run: func(l *lab) {
		a, b := l.loop(0, "a"), l.loop(1, "b")
		dump := &ip6_nd.IP6ndProxyDump{}
		l.each(dump, proxyND(a, "fd00::7", true), proxyND(b, "fd00::7", true), proxyND(a, "fd00::7", true), dump, allRoutes(0, true), proxyND(a, "fd00::7", false), proxyND(a, "fd00::7", false),
			dump, allRoutes(0, true), &interfaces.DeleteLoopback{SwIfIndex: b}, dump, allRoutes(0, true), proxyND(unknown, "fd00::7", true))
	}},
}
