package policy

import (
	"cmp"
	"container/heap"
	"net/netip"
	"slices"
)

// index finds the first rule of a list that matches a connection: by a lookup for each length of prefix, and a search
// among the ports of the rules for that prefix. It never changes, except that it computes some parts at their first
// use.
type index struct {
	rules []Rule
	bits  [2][]int // by family: the lengths of prefixes
	at    map[netip.Prefix]*portIndex
}

// portIndex has the rules for a prefix.
type portIndex struct {
	rules    []int32 // in order
	allows   bool    // one of them allows something
	segments []segment
}

// segment has the first rule for a range of ports of a protocol.
type segment struct {
	PortRange
	rule int32
}

// fewRules is the number of rules that are compared one by one.
const fewRules = 8

func newIndex(rules []Rule) *index {
	x := &index{rules: rules, at: make(map[netip.Prefix]*portIndex)}
	for n := range rules {
		for _, p := range rules[n].Remotes {
			ports := x.at[p]
			if ports == nil {
				ports = &portIndex{}
				x.at[p] = ports
				f := familyOf(p.Addr())
				if at, has := slices.BinarySearch(x.bits[f], p.Bits()); !has {
					x.bits[f] = slices.Insert(x.bits[f], at, p.Bits())
				}
			}
			ports.rules = append(ports.rules, int32(n))
			ports.allows = ports.allows || rules[n].Action == Allow
		}
	}
	return x
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// containing calls f with the rules for each prefix that contains an address.
func (x *index) containing(a netip.Addr, f func(*portIndex)) {
	for _, bits := range x.bits[familyOf(a)] {
		if ports := x.at[netip.PrefixFrom(a, bits).Masked()]; ports != nil {
			f(ports)
		}
	}
}

// usualLengths is the number of lengths of prefixes for which a lookup counts once: IPv4 has no more.
const usualLengths = 33

// weight is how often a lookup counts in the limit of lookups.
func (x *index) weight() int {
	lengths := max(len(x.bits[0]), len(x.bits[1]), 1)
	return (lengths + usualLengths - 1) / usualLengths
}

// decide is List.Decide.
func (x *index) decide(remote netip.Addr, protocol uint8, port uint16) *Rule {
	best := int32(len(x.rules))
	x.containing(remote, func(ports *portIndex) {
		best = min(best, x.first(ports, protocol, port))
	})
	if int(best) == len(x.rules) {
		return &noRule
	}
	return &x.rules[best]
}

// mayAllow reports whether a rule allows something to an address.
func (x *index) mayAllow(remote netip.Addr) bool {
	may := false
	x.containing(remote, func(ports *portIndex) { may = may || ports.allows })
	return may
}

// first returns the number of the first rule for a port, or the number of all rules.
func (x *index) first(ports *portIndex, protocol uint8, port uint16) int32 {
	if len(ports.rules) <= fewRules {
		for _, n := range ports.rules {
			if portsContain(x.rules[n].Ports, protocol, port) {
				return n
			}
		}
		return int32(len(x.rules))
	}
	if ports.segments == nil {
		ports.segments = x.segmentsOf(ports.rules)
	}
	at, _ := slices.BinarySearchFunc(ports.segments, protocol, func(s segment, protocol uint8) int {
		return cmp.Or(cmp.Compare(s.Protocol, protocol), cmp.Compare(s.Last, port))
	})
	if at < len(ports.segments) && ports.segments[at].Protocol == protocol && ports.segments[at].Contains(port) {
		return ports.segments[at].rule
	}
	return x.firstOfAny(ports.rules) // no rule for ports matches
}

// firstOfAny returns the number of the first rule for any protocol, or the number of all rules.
func (x *index) firstOfAny(rules []int32) int32 {
	for _, n := range rules {
		if len(x.rules[n].Ports) == 0 {
			return n
		}
	}
	return int32(len(x.rules))
}

// segmentsOf divides the ports of all protocols that rules name into ranges with the same first rule, sorted.
func (x *index) segmentsOf(rules []int32) []segment {
	var all []segment // of rules with ports that come before all rules for any protocol
	limit := x.firstOfAny(rules)
	for _, n := range rules {
		if n > limit {
			break
		}
		for _, p := range x.rules[n].Ports {
			all = append(all, segment{p, n})
		}
	}
	slices.SortFunc(all, func(a, b segment) int { return comparePorts(a.PortRange, b.PortRange) })
	segments := []segment{}
	for len(all) > 0 {
		n := slices.IndexFunc(all, func(s segment) bool { return s.Protocol != all[0].Protocol })
		if n < 0 {
			n = len(all)
		}
		segments = append(segments, divide(all[:n])...)
		all = all[n:]
	}
	return segments
}

// divide returns the parts of sorted ranges of one protocol that do not overlap, each with the first rule that has it.
func divide(ranges []segment) []segment {
	var parts []segment
	var open byRule // ranges that began at or before the port that is divided now
	upTo := func(at, end int) {
		for at < end && len(open) > 0 {
			first := open[0]
			last := min(int(first.Last), end-1)
			if at <= last {
				parts = append(parts, segment{PortRange{first.Protocol, Range{uint16(at), uint16(last)}}, first.rule})
				at = last + 1
			}
			if at > int(first.Last) {
				heap.Pop(&open)
			}
		}
	}
	for n, r := range ranges {
		heap.Push(&open, r)
		end := 1 << 16
		if n+1 < len(ranges) {
			end = int(ranges[n+1].First)
		}
		upTo(int(r.First), end)
	}
	return parts
}

// byRule is a heap: its first segment has the first rule.
type byRule []segment

func (h byRule) Len() int           { return len(h) }
func (h byRule) Less(a, b int) bool { return h[a].rule < h[b].rule }
func (h byRule) Swap(a, b int)      { h[a], h[b] = h[b], h[a] }

// Push adds a segment, as container/heap requires.
func (h *byRule) Push(x any) { *h = append(*h, x.(segment)) }

// Pop removes the last segment, as container/heap requires.
func (h *byRule) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
