package forward

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// naive is a simple implementation of access lists and sessions.
type naive struct {
	lists    [2][]ACLRule
	sessions map[naiveKey]*naiveSession
}

type naiveKey struct {
	source, target string
	protocol       uint8
	from, to       uint16
}

type naiveSession struct {
	opener   flow
	way      direction
	seen     uint32
	acks     [2]bool // of the opener and the other side
	fins     [2]bool
	reset    bool
	answered bool
}

func (n *naive) rule(way direction, f flow) (permit, reflects bool) {
	for _, r := range n.lists[way] {
		source := netip.MustParseAddr(f.source)
		target := netip.MustParseAddr(f.target)
		a := f.from
		b := f.to
		if f.protocol == 1 || f.protocol == 58 {
			b = 0
		}
		if r.Source.Contains(source) && r.Destination.Contains(target) &&
			(r.Protocol == 0 || r.Protocol == f.protocol &&
				a >= r.Sources.First && a <= r.Sources.Last && b >= r.Destinations.First && b <= r.Destinations.Last) {
			return r.Permit, r.Reflect
		}
	}
	return false, false
}

func keyOf(f flow) naiveKey { return naiveKey{f.source, f.target, f.protocol, f.from, f.to} }

func (s *naiveSession) timeout() uint32 {
	switch s.opener.protocol {
	case 6:
		if s.acks == [2]bool{true, true} && s.fins != [2]bool{true, true} && !s.reset {
			return tcpTimeout
		}
	case 17, 47:
		if s.answered {
			return settledTimeout
		}
	}
	return transientTimeout
}

func (n *naive) passes(way direction, f flow, now uint32) bool {
	if n.lists[inward] == nil && n.lists[outward] == nil {
		return true
	}
	s := n.sessions[keyOf(f)]
	side := 0
	if s == nil {
		s = n.sessions[keyOf(f.reversed())]
		side = 1
	}
	if s != nil {
		permit, _ := n.rule(s.way, s.opener)
		switch {
		case now-s.seen >= s.timeout():
			delete(n.sessions, keyOf(s.opener))
		case permit || n.lists[s.way] == nil:
			s.note(side, f.flags, now)
			return true
		case f.protocol == 6 && (side == 0 || f.flags&(tcpSYN|tcpACK) != tcpSYN):
			s.seen = now
			return false
		default:
			delete(n.sessions, keyOf(s.opener))
		}
	}
	if n.lists[way] == nil {
		return true
	}
	permit, reflects := n.rule(way, f)
	isEcho := f.protocol != 1 && f.protocol != 58 || f.from == 8 && f.protocol == 1 || f.from == 128 && f.protocol == 58
	if reflects && isEcho && (f.protocol != 6 || f.flags&tcpRST == 0) {
		s := &naiveSession{opener: f, way: way}
		s.note(0, f.flags, now)
		n.sessions[keyOf(f)] = s
	}
	return permit
}

func (s *naiveSession) note(side int, flags uint8, now uint32) {
	if side == 0 && s.opener.protocol == 6 && flags&(tcpSYN|tcpACK) == tcpSYN && s.timeout() == transientTimeout {
		s.acks = [2]bool{}
		s.fins = [2]bool{}
		s.reset = false
	}
	s.seen = now
	s.answered = s.answered || side == 1
	s.acks[side] = s.acks[side] || flags&tcpACK != 0
	s.fins[side] = s.fins[side] || flags&tcpFIN != 0
	s.reset = s.reset || flags&tcpRST != 0
}

