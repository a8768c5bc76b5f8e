package forward

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/vswitch/frame"
)

// classifier finds the first rule of a list that matches a packet. It is never changed.
//
// Rules are partitioned by family and protocol. In a large partition they are grouped by tuple: the lengths of both
// prefixes, and whether the source port is one. In each tuple one hash lookup finds the rules whose fields equal those
// of the packet under the tuple's masks (tuple space search; Srinivasan et al., "Packet Classification using Tuple
// Space Search", 1999; VPP's acl plugin does the same). Each candidate is compared as a whole, so that hash collisions
// and fields outside of the tuple are no problem. Of many rules with the same prefixes a portIndex finds the
// candidates. Ranges of ports make no tuples: a packet that no rule permits visits each tuple, and a few rules of a
// tenant had thousands.
type classifier struct {
	rules  []aclRule
	anyOf  [families]*partition      // rules for any protocol
	listed [families][256]*partition // rules for one protocol
}

// aclRule is a compiled rule.
type aclRule struct {
	sources, destinations PortRange
	tcpMask, tcpFlags     uint8
	action                aclAction
	hasProtocol           bool
	onlyWhole             bool          // it matches no fragments
	addresses             *aclAddresses // nil: any
}

type aclAddresses struct{ source, destination aclPrefix }

// aclPrefix is a prefix as words; an IPv4 prefix uses the low words only.
type aclPrefix struct{ high, low, highMask, lowMask uint64 }

// noRule is a number that no rule has.
const noRule = ^uint32(0)

// smallPartition is the number of rules that are compared one by one: a lookup in a tuple costs as much as some
// comparisons.
const smallPartition = 8

// partition holds rules of one family and protocol.
type partition struct {
	small  []uint32 // the rules if they are few, by number
	tuples []tuple  // by their first rules
	later  []tuple  // for fragments without ports
}

// tuple holds rules with the same lengths of prefixes.
type tuple struct {
	masks      tupleMasks
	first      uint32 // number of the first rule
	seed       uint64
	shift      uint8       // 64 - binary logarithm of the number of slots
	slots      []uint32    // start of each slot in candidates, with an end
	candidates []candidate // by slot and number of the (first) rule
	indexes    []portIndex
}

type tupleMasks struct {
	sourceHigh, sourceLow, targetHigh, targetLow uint64
	// source ports in the high bits; destination ports are not compared
	ports uint32
}

// candidate is the number of a rule or, with the bit isIndex, of a portIndex.
type candidate uint32

const isIndex candidate = 1 << 31

// newClassifier compiles rules of at most noRule entries.
func newClassifier(rules []ACLRule) *classifier {
	c := &classifier{rules: make([]aclRule, len(rules))}
	type group struct{ family, protocol int }
	numbers := map[group][]uint32{}
	for n, r := range rules {
		c.rules[n] = compileRule(r)
		g := group{acl4, -1}
		if r.Source.Addr().Is6() {
			g.family = acl6
		}
		if r.Protocol != 0 {
			g.protocol = int(r.Protocol)
		}
		numbers[g] = append(numbers[g], uint32(n))
	}
	for g, list := range numbers {
		p := c.newPartition(list)
		if g.protocol < 0 {
			c.anyOf[g.family] = p
		} else {
			c.listed[g.family][g.protocol] = p
		}
	}
	return c
}

func compileRule(r ACLRule) aclRule {
	c := aclRule{
		sources:      r.Sources,
		destinations: r.Destinations,
		tcpMask:      r.TCPMask,
		tcpFlags:     r.TCPFlags,
		hasProtocol:  r.Protocol != 0,
	}
	switch {
	case r.Reflect:
		c.action = aclReflect
	case r.Permit:
		c.action = aclPermit
	}
	c.onlyWhole = r.Permit && isNeverFragmented(&r)
	if r.Source.Bits() > 0 || r.Destination.Bits() > 0 {
		c.addresses = &aclAddresses{compilePrefix(r.Source), compilePrefix(r.Destination)}
	}
	return c
}

