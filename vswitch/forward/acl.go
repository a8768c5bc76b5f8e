package forward

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

// ACLRule is a rule of an IP ACL, with the fields of VPP's acl_rule. It matches packets of its prefixes' family.
type ACLRule struct {
	Permit              bool
	Reflect             bool         // permit, and open a session; see AccessLists
	Source, Destination netip.Prefix // both of the same family; host bits are ignored
	Protocol            uint8        // 0: any protocol, and the fields below are ignored
	Sources             PortRange    // source ports, or ICMP types
	Destinations        PortRange    // destination ports, or ICMP codes
	TCPMask, TCPFlags   uint8        // TCP flags under the mask must equal TCPFlags
}

// PortRange is a range of ports, or of ICMP types or codes. Both ends are included.
type PortRange struct{ First, Last uint16 }

// ACLFilter is a compiled ACL. Its rules are never changed, and interfaces share it.
//
// The first rule that matches a packet decides. As in VPP's acl plugin
//   - other frames than IP pass;
//   - a rule with a protocol matches only if the first 8 bytes behind the IP headers are in the packet;
//   - a rule with a protocol matches the other fragments by addresses and protocol alone, for they have no ports.
//
// In contrast to VPP a rule that permits only messages of ICMP that are never fragmented permits no fragments:
// isNeverFragmented.
//
// In contrast to VPP these are dropped: a packet with a second fragment header or more than eight extension headers, a
// first fragment without these 8 bytes (RFC 7113 2), and a frame with more than two VLAN tags, because Linux unpacks
// any number of priority tags. Ports of SCTP are compared.
type ACLFilter struct {
	index uint32
	name  string
	*classifier
	hits []ruleHits // by rule
}

// ruleHits counts the packets for which a rule decided.
type ruleHits struct{ packets, bytes atomic.Uint64 }

// RuleHits are the packets for which a rule decided. Packets of a session are not among them.
type RuleHits struct{ Packets, Bytes uint64 }

// NewACLFilter compiles the rules of an ACL. Index and name identify it in traces.
func NewACLFilter(index uint32, name string, rules []ACLRule) *ACLFilter {
	return &ACLFilter{index: index, name: name, classifier: newClassifier(rules), hits: make([]ruleHits, len(rules))}
}

// Hits returns the counters of all rules.
func (f *ACLFilter) Hits() []RuleHits {
	all := make([]RuleHits, len(f.hits))
	for n := range f.hits {
		all[n] = RuleHits{f.hits[n].packets.Load(), f.hits[n].bytes.Load()}
	}
	return all
}

// AccessLists are the ACLs of an interface. In each direction the rules of all ACLs are one list: the first rule that
// matches a packet decides, and a packet that no rule matches is dropped. A direction without ACLs permits all packets.
//
// A packet that a rule with Reflect permits opens a session of the interface. Packets of a session pass in both
// directions before the lists are consulted. If the lists change, a session ends with its next packet unless the new
// list of the direction that opened it still permits it. Of a TCP connection that ended so, all packets are dropped
// until the other side begins a new one with a SYN.
type AccessLists struct {
	Input  []*ACLFilter // for packets that are received from the interface
	Output []*ACLFilter // for packets that are sent to the interface
	Count  bool         // count the hits of rules
}

func (a AccessLists) equal(b AccessLists) bool {
	return slices.Equal(a.Input, b.Input) && slices.Equal(a.Output, b.Output) && a.Count == b.Count
}

// direction is the direction of a packet at an interface.
type direction uint8

const (
	inward  direction = iota // received from the interface
	outward                  // sent to the interface
)

type aclAction uint8

const (
	aclDeny aclAction = iota
	aclPermit
	aclReflect
)

// accessLists are the ACLs of an interface as the workers see them, or nil without ACLs.
type accessLists struct {
	AccessLists
	lists      [2][]*ACLFilter // by direction
	generation uint32          // differs from the generations of all former lists of the interface
	sessions   *sessionTable   // nil: no rule opens sessions
}

// setAccessLists sets the lists of an interface. Sessions stay as long as there are lists.
func (i *iface) setAccessLists(a AccessLists, l *links) {
	old := i.acl
	if old != nil && old.equal(a) || old == nil && len(a.Input)+len(a.Output) == 0 {
		return
	}
	if len(a.Input)+len(a.Output) == 0 {
		i.acl = nil
		return
	}
	a.Input = slices.Clone(a.Input)
	a.Output = slices.Clone(a.Output)
	next := &accessLists{AccessLists: a, lists: [2][]*ACLFilter{a.Input, a.Output}}
	l.listGeneration++
	next.generation = l.listGeneration
	if old != nil {
		next.sessions = old.sessions
	}
	if next.sessions == nil && slices.ContainsFunc(slices.Concat(a.Input, a.Output), (*ACLFilter).reflects) {
		next.sessions = newSessionTable(l.sessionLimit, len(l.workers) > 1)
	}
	i.acl = next
}

