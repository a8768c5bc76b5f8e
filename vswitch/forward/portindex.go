package forward

import (
	"cmp"
	"container/heap"
	"slices"
	"sort"
)

// maxConditional is the number of rules with the same prefixes, and with conditions in addition to destination ports,
// up to which they are listed for each interval of ports. More are compared one by one.
const maxConditional = 16

// portIndex finds, of rules that differ in ports and flags only, those for a destination port. It divides the ports
// into intervals in which the same rules are candidates.
type portIndex struct {
	starts []uint16 // first port of each interval
	ends   []uint32 // end of each interval's rules in rules; they begin where those of the interval before end
	rules  []uint32 // candidates, by interval and number: up to the first rule that matches all packets of the interval
	later  []uint32 // candidates for fragments without ports
}

// newPortIndex indexes rules, which are in order.
func (c *classifier) newPortIndex(numbers []uint32) portIndex {
	var x portIndex
	conditional := 0
	for _, n := range numbers {
		if c.rules[n].isConditional() {
			conditional++
		}
	}
	for _, n := range numbers {
		x.later = append(x.later, n)
		if !c.rules[n].onlyWhole {
			break
		}
	}
	if conditional > maxConditional {
		x.starts = []uint16{0}
		x.rules = numbers
		x.ends = []uint32{uint32(len(numbers))}
		return x
	}
	c.sweep(&x, numbers)
	return x
}

// isConditional reports whether the rule may not match a whole packet with its protocol, its prefixes and one of its
// destination ports.
func (r *aclRule) isConditional() bool {
	return r.hasProtocol &&
		(r.sources != PortRange{0, 65535} && r.sources.First != r.sources.Last || r.tcpMask != 0 || r.onlyWhole)
}

// portEvent is a port from which on a rule applies, or does not apply any more.
type portEvent struct {
	port uint32
	rule uint32
	ends bool
}

// sweep divides the ports into intervals.
func (c *classifier) sweep(x *portIndex, numbers []uint32) {
	var events []portEvent
	for _, n := range numbers {
		ports := PortRange{0, 65535}
		if c.rules[n].hasProtocol {
			ports = c.rules[n].destinations
		}
		events = append(events, portEvent{uint32(ports.First), n, false}, portEvent{uint32(ports.Last) + 1, n, true})
	}
	slices.SortFunc(events, func(a, b portEvent) int { return cmp.Compare(a.port, b.port) })
	applying := newApplying(c)
	for at := uint32(0); at <= 65535; {
		for len(events) > 0 && events[0].port == at {
			applying.change(events[0])
			events = events[1:]
		}
		x.add(uint16(at), applying.candidates())
		if len(events) == 0 {
			return
		}
		at = events[0].port
	}
}

// add adds an interval that begins at a port, unless it has the candidates of the one before.
func (x *portIndex) add(first uint16, candidates []uint32) {
	if n := len(x.starts); n > 0 && slices.Equal(x.interval(n-1), candidates) {
		return
	}
	x.starts = append(x.starts, first)
	x.rules = append(x.rules, candidates...)
	x.ends = append(x.ends, uint32(len(x.rules)))
}

// interval returns the candidates of an interval.
func (x *portIndex) interval(n int) []uint32 {
	begin := uint32(0)
	if n > 0 {
		begin = x.ends[n-1]
	}
	return x.rules[begin:x.ends[n]]
}

// candidates returns the rules that may match a packet, in order. The first interval begins at port 0.
func (x *portIndex) candidates(p *aclPacket) []uint32 {
	if p.upper.later {
		return x.later
	}
	port := p.upper.target
	after := sort.Search(len(x.starts), func(n int) bool { return x.starts[n] > port })
	return x.interval(after - 1)
}

// applying are the rules that apply at a port, during a sweep.
type applying struct {
	classifier  *classifier
	conditional []uint32        // in order
	others      ruleHeap        // also ended ones
	ended       map[uint32]bool // of the heap
}

func newApplying(c *classifier) *applying { return &applying{classifier: c, ended: map[uint32]bool{}} }

// change begins or ends a rule.
func (a *applying) change(e portEvent) {
	if !a.classifier.rules[e.rule].isConditional() {
		if e.ends {
			a.ended[e.rule] = true
		} else {
			heap.Push(&a.others, e.rule)
		}
		return
	}
	at, _ := slices.BinarySearch(a.conditional, e.rule)
	if e.ends {
		a.conditional = slices.Delete(a.conditional, at, at+1)
	} else {
		a.conditional = slices.Insert(a.conditional, at, e.rule)
	}
}

// candidates returns the conditional rules before the first other one, and that one.
func (a *applying) candidates() []uint32 {
	for len(a.others) > 0 && a.ended[a.others[0]] {
		heap.Pop(&a.others)
	}
	if len(a.others) == 0 {
		return a.conditional
	}
	first := a.others[0]
	before, _ := slices.BinarySearch(a.conditional, first)
	return append(slices.Clone(a.conditional[:before]), first)
}

// ruleHeap has the rule with the lowest number first.
type ruleHeap []uint32

func (h ruleHeap) Len() int           { return len(h) }
func (h ruleHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h ruleHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *ruleHeap) Push(rule any)     { *h = append(*h, rule.(uint32)) }
func (h *ruleHeap) Pop() any {
	last := len(*h) - 1
	rule := (*h)[last]
	*h = (*h)[:last]
	return rule
}
