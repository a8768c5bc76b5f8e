package vpp

import (
	"encoding/binary"
	"hash/fnv"
	"iter"
	"net/netip"

	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/wire"
)

// aclEntry is a rule as the dataplane has it: of one prefix each, one protocol or any, and one range of ports each. A
// rule of a value is the product of its sets.
type aclEntry struct {
	permit, reflect bool
	family          netaddr.Family
	from, to        netip.Prefix // invalid: any address
	protocol        uint16       // 0: any
	sources         wire.Range
	destinations    wire.Range
}

// countEntries returns the number of entries of rules. It does not make them: their number may be far more than memory
// can hold.
func countEntries(rules []wire.ACLRule) int {
	n := 0
	for i := range rules {
		n += entriesOf(&rules[i])
	}
	return n
}

func entriesOf(r *wire.ACLRule) int {
	protocols := 0
	for _, p := range r.Ports {
		protocols += int(p.Protocols.Last) - int(p.Protocols.First) + 1
	}
	if len(r.Ports) == 0 {
		protocols = 1
	}
	return protocols * max(1, len(r.From)) * max(1, len(r.To))
}

var (
	anyAddress = []netip.Prefix{{}}
	anyPorts   = []wire.ACLPorts{{}}
)

// entries yields the entries of rules, in order.
func entries(rules []wire.ACLRule) iter.Seq[aclEntry] {
	return func(yield func(aclEntry) bool) {
		for i := range rules {
			for e := range entriesOfRule(&rules[i]) {
				if !yield(e) {
					return
				}
			}
		}
	}
}

func entriesOfRule(r *wire.ACLRule) iter.Seq[aclEntry] {
	return func(yield func(aclEntry) bool) {
		for e := range portEntries(r) {
			for _, e.from = range orAny(r.From) {
				for _, e.to = range orAny(r.To) {
					if !yield(e) {
						return
					}
				}
			}
		}
	}
}

// portEntries yields the entries of a rule for any addresses.
func portEntries(r *wire.ACLRule) iter.Seq[aclEntry] {
	ports := r.Ports
	if len(ports) == 0 {
		ports = anyPorts
	}
	return func(yield func(aclEntry) bool) {
		for _, p := range ports {
			e := aclEntry{
				permit:       r.Permit,
				reflect:      r.Reflect,
				family:       r.Family,
				sources:      p.Sources,
				destinations: p.Destinations,
			}
			for e.protocol = p.Protocols.First; e.protocol <= p.Protocols.Last; e.protocol++ {
				if !yield(e) {
					return
				}
			}
		}
	}
}

func orAny(prefixes []netip.Prefix) []netip.Prefix {
	if len(prefixes) == 0 {
		return anyAddress
	}
	return prefixes
}

// sameEntries reports whether the dataplane has the same entries for both.
func sameEntries(a, b []wire.ACLRule) bool {
	if countEntries(a) != countEntries(b) {
		return false
	}
	next, stop := iter.Pull(entries(b))
	defer stop()
	for e := range entries(a) {
		if other, _ := next(); other != e {
			return false
		}
	}
	return true
}

// hashEntries returns a hash of the entries of rules.
func hashEntries(rules []wire.ACLRule) uint64 {
	h := fnv.New64a()
	var b []byte
	for e := range entries(rules) {
		b = append(b[:0], e.family...)
		if e.permit {
			b = append(b, '+')
		}
		if e.reflect {
			b = append(b, '&')
		}
		b = binary.BigEndian.AppendUint16(b, e.protocol)
		for _, p := range []netip.Prefix{e.from, e.to} {
			raw, _ := p.MarshalBinary() // it cannot fail
			b = append(b, byte(len(raw)))
			b = append(b, raw...)
		}
		for _, r := range []wire.Range{e.sources, e.destinations} {
			b = binary.BigEndian.AppendUint16(b, r.First)
			b = binary.BigEndian.AppendUint16(b, r.Last)
		}
		_, _ = h.Write(b) // it cannot fail
	}
	return h.Sum64()
}

// everywhere is the prefix of all addresses of a family.
var everywhere = map[netaddr.Family]netip.Prefix{
	netaddr.IP4: netip.PrefixFrom(netip.IPv4Unspecified(), 0),
	netaddr.IP6: netip.PrefixFrom(netip.IPv6Unspecified(), 0),
}