func (f *ACLFilter) reflects() bool {
	return slices.ContainsFunc(f.rules, func(r aclRule) bool { return r.action == aclReflect })
}

// ruleMatch is the rule that decides about a packet.
type ruleMatch struct {
	list *ACLFilter // nil: no rule matches
	rule uint32
}

func (m ruleMatch) action() aclAction {
	if m.list == nil {
		return aclDeny
	}
	return m.list.rules[m.rule].action
}

// match returns the first rule of the lists of a direction that matches a packet.
func (a *accessLists) match(d direction, p *aclPacket) ruleMatch {
	for _, f := range a.lists[d] {
		if n := f.find(p); n != noRule {
			return ruleMatch{f, n}
		}
	}
	return ruleMatch{}
}

// permitsFlow reports whether the lists of a direction permit a packet, or are empty.
func (a *accessLists) permitsFlow(d direction, p *aclPacket) bool {
	return len(a.lists[d]) == 0 || a.match(d, p).action() != aclDeny
}

// count counts the packet of a rule.
func (a *accessLists) count(m ruleMatch, bytes int) {
	if a.Count && m.list != nil {
		m.list.hits[m.rule].packets.Add(1)
		m.list.hits[m.rule].bytes.Add(uint64(bytes))
	}
}

// accessControl applies ACLs on a worker.
type accessControl struct {
	*view
	clock       func() uint32 // reads secondClock
	secondClock *secondClock
}

func newAccessControl(v *view, start time.Time) accessControl {
	c := &secondClock{start: start}
	return accessControl{view: v, clock: c.read, secondClock: c}
}

// verdict decides about a frame at an interface with ACLs, and returns the reason to drop it, or noDrop.
func (c *accessControl) verdict(i *iface, d direction, b []byte) reason {
	a := i.acl
	var p aclPacket
	switch p.parse(b) {
	case otherFrame:
		return noDrop
	case tooManyTags:
		if len(a.lists[d]) == 0 {
			return noDrop
		}
		return dropACLTags
	case malformedPacket:
		if len(a.lists[d]) == 0 {
			return noDrop
		}
		return aclReason(dropACL, i, d, p.family)
	}
	if a.sessions != nil {
		switch a.sessions.pass(&p, a, c.clock()) {
		case ofSession:
			c.traced(stepSession, i, d, ruleMatch{})
			return noDrop
		case ofDeniedSession:
			c.traced(stepSessionDenied, i, d, ruleMatch{})
			return aclReason(dropACL, i, d, p.family)
		}
	}
	if len(a.lists[d]) == 0 {
		return noDrop
	}
	m := a.match(d, &p)
	a.count(m, len(b))
	action := m.action()
	if action == aclReflect && p.opensSession() {
		opened, replaced := a.sessions.open(&p, d, moment{a.generation, c.clock()})
		if !opened {
			c.traced(stepSessionsFull, i, d, m)
			return aclReason(dropSessions, i, d, p.family)
		}
		c.drops[aclReason(statSessions, i, d, p.family)].Add(1)
		if replaced {
			c.drops[statReplaced].Add(1)
		}
	}
	if action == aclDeny {
		c.traced(stepDenied, i, d, m)
		return aclReason(dropACL, i, d, p.family)
	}
	c.traced(stepACL, i, d, m)
	return noDrop
}

func (c *accessControl) traced(kind stepKind, i *iface, d direction, m ruleMatch) {
	if c.path != nil {
		c.path.add(traceStep{kind: kind, iface: i.index, acl: m.list, number: m.rule, output: d == outward})
	}
}

// aclReason returns the reason of a block of eight, which starts at first, for VPP's node of a packet.
func aclReason(first reason, i *iface, d direction, family uint8) reason {
	n := first + reason(d)*4 + reason(family)
	if i.l2.slot != 0 {
		n += 2
	}
	return n
}

// plainACL applies ACLs to the plain frames of a vector on the fast path, which neither opens sessions nor drops
// frames. The rules that permit a frame are counted at the end, because the full path decides again, and counts, if the
// frame does not stay on the fast path.
type plainACL struct {
	parsed  bool // the frame
	matched bool // rules are set
	timed   bool // now is set
	result  parseResult
	now     uint32
	packet  aclPacket
	rules   [2]ruleMatch // by direction
}

// plainFrame is a frame of which only the head is one piece of memory.
type plainFrame struct {
	head   []byte
	length int
}