func drawFlow(t *rapid.T) flow {
	addresses := []string{"10.1.0.5", "10.1.0.6", "10.2.0.9", "192.0.2.1"}
	protocols := []uint8{6, 17, 1, 47}
	if rapid.Bool().Draw(t, "v6") {
		addresses = []string{"fd01::5", "fd01::6", "fd02::5", "2001:db8::1"}
		protocols = []uint8{6, 17, 58, 47}
	}
	f := flow{
		source:   rapid.SampledFrom(addresses).Draw(t, "source"),
		target:   rapid.SampledFrom(addresses).Draw(t, "target"),
		protocol: rapid.SampledFrom(protocols).Draw(t, "protocol"),
		from:     rapid.Uint16Range(1, 3).Draw(t, "from"),
		to:       rapid.Uint16Range(1, 3).Draw(t, "to"),
	}
	switch f.protocol {
	case 6:
		f.flags = rapid.SampledFrom([]uint8{tcpSYN, tcpSYN | tcpACK, tcpACK, tcpACK, tcpFIN | tcpACK, tcpRST}).Draw(t,
			"flags")
	case 1:
		f.from = rapid.SampledFrom([]uint16{8, 0, 3}).Draw(t, "type")
	case 47:
		f.from = 0
		f.to = 0 // no ports
	case 58:
		f.from = rapid.SampledFrom([]uint16{128, 129, 1}).Draw(t, "type")
	}
	return f
}

func drawRules(t *rapid.T, most int) []ACLRule {
	var rules []ACLRule
	for range rapid.IntRange(0, most).Draw(t, "rules") {
		prefixes := []string{"0.0.0.0/0", "10.1.0.5/32", "10.1.0.0/16", "10.0.0.0/8", "10.2.0.8/30", "192.0.2.1/32"}
		protocols := []uint8{0, 6, 17, 1, 47}
		if rapid.Bool().Draw(t, "v6 rule") {
			prefixes = []string{"::/0", "fd01::5/128", "fd01::/64", "fc00::/7", "fd02::/16", "2001:db8::/32"}
			protocols = []uint8{0, 6, 17, 58, 47}
		}
		r := ACLRule{Source: netip.MustParsePrefix(rapid.SampledFrom(prefixes).Draw(t, "from prefix")),
			Destination: netip.MustParsePrefix(rapid.SampledFrom(prefixes).Draw(t, "to prefix")),
			Protocol:    rapid.SampledFrom(protocols).Draw(t, "rule protocol")}
		switch rapid.IntRange(0, 3).Draw(t, "action") {
		case 0:
		case 1:
			r.Permit = true
		default:
			r.Permit = true
			r.Reflect = true
		}
		for _, ports := range []*PortRange{&r.Sources, &r.Destinations} {
			ports.Last = 65535
			if rapid.Bool().Draw(t, "ports") {
				ports.First = rapid.Uint16Range(0, 4).Draw(t, "first port")
				ports.Last = rapid.Uint16Range(ports.First, 200).Draw(t, "last port")
			}
		}
		rules = append(rules, r)
	}
	return rules
}

// TestSessionsAgreeWithASimpleImplementation sends random packets, changes lists and lets time pass.
func TestSessionsAgreeWithASimpleImplementation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGate(DefaultSessionLimit)
		n := &naive{sessions: map[naiveKey]*naiveSession{}}
		change := func() {
			for _, way := range []direction{inward, outward} {
				n.lists[way] = nil
				if rapid.IntRange(0, 4).Draw(t, "has a list") > 0 {
					n.lists[way] = append(drawRules(t, 30), denyAll(acl4))
				}
			}
			g.set(n.lists[inward], n.lists[outward])
			if g.iface.acl == nil {
				clear(n.sessions)
			}
		}
		change()
		var recent []flow
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 11).Draw(t, "step") {
			case 0:
				change()
			case 1:
				g.now += rapid.SampledFrom([]uint32{
					1, transientTimeout - 1, transientTimeout, settledTimeout, tcpTimeout - 1, tcpTimeout,
				}).Draw(t, "seconds")
			default:
				f := drawFlow(t)
				if len(recent) > 0 && rapid.Bool().Draw(t, "repeat") {
					f = rapid.SampledFrom(recent).Draw(t, "recent").with(f.flags)
					if rapid.Bool().Draw(t, "reverse") {
						f = f.reversed()
					}
				}
				if f.source == f.target {
					continue
				}
				recent = append(recent, f)
				way := rapid.SampledFrom([]direction{inward, outward}).Draw(t, "way")
				want := n.passes(way, f, g.now)
				if got := g.passes(way, f); got != want {
					t.Fatalf("direction %d: %+v passes: %t, want %t; lists %+v", way, f, got, want, n.lists)
				}
			}
		}
		if g.iface.acl != nil && g.iface.acl.sessions != nil {
			g.live(t)
		}
	})
}
