package forward

import (
	"encoding/binary"
	"net/netip"

	"github.com/weftnet/weft/vswitch/frame"
)

// ACLRule is a rule of an IP ACL, with the fields of VPP's acl_rule. It matches packets of its prefixes' family.
type ACLRule struct {
	Permit              bool
	Source, Destination netip.Prefix // both of the same family; host bits are ignored
	Protocol            uint8        // 0: any protocol, and the fields below are ignored
	Sources             PortRange    // source ports, or ICMP types
	Destinations        PortRange    // destination ports, or ICMP codes
	TCPMask, TCPFlags   uint8        // TCP flags under the mask must equal TCPFlags
}

// PortRange is a range of ports, or of ICMP types or codes. Both ends are included.
type PortRange struct{ First, Last uint16 }

// ACLFilter is a compiled list of ACL rules, which decide about the IP packets that an interface receives. It is never changed, and
// several interfaces may share it.
//
// The first rule that matches a packet decides, and a packet that no rule matches is dropped. As in VPP's acl plugin
//   - other frames than IP pass;
//   - a rule with a protocol matches only if the first 8 bytes behind the IP headers are in the packet. So it does not match the first
//     fragment of an IPv6 packet whose chain of headers continues in the next fragment (RFC 7113 2);
//   - a rule with a protocol matches the other fragments by addresses and protocol alone, for they have no ports.
//
// In contrast to VPP a second fragment header or more than eight extension headers end the walk over the headers, and a frame with more
// than two VLAN tags is dropped: Linux unpacks any number of priority tags.
type ACLFilter struct {
	rules [families][256][]aclRule // by protocol; each list includes the rules for any protocol
}

// Address families of rules.
const (
	acl4 = iota
	acl6
	families
)

// icmpOf is the protocol number of ICMP in each family.
var icmpOf = [families]uint8{frame.ProtocolICMP, frame.ProtocolICMPv6}

// aclRule is a rule for one protocol. It is small, because a rule for any protocol is stored 256 times.
type aclRule struct {
	sources, destinations PortRange
	tcpMask, tcpFlags     uint8
	permit, hasProtocol   bool
	addresses             *aclAddresses // nil: any
}

type aclAddresses struct{ source, destination aclPrefix }

// aclPrefix is a prefix as words; an IPv4 prefix uses the low words only.
type aclPrefix struct{ high, low, highMask, lowMask uint64 }

// upperLayer holds the fields of the upper layer header that rules match.
type upperLayer struct {
	protocol       uint8
	later          bool // not the first fragment
	hasPorts       bool // source and destination are valid
	hasFlags       bool // flags are valid
	source, target uint16
	flags          uint8
}

// NewACLFilter compiles rules.
func NewACLFilter(rules []ACLRule) *ACLFilter {
	f := &ACLFilter{}
	for _, r := range rules {
		c := aclRule{sources: r.Sources, destinations: r.Destinations, tcpMask: r.TCPMask, tcpFlags: r.TCPFlags, permit: r.Permit, hasProtocol: r.Protocol != 0}
		if r.Source.Bits() > 0 || r.Destination.Bits() > 0 {
			c.addresses = &aclAddresses{compilePrefix(r.Source), compilePrefix(r.Destination)}
		}
		first, last := int(r.Protocol), int(r.Protocol)
		if !c.hasProtocol {
			first, last = 0, 255
		}
		family := &f.rules[acl4]
		if r.Source.Addr().Is6() {
			family = &f.rules[acl6]
		}
		for p := first; p <= last; p++ {
			family[p] = append(family[p], c)
		}
	}
	return f
}

func compilePrefix(p netip.Prefix) aclPrefix {
	a := p.Masked().Addr()
	if a.Is4() {
		raw := a.As4()
		return aclPrefix{low: uint64(binary.BigEndian.Uint32(raw[:])), lowMask: uint64(^uint32(0) << (32 - p.Bits()))}
	}
	raw := a.As16()
	return aclPrefix{high: binary.BigEndian.Uint64(raw[:]), low: binary.BigEndian.Uint64(raw[8:]),
		highMask: ^uint64(0) << (64 - min(p.Bits(), 64)), lowMask: ^uint64(0) << (128 - max(p.Bits(), 64))}
}

func (p aclPrefix) contains(high, low uint64) bool {
	return high&p.highMask == p.high && low&p.lowMask == p.low
}

// dropReason returns the reason to drop a frame, or noDrop.
func (f *ACLFilter) dropReason(in *iface, b []byte) reason {
	if len(b) < frame.EthernetLen {
		return noDrop // dropped later: too short for an Ethernet header
	}
	kind, at := frame.Ethernet(b).Network()
	switch kind {
	case frame.TypeIPv4:
		if u, ok := upperOf4(b[at:]); ok && f.permits(acl4, b[at:], u) {
			return noDrop
		}
		if in.l2.slot != 0 {
			return dropACLBridged4
		}
		return dropACL4
	case frame.TypeIPv6:
		if u, ok := upperOf6(b[at:]); ok && f.permits(acl6, b[at:], u) {
			return noDrop
		}
		if in.l2.slot != 0 {
			return dropACLBridged6
		}
		return dropACL6
	case frame.TypeVLAN, frame.TypeQinQ:
		return dropACLTags
	}
	return noDrop
}