// next starts another frame of the vector.
func (c *plainACL) next() {
	c.parsed = false
	c.matched = false
}

// permits reports whether a session, or a rule without Reflect, permits a frame.
func (c *plainACL) permits(w *worker, i *iface, d direction, f plainFrame) bool {
	if !c.parsed {
		var plain bool
		if c.result, plain = c.packet.parsePlain(f.head, f.length); !plain {
			return false
		}
		c.parsed = true
		c.packet.session.known = false
	}
	if c.result == otherFrame {
		return true
	}
	a := i.acl
	if a.sessions != nil {
		if !c.timed {
			c.now = w.acl.clock()
			c.timed = true
		}
		if of := a.sessions.pass(&c.packet, a, c.now); of != ofNoSession {
			return of == ofSession
		}
	}
	if len(a.lists[d]) == 0 {
		return true
	}
	m := a.match(d, &c.packet)
	if !c.matched {
		c.matched = true
		c.rules = [2]ruleMatch{}
	}
	c.rules[d] = m
	return m.action() == aclPermit
}

// count counts the rules that permitted the frame.
func (c *plainACL) count(in, out *iface, bytes int) {
	if !c.matched {
		return
	}
	if in.acl != nil {
		in.acl.count(c.rules[inward], bytes)
	}
	if out.acl != nil {
		out.acl.count(c.rules[outward], bytes)
	}
}

// egress applies the output ACLs and the policer to a frame that leaves by an interface.
func (w *worker) egress(b *frame.Buffer, d verdict) verdict {
	if d.out == nil || d.punt != 0 || d.out.acl == nil && d.out.policeOut == nil {
		return d
	}
	if d.out.acl != nil {
		if r := w.acl.verdict(d.out, outward, b.Bytes()); r != noDrop {
			return verdict{drop: r}
		}
	}
	if p := d.out.policeOut; p != nil && d.mtu == 0 && !w.police(p, d.out, b, dropPolicerOutput) {
		return verdict{drop: dropPolicerOutput}
	}
	return d
}

// aclPacket holds the fields of an IP packet that ACLs and sessions compare.
type aclPacket struct {
	flowWords
	upper   upperLayer
	family  uint8
	session packetKey // set by key
}

// Address families of rules.
const (
	acl4 = iota
	acl6
	families
)

// icmpOf is the protocol number of ICMP in each family.
var icmpOf = [families]uint8{frame.ProtocolICMP, frame.ProtocolICMPv6}

// upperLayer holds the fields of the upper layer header.
type upperLayer struct {
	protocol       uint8
	later          bool // not the first fragment
	first          bool // the first of several fragments
	hasPorts       bool // source and destination are valid
	hasFlags       bool // flags are valid
	flags          uint8
	source, target uint16 // ports, or ICMP type and code
	id             uint16 // of an ICMP echo
}

// isFragment is false for an atomic fragment of IPv6 (RFC 6946), which needs no reassembly.
func (u *upperLayer) isFragment() bool { return u.later || u.first }

// parseResult is the kind of a frame for ACLs.
type parseResult uint8

const (
	otherFrame      parseResult = iota // not IP, or too short for an Ethernet header
	tooManyTags                        // more than two VLAN tags
	malformedPacket                    // family alone is valid
	parsedPacket
)

// parse reads the headers of a frame.
func (p *aclPacket) parse(b []byte) parseResult {
	if len(b) < frame.EthernetLen {
		return otherFrame
	}
	kind, at := frame.Ethernet(b).Network()
	var valid bool
	switch kind {
	case frame.TypeIPv4:
		p.family = acl4
		valid = p.parse4(b[at:])
	case frame.TypeIPv6:
		p.family = acl6
		valid = p.parse6(b[at:])
	case frame.TypeVLAN, frame.TypeQinQ:
		return tooManyTags
	default:
		return otherFrame
	}
	if !valid {
		return malformedPacket
	}
	return parsedPacket
}

