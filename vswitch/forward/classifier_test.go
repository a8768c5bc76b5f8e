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
				return (r.Source.Addr().Is6()) == (p.family == acl6) && (r.Protocol == 0 || r.Protocol == p.upper.protocol && (p.upper.later || p.upper.hasPorts)) &&
					new(compileRule(r)).matches(&p)
			})
			if got := c.find(&p); int(int32(got)) != want {
				t.Fatalf("rule %d, want %d of %+v for %+v", int32(got), want, rules, f)
			}
		}
	})
}

func TestPortBlocksCoverTheRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := PortRange{First: rapid.Uint16().Draw(t, "first")}
		r.Last = rapid.Uint16Range(r.First, 65535).Draw(t, "last")
		blocks := slices.Collect(portBlocks(r))
		if len(blocks) > 30 {
			t.Errorf("%d blocks", len(blocks))
		}
		for n := range 65536 {
			in := 0
			for _, b := range blocks {
				if uint16(n)&b.mask == b.first {
					in++
				}
			}
			if want := uint16(n) >= r.First && uint16(n) <= r.Last; (in == 1) != want || in > 1 {
				t.Fatalf("port %d is in %d blocks of %v", n, in, r)
			}
		}
	})
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
		for _, s := range append(all, Session{}, Session{Opener: netip.IPv4Unspecified(), Peer: netip.IPv6Unspecified(), Protocol: 6}) {
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
	g.engine.workers = make([]*worker, 2)
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
