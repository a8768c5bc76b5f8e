package forward

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/vswitch/frame"
)

// TestClassifierAgreesWithALinearSearch compares the rule that decides.
func TestClassifierAgreesWithALinearSearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := drawRules(t, 300)
		c := newClassifier(rules)
		for range 20 {
			f := drawFlow(t)
			f.fragment = rapid.SampledFrom([]uint16{0, 0, 0x2000, 5}).Draw(t, "fragment")
			raw := f.frame()
			upper := rapid.IntRange(0, 20).Draw(t, "length")
			raw = raw[:len(raw)-20+upper]
			var p aclPacket
			isHidden := f.fragment == 0x2000 && upper < aclPortsLen
			if result := p.parse(raw); (result == malformedPacket) != isHidden || result != parsedPacket && !isHidden {
				t.Fatalf("parsed as %d", result)
			}
			if isHidden {
				continue
			}
			want := slices.IndexFunc(rules, func(r ACLRule) bool {
				return (r.Source.Addr().Is6()) == (p.family == acl6) &&
					(r.Protocol == 0 || r.Protocol == p.upper.protocol && (p.upper.later || p.upper.hasPorts)) &&
					new(compileRule(r)).matches(&p)
			})
			if got := c.find(&p); int(int32(got)) != want {
				t.Fatalf("rule %d, want %d of %+v for %+v", int32(got), want, rules, f)
			}
		}
	})
}

// TestManyRulesForTheSameAddresses compares the rule that decides for all ports, and for fragments.
func TestManyRulesForTheSameAddresses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		protocol := rapid.SampledFrom([]uint8{frame.ProtocolICMP, frame.ProtocolTCP}).Draw(t, "protocol")
		conditional := rapid.IntRange(0, 30).Draw(t, "conditional rules")
		var rules []ACLRule
		for n := range rapid.IntRange(smallPartition+1, 60).Draw(t, "rules") {
			r := allow(rapid.Bool().Draw(t, "reflects"), acl4, "10.0.0.0/8", "", protocol)
			r.Permit = rapid.Bool().Draw(t, "is permitted")
			r.Destinations.First = rapid.Uint16Range(0, 30).Draw(t, "first port")
			r.Destinations.Last = rapid.Uint16Range(r.Destinations.First, 40).Draw(t, "last port")
			if n%7 == 3 {
				r.Destinations.Last = 65535
			}
			if n < conditional {
				r.Sources = rapid.SampledFrom([]PortRange{{3, 4}, {0, 65535}, {2, 3}, {7, 7}}).Draw(t, "sources")
				r.TCPMask = rapid.SampledFrom([]uint8{0, tcpSYN}).Draw(t, "mask")
				r.TCPFlags = r.TCPMask & rapid.Uint8().Draw(t, "flags")
			}
			rules = append(rules, r)
		}
		// Conditional rules are first in the list, or anywhere.
		if rapid.Bool().Draw(t, "mixed") {
			rules = rapid.Permutation(rules).Draw(t, "order")
		}
		c := newClassifier(rules)
		p := aclPacket{family: acl4}
		p.sourceLow = 10<<24 | 5
		for _, port := range append(numbersTo(42), 65534, 65535) {
			p.upper = upperLayer{
				protocol: protocol,
				hasPorts: true,
				target:   port,
				hasFlags: protocol == frame.ProtocolTCP,
			}
			p.upper.source = rapid.SampledFrom([]uint16{1, 3, 4, 7}).Draw(t, "source")
			p.upper.flags = rapid.SampledFrom([]uint8{0, tcpSYN}).Draw(t, "packet's flags")
			p.upper.first = rapid.Bool().Draw(t, "first fragment")
			p.upper.later = rapid.IntRange(0, 9).Draw(t, "later fragment") == 0
			p.ports = uint32(p.upper.source)<<16 | uint32(port)
			want := slices.IndexFunc(rules, func(r ACLRule) bool { return new(compileRule(r)).matches(&p) })
			if got := c.find(&p); int(int32(got)) != want {
				t.Fatalf("rule %d, want %d of %+v for %+v", int32(got), want, rules, p)
			}
		}
	})
}

func numbersTo(end uint16) (all []uint16) {
	for n := range end {
		all = append(all, n)
	}
	return all
}

// Rules of a policy of a tenant: all addresses of IPv6 but one, with a range of ports.
func TestFewRulesMakeFewTuples(t *testing.T) {
	except := netip.MustParseAddr("2001:db8::1")
	everything := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	var rules []ACLRule
	for length := 1; length <= 128; length++ {
		raw := except.As16()
		raw[(length-1)/8] ^= 0x80 >> ((length - 1) % 8)
		rules = append(rules, ACLRule{
			Permit:      true,
			Reflect:     true,
			Source:      netip.PrefixFrom(netip.AddrFrom16(raw), length).Masked(),
			Destination: everything,
			Protocol:    frame.ProtocolUDP, Sources: PortRange{0, 65535}, Destinations: PortRange{1, 65534},
		})
	}
	c := newClassifier(append(rules, ACLRule{Source: everything, Destination: everything}))
	if n := len(c.listed[acl6][frame.ProtocolUDP].tuples); n != 128 {
		t.Errorf("%d tuples, of which a denied packet visits each; want one for each length of prefixes", n)
	}
}