// permitsPlain reports whether a frame of n bytes with the head h is permitted. It also returns false for frames that only
// dropReason handles: fragments, and those with tags, options or extension headers.
func (f *ACLFilter) permitsPlain(h []byte, n int) bool {
	const ip4, ip6 = frame.EthernetLen + frame.IPv4Len, frame.EthernetLen + frame.IPv6Len
	switch frame.Ethernet(h).Type() {
	case frame.TypeIPv4:
		if n < ip4+aclPortsLen || h[frame.EthernetLen] != 0x45 || binary.BigEndian.Uint16(h[frame.EthernetLen+6:])&0x3fff != 0 {
			return false
		}
		return f.permits(acl4, h[frame.EthernetLen:], readUpper(acl4, h[frame.EthernetLen+9], h[ip4:]))
	case frame.TypeIPv6:
		if n < ip6+aclPortsLen || frame.IsExtension(h[frame.EthernetLen+6]) {
			return false
		}
		return f.permits(acl6, h[frame.EthernetLen:], readUpper(acl6, h[frame.EthernetLen+6], h[ip6:]))
	case frame.TypeVLAN, frame.TypeQinQ:
		return false
	}
	return true
}

// aclPortsLen is the number of upper layer bytes that VPP requires in the packet before it matches ports.
const aclPortsLen = 8

// upperOf4 finds the upper layer of an IPv4 packet; false if the header is truncated or its length field is invalid.
func upperOf4(p []byte) (upperLayer, bool) {
	if len(p) < frame.IPv4Len {
		return upperLayer{}, false
	}
	ip := frame.IPv4(p)
	if ip.HeaderLen() < frame.IPv4Len {
		return upperLayer{}, false
	}
	switch at := ip.HeaderLen(); {
	case ip.FragmentOffset() != 0:
		return upperLayer{protocol: ip.Protocol(), later: true}, true
	case at+aclPortsLen > len(p):
		return upperLayer{protocol: ip.Protocol()}, true
	default:
		return readUpper(acl4, ip.Protocol(), p[at:]), true
	}
}

// upperOf6 finds the upper layer of an IPv6 packet; false if the header is truncated.
func upperOf6(p []byte) (upperLayer, bool) {
	if len(p) < frame.IPv6Len {
		return upperLayer{}, false
	}
	u, ends := frame.IPv6(p).Upper()
	if u.Later {
		return upperLayer{protocol: u.Protocol, later: true}, true
	}
	if !ends || u.Offset+aclPortsLen > len(p) {
		return upperLayer{protocol: u.Protocol}, true
	}
	return readUpper(acl6, u.Protocol, p[u.Offset:]), true
}

// readUpper reads an upper layer of at least aclPortsLen bytes.
func readUpper(family int, protocol uint8, b []byte) upperLayer {
	u := upperLayer{protocol: protocol, hasPorts: true}
	switch protocol {
	case icmpOf[family]:
		u.source, u.target = uint16(b[0]), uint16(b[1])
	case frame.ProtocolTCP, frame.ProtocolUDP:
		u.source, u.target = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
		if protocol == frame.ProtocolTCP && len(b) > tcpFlagsAt {
			u.hasFlags, u.flags = true, b[tcpFlagsAt]
		}
	}
	return u
}

// tcpFlagsAt is the offset of the flags in a TCP header.
const tcpFlagsAt = 13

// permits returns the action of the first matching rule; without one it denies.
func (f *ACLFilter) permits(family int, ip []byte, u upperLayer) bool {
	list := f.rules[family][u.protocol]
	for i := range list {
		r := &list[i]
		if r.hasProtocol && !u.later {
			if !u.hasPorts || u.source < r.sources.First || u.source > r.sources.Last || u.target < r.destinations.First || u.target > r.destinations.Last ||
				u.hasFlags && u.flags&r.tcpMask != r.tcpFlags {
				continue
			}
		}
		if r.addresses == nil || r.addresses.match(family, ip) {
			return r.permit
		}
	}
	return false
}

func (a *aclAddresses) match(family int, ip []byte) bool {
	if family == acl4 {
		return a.source.contains(0, uint64(binary.BigEndian.Uint32(ip[12:]))) && a.destination.contains(0, uint64(binary.BigEndian.Uint32(ip[16:])))
	}
	return a.source.contains(binary.BigEndian.Uint64(ip[8:]), binary.BigEndian.Uint64(ip[16:])) &&
		a.destination.contains(binary.BigEndian.Uint64(ip[24:]), binary.BigEndian.Uint64(ip[32:]))
}