// parsePlain parses a frame of n bytes by its head h; false if it needs parse: fragments, and frames with tags, options
// or extension headers.
func (p *aclPacket) parsePlain(h []byte, n int) (result parseResult, plain bool) {
	const (
		ip4 = frame.EthernetLen + frame.IPv4Len
		ip6 = frame.EthernetLen + frame.IPv6Len
	)
	switch frame.Ethernet(h).Type() {
	case frame.TypeIPv4:
		if n < ip4+aclPortsLen || h[frame.EthernetLen] != 0x45 ||
			binary.BigEndian.Uint16(h[frame.EthernetLen+6:])&0x3fff != 0 ||
			int(binary.BigEndian.Uint16(h[frame.EthernetLen+2:])) < frame.IPv4Len+aclPortsLen {
			return malformedPacket, false
		}
		p.family = acl4
		p.addresses4(h[frame.EthernetLen:])
		p.readUpper(h[frame.EthernetLen+9], h[ip4:])
		return parsedPacket, true
	case frame.TypeIPv6:
		if n < ip6+aclPortsLen || frame.IsExtension(h[frame.EthernetLen+6]) ||
			binary.BigEndian.Uint16(h[frame.EthernetLen+4:]) < aclPortsLen {
			return malformedPacket, false
		}
		p.family = acl6
		p.addresses6(h[frame.EthernetLen:])
		p.readUpper(h[frame.EthernetLen+6], h[ip6:])
		return parsedPacket, true
	case frame.TypeVLAN, frame.TypeQinQ:
		return tooManyTags, false
	}
	return otherFrame, true
}

func (p *aclPacket) addresses4(ip []byte) {
	p.sourceHigh = 0
	p.targetHigh = 0
	p.sourceLow = uint64(binary.BigEndian.Uint32(ip[12:]))
	p.targetLow = uint64(binary.BigEndian.Uint32(ip[16:]))
}

func (p *aclPacket) addresses6(ip []byte) {
	p.sourceHigh = binary.BigEndian.Uint64(ip[8:])
	p.sourceLow = binary.BigEndian.Uint64(ip[16:])
	p.targetHigh = binary.BigEndian.Uint64(ip[24:])
	p.targetLow = binary.BigEndian.Uint64(ip[32:])
}

// aclPortsLen is the number of upper layer bytes that VPP requires in the packet before it matches ports.
const aclPortsLen = 8

// parse4 parses an IPv4 packet; false if the header is truncated, a length field is invalid, or the packet is a first
// fragment without the ports.
func (p *aclPacket) parse4(b []byte) bool {
	if len(b) < frame.IPv4Len {
		return false
	}
	ip := frame.IPv4(b)
	total := int(binary.BigEndian.Uint16(b[2:]))
	if ip.HeaderLen() < frame.IPv4Len || total < ip.HeaderLen() {
		return false
	}
	b = b[:min(len(b), total)] // the receiver ignores bytes behind the packet
	p.addresses4(b)
	p.upper = upperLayer{protocol: ip.Protocol(), later: ip.FragmentOffset() != 0}
	if p.upper.later {
		return true
	}
	at := ip.HeaderLen()
	if at+aclPortsLen > len(b) {
		return !ip.IsFragment()
	}
	p.readUpper(ip.Protocol(), b[at:])
	p.upper.first = ip.IsFragment()
	return true
}

// parse6 parses an IPv6 packet; false if the header is truncated, or the upper layer header is hidden: the chain of
// headers does not end, or continues in the next fragment. Some receivers find it, so a rule that denies a port must
// not be followed by one that permits all.
func (p *aclPacket) parse6(b []byte) bool {
	if len(b) < frame.IPv6Len {
		return false
	}
	b = b[:min(len(b), frame.IPv6Len+int(binary.BigEndian.Uint16(b[4:])))]
	p.addresses6(b)
	u, ends := frame.IPv6(b).Upper()
	p.upper = upperLayer{protocol: u.Protocol, later: u.Later}
	switch {
	case !ends:
		return false
	case u.Later:
		return true
	case u.Offset+aclPortsLen > len(b):
		return !u.Fragment
	}
	p.readUpper(u.Protocol, b[u.Offset:])
	p.upper.first = u.Fragment
	return true
}

// readUpper reads an upper layer of at least aclPortsLen bytes. It sets the fields one by one: a copy of the struct
// would wait until the processor has stored them.
func (p *aclPacket) readUpper(protocol uint8, b []byte) {
	u := &p.upper
	u.protocol = protocol
	u.hasPorts = true
	u.hasFlags = false
	u.later = false
	u.first = false
	u.source = 0
	u.target = 0
	u.id = 0
	u.flags = 0
	switch protocol {
	case icmpOf[p.family]:
		u.source = uint16(b[0])
		u.target = uint16(b[1])
		u.id = binary.BigEndian.Uint16(b[4:])
	case frame.ProtocolTCP, frame.ProtocolUDP, frame.ProtocolSCTP:
		u.source = binary.BigEndian.Uint16(b)
		u.target = binary.BigEndian.Uint16(b[2:])
		if protocol == frame.ProtocolTCP && len(b) > tcpFlagsAt {
			u.hasFlags = true
			u.flags = b[tcpFlagsAt]
		}
	}
	p.ports = uint32(u.source)<<16 | uint32(u.target)
}

// tcpFlagsAt is the offset of the flags in a TCP header.
const tcpFlagsAt = 13