// isNeverFragmented reports whether a rule is for messages of ICMP that no host sends as fragments: errors, which fit
// the minimum MTU (RFC 1812 4.3.2.3, RFC 4443 2.4), redirects, and neighbour discovery (RFC 6980).
func isNeverFragmented(r *ACLRule) bool {
	is4 := r.Source.Addr().Is4()
	isWithin := func(ranges ...PortRange) bool {
		return slices.ContainsFunc(ranges, func(of PortRange) bool {
			return r.Sources.First >= of.First && r.Sources.Last <= of.Last
		})
	}
	switch {
	case is4 && r.Protocol == frame.ProtocolICMP:
		return isWithin(PortRange{3, 5}, PortRange{11, 12})
	case !is4 && r.Protocol == frame.ProtocolICMPv6:
		return isWithin(PortRange{0, 127}, PortRange{133, 137})
	}
	return false
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

func (c *classifier) newPartition(numbers []uint32) *partition {
	if len(numbers) <= smallPartition {
		return &partition{small: numbers}
	}
	ported := map[tupleMasks][]tupleEntry{}
	portless := map[tupleMasks][]tupleEntry{}
	hasSourcePort := false
	for _, n := range numbers {
		r := &c.rules[n]
		e := tupleEntry{rule: n}
		var m tupleMasks
		if a := r.addresses; a != nil {
			m = tupleMasks{a.source.highMask, a.source.lowMask, a.destination.highMask, a.destination.lowMask, 0}
			e.flowWords = flowWords{a.source.high, a.source.low, a.destination.high, a.destination.low, 0}
		}
		portless[m] = append(portless[m], e)
		if r.hasProtocol && r.sources.First == r.sources.Last {
			hasSourcePort = true
			m.ports = 0xffff << 16
			e.ports = uint32(r.sources.First) << 16
		}
		ported[m] = append(ported[m], e)
	}
	p := &partition{later: c.newTuples(portless)}
	p.tuples = p.later
	if hasSourcePort {
		p.tuples = c.newTuples(ported)
	}
	return p
}

// tupleEntry is a rule in a tuple.
type tupleEntry struct {
	flowWords
	rule uint32
}

// flowWords are the fields of a packet, or of a rule, that tuples compare.
type flowWords struct {
	sourceHigh, sourceLow, targetHigh, targetLow uint64
	ports                                        uint32 // source port in the high bits
}

// newTuples returns the tuples of entries, by their first rules.
func (c *classifier) newTuples(groups map[tupleMasks][]tupleEntry) []tuple {
	all := make([]tuple, 0, len(groups))
	for m, list := range groups {
		all = append(all, c.newTuple(m, list))
	}
	slices.SortFunc(all, func(a, b tuple) int { return cmp.Compare(a.first, b.first) })
	return all
}

// newTuple builds a tuple of entries, which are in the order of their rules.
func (c *classifier) newTuple(m tupleMasks, list []tupleEntry) tuple {
	t := tuple{masks: m, first: list[0].rule, seed: rand.Uint64()}
	alike := map[flowWords][]uint32{} // rules that differ in destination ports and flags only
	for _, e := range list {
		alike[e.flowWords] = append(alike[e.flowWords], e.rule)
	}
	order := bits.Len(uint(len(alike)))
	t.shift = uint8(64 - order)
	t.slots = make([]uint32, 1<<order+1)
	var placed []placedCandidate
	for _, e := range list {
		rules := alike[e.flowWords]
		switch {
		case len(rules) <= smallPartition:
			placed = append(placed, placedCandidate{t.slot(&e.flowWords), candidate(e.rule)})
		case rules[0] == e.rule: // where its first rule is, the index stands for all
			placed = append(placed, placedCandidate{t.slot(&e.flowWords), isIndex | candidate(len(t.indexes))})
			t.indexes = append(t.indexes, c.newPortIndex(rules))
		}
	}
	slices.SortStableFunc(placed, func(a, b placedCandidate) int { return cmp.Compare(a.slot, b.slot) })
	t.candidates = make([]candidate, len(placed))
	for n, p := range placed {
		t.slots[p.slot+1]++
		t.candidates[n] = p.candidate
	}
	for n := 1; n < len(t.slots); n++ {
		t.slots[n] += t.slots[n-1]
	}
	return t
}

// placedCandidate is a candidate with its slot.
type placedCandidate struct {
	slot      uint64
	candidate candidate
}

// slot returns the slot of a packet or a rule.
func (t *tuple) slot(w *flowWords) uint64 {
	h := t.seed
	if m := &t.masks; m.sourceHigh|m.targetHigh != 0 {
		h = mix(h, w.sourceHigh&m.sourceHigh)
		h = mix(h, w.targetHigh&m.targetHigh)
		h = mix(h, w.sourceLow&m.sourceLow)
		h = mix(h, w.targetLow&m.targetLow)
	} else { // IPv4, or low words of zeros
		h = mix(h, bits.RotateLeft64(w.sourceLow&m.sourceLow, 32)^w.targetLow&m.targetLow)
	}
	return mix(h, uint64(w.ports&t.masks.ports)) >> t.shift
}

// mix adds a word to a hash.
func mix(h, w uint64) uint64 {
	high, low := bits.Mul64(h^w, 0x9e3779b97f4a7c15)
	return high ^ low
}

// find returns the number of the first rule that matches a packet, or noRule.
func (c *classifier) find(p *aclPacket) uint32 {
	best := noRule
	if part := c.listed[p.family][p.upper.protocol]; part != nil && (p.upper.later || p.upper.hasPorts) {
		tuples := part.tuples
		if p.upper.later {
			tuples = part.later
		}
		best = c.first(part.small, tuples, p, best)
	}
	if part := c.anyOf[p.family]; part != nil {
		best = c.first(part.small, part.tuples, p, best)
	}
	return best
}

// first returns the first of some rules that matches a packet, or best if that comes before.
func (c *classifier) first(small []uint32, tuples []tuple, p *aclPacket, best uint32) uint32 {
	best = c.firstOf(p, best, small...)
	for i := range tuples {
		t := &tuples[i]
		if t.first >= best {
			return best
		}
		s := t.slot(&p.flowWords)
		for _, n := range t.candidates[t.slots[s]:t.slots[s+1]] {
			if n&isIndex == 0 {
				best = c.firstOf(p, best, uint32(n))
			} else {
				best = c.firstOf(p, best, t.indexes[n&^isIndex].candidates(p)...)
			}
		}
	}
	return best
}

// firstOf returns the first of some rules that matches a packet, or best if that comes before.
func (c *classifier) firstOf(p *aclPacket, best uint32, rules ...uint32) uint32 {
	for _, n := range rules {
		if n >= best {
			return best
		}
		if c.rules[n].matches(p) {
			return n
		}
	}
	return best
}

// matches compares a rule of the packet's family and protocol.
func (r *aclRule) matches(p *aclPacket) bool {
	if r.onlyWhole && p.upper.isFragment() {
		return false
	}
	if r.hasProtocol && !p.upper.later {
		u := &p.upper
		if u.source < r.sources.First || u.source > r.sources.Last || u.target < r.destinations.First ||
			u.target > r.destinations.Last ||
			u.hasFlags && u.flags&r.tcpMask != r.tcpFlags {
			return false
		}
	}
	return r.addresses == nil ||
		r.addresses.source.contains(p.sourceHigh, p.sourceLow) &&
			r.addresses.destination.contains(p.targetHigh, p.targetLow)
}