// Thousands of ranges of ports for the same addresses are a search, and not a comparison of each.
func TestRangesOfPortsAreSearched(t *testing.T) {
	var rules []ACLRule
	for n := range 10_000 {
		r := allow(true, acl4, "10.0.0.0/8", "", frame.ProtocolTCP)
		r.Destinations = PortRange{uint16(n), uint16(60_000 - 5*n/2)}
		rules = append(rules, r)
	}
	c := newClassifier(rules)
	tuples := c.listed[acl4][frame.ProtocolTCP].tuples
	if len(tuples) != 1 || len(tuples[0].indexes) != 1 {
		t.Fatalf("%d tuples", len(tuples))
	}
	x := tuples[0].indexes[0]
	if len(x.starts) > 2*len(rules)+1 || len(x.rules) > len(x.starts) {
		t.Errorf("%d intervals with %d candidates for %d rules", len(x.starts), len(x.rules), len(rules))
	}
}

func TestSettledSessionsAreRestored(t *testing.T) {
	g := newGate(DefaultSessionLimit)
	rules := []ACLRule{allow(true, acl4, "", "", 0), allow(true, acl6, "", "", 0)}
	deny := []ACLRule{denyAll(acl4), denyAll(acl6)}
	g.set(rules, deny)
	udp6 := flow{"fd02::5", "fd01::9", 17, 5000, 53, 0, 0}
	if !g.connect(inward, tcpFlow) || !g.passes(inward, udp6) || !g.passes(outward, udp6.reversed()) {
		t.Fatal("no sessions")
	}
	half := tcpFlow
	half.to = 8080
	g.passes(inward, half)
	g.now += 7
	all := g.iface.acl.sessions.settledSessions(g.now)
	if len(all) != 2 {
		t.Fatalf("sessions %+v", all)
	}
	for _, s := range all {
		if s.Idle != 7*time.Second || s.Output {
			t.Errorf("session %+v", s)
		}
	}
	for _, permitted := range []bool{true, false} {
		next := newGate(DefaultSessionLimit)
		next.now = 0
		next.set(rules, deny)
		if !permitted {
			next.set(append(slices.Clone(deny), rules[0]), deny)
		}
		for _, s := range append(all, Session{}, Session{
			Opener:   netip.IPv4Unspecified(),
			Peer:     netip.IPv6Unspecified(),
			Protocol: 6,
		}) {
			next.iface.acl.sessions.restore(s, next.now)
		}
		for _, f := range []flow{tcpFlow.with(tcpACK), udp6} {
			if got := next.passes(outward, f.reversed()); got != permitted {
				t.Errorf("an answer to %+v passes: %t, want %t", f, got, permitted)
			}
		}
		if next.passes(outward, half.reversed()) {
			t.Error("a half-open session was restored")
		}
	}
}

func TestWorkersShareSessions(t *testing.T) {
	g := newGate(512)
	g.links.workers = make([]*worker, 2)
	g.set([]ACLRule{allow(true, acl4, "", "", 0)}, []ACLRule{denyAll(acl4)})
	done := make(chan map[string]int)
	for id := range 4 {
		go func() {
			c := accessControl{view: &view{id: id}, clock: func() uint32 { return 1000 }}
			counts := map[string]int{}
			for n := range 5000 {
				f := flow{"10.1.0.5", "10.2.0.9", 17, uint16(n * (id + 1)), 53, 0, 0}
				if c.verdict(g.iface, inward, f.frame()) != noDrop {
					counts["refused"]++
				}
				c.verdict(g.iface, outward, f.reversed().frame())
			}
			done <- counts
		}()
	}
	sum := map[string]int{}
	for range 4 {
		for k, n := range maps.All(<-done) {
			sum[k] += n
		}
	}
	g.live(t)
}

// reversed returns the answer of a flow.
func (f flow) reversed() flow {
	f.source, f.target = f.target, f.source
	switch {
	case f.protocol == frame.ProtocolICMP && f.from == frame.ICMPEcho:
		f.from = frame.ICMPEchoReply
	case f.protocol == frame.ProtocolICMP && f.from == frame.ICMPEchoReply:
		f.from = frame.ICMPEcho
	case f.protocol == frame.ProtocolICMPv6 && f.from == frame.ICMP6EchoReply:
		f.from = frame.ICMP6Echo
	case f.protocol == frame.ProtocolICMPv6 && f.from == frame.ICMP6Echo:
		f.from = frame.ICMP6EchoReply
	case f.protocol != frame.ProtocolICMP && f.protocol != frame.ProtocolICMPv6:
		f.from, f.to = f.to, f.from
	}
	return f
}