// apiACLRule converts an entry to the API.
func apiACLRule(e aclEntry) acl_types.ACLRule {
	either := func(p netip.Prefix) ip_types.Prefix {
		if !p.IsValid() {
			p = everywhere[e.family]
		}
		return apiPrefix(p)
	}
	rule := acl_types.ACLRule{
		SrcPrefix: either(e.from), DstPrefix: either(e.to), Proto: ip_types.IPProto(e.protocol),
		SrcportOrIcmptypeFirst: e.sources.First, SrcportOrIcmptypeLast: e.sources.Last,
		DstportOrIcmpcodeFirst: e.destinations.First, DstportOrIcmpcodeLast: e.destinations.Last,
	}
	switch {
	case e.reflect:
		rule.IsPermit = acl_types.ACL_ACTION_API_PERMIT_REFLECT
	case e.permit:
		rule.IsPermit = acl_types.ACL_ACTION_API_PERMIT
	}
	return rule
}

// aclEntryOf is the inverse of apiACLRule; false: there is no such entry.
func aclEntryOf(d acl_types.ACLRule) (aclEntry, bool) {
	family := netaddr.FamilyOf(prefix(d.SrcPrefix).Addr())
	some := func(p netip.Prefix) netip.Prefix {
		if p == everywhere[family] {
			return netip.Prefix{}
		}
		return p
	}
	e := aclEntry{
		permit:  d.IsPermit != acl_types.ACL_ACTION_API_DENY,
		reflect: d.IsPermit == acl_types.ACL_ACTION_API_PERMIT_REFLECT,
		family:  family,
		from:    some(prefix(d.SrcPrefix)), to: some(prefix(d.DstPrefix)), protocol: uint16(d.Proto),
		sources:      wire.Range{First: d.SrcportOrIcmptypeFirst, Last: d.SrcportOrIcmptypeLast},
		destinations: wire.Range{First: d.DstportOrIcmpcodeFirst, Last: d.DstportOrIcmpcodeLast},
	}
	return e, apiACLRule(e) == d
}

// aclRulesOf returns rules with the entries of a list, in order. Neighbours that differ in one respect only are one
// rule: a list may have tens of thousands of entries. Invalid entries become the zero rule, which is invalid.
func aclRulesOf(list []acl_types.ACLRule) []wire.ACLRule {
	var rules []wire.ACLRule
	var last aclEntry // of the last rule
	for _, d := range list {
		e, isEntry := aclEntryOf(d)
		if !isEntry {
			e = aclEntry{}
			rules = append(rules, wire.ACLRule{})
		} else if len(rules) == 0 || !join(&rules[len(rules)-1], last, e) {
			rules = append(rules, e.rule())
		}
		last = e
	}
	return rules
}

// rule returns a rule with one entry.
func (e aclEntry) rule() wire.ACLRule {
	r := wire.ACLRule{Permit: e.permit, Reflect: e.reflect, Family: e.family}
	if e.from.IsValid() {
		r.From = []netip.Prefix{e.from}
	}
	if e.to.IsValid() {
		r.To = []netip.Prefix{e.to}
	}
	if p := e.ports(); p != (wire.ACLPorts{}) {
		r.Ports = []wire.ACLPorts{p}
	}
	return r
}

func (e aclEntry) ports() wire.ACLPorts {
	return wire.ACLPorts{Protocols: wire.Single(e.protocol), Sources: e.sources, Destinations: e.destinations}
}

// join adds an entry to a rule if the entries of the rule stay in their order, and reports whether it did. last is the
// last entry of the rule.
func join(r *wire.ACLRule, last, e aclEntry) bool {
	if e.permit != last.permit || e.reflect != last.reflect || e.family != last.family {
		return false
	}
	isFrom := e.from != last.from
	isTo := e.to != last.to
	isPorts := e.ports() != last.ports()
	// A rule with several of one has one of the others only.
	switch {
	case !isFrom && !isTo && isPorts && len(r.From) < 2 && len(r.To) < 2 && len(r.Ports) > 0 &&
		e.ports() != (wire.ACLPorts{}):
		r.Ports = append(r.Ports, e.ports())
	case isFrom && !isTo && !isPorts && len(r.Ports) < 2 && len(r.To) < 2 && len(r.From) > 0 && e.from.IsValid():
		r.From = append(r.From, e.from)
	case !isFrom && isTo && !isPorts && len(r.Ports) < 2 && len(r.From) < 2 && len(r.To) > 0 && e.to.IsValid():
		r.To = append(r.To, e.to)
	default:
		return false
	}
	return true
}
