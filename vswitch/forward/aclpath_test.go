package forward

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/slow"
)

// accessCase connects interfaces 1 and 2 of a segment.
type accessCase struct {
	name  string
	setUp func(testing.TB) *segment
	node  string // of the drops by output ACLs of IPv4
}

// accessCases are a bridge domain and a router.
var accessCases = []accessCase{
	{"bridged", func(tb testing.TB) *segment {
		s := newSegment(tb, plain(1, 1, 2))
		s.learnHosts()
		return s
	}, "acl-plugin-out-ip4-l2"},
	{"routed", func(tb testing.TB) *segment {
		s := newSegment(tb)
		s.routeHosts()
		return s
	}, "acl-plugin-out-ip4-fa"},
}

// learnHosts makes a bridge domain learn host 1 on interface 1 and host 2 on interface 2.
func (s *segment) learnHosts() {
	s.reached(1, host(1), frame.Broadcast)
	s.reached(2, host(2), frame.Broadcast)
}

// routeHosts routes 10.1.0.0/16 and fd01::/16 to interface 1 and the others to interface 2.
func (s *segment) routeHosts() {
	for index, own := range map[uint32][]string{1: {"10.1.0.1", "fd01::1"}, 2: {"10.2.0.1", "fd02::1"}} {
		s.set(index, s.routed(own))
		for n, prefix := range []string{own[0] + "/16", own[1] + "/16"} {
			p := netip.MustParsePrefix(prefix).Masked()
			next := netip.MustParseAddr([]string{"10.0.0.9", "fe80::9"}[n])
			if err := s.engine.SetRoute(TableKey{Family: FamilyOf(p.Addr())}, p, Route{
				Paths: []Path{{Interface: index, NextHop: next}},
			}); err != nil {
				s.tb.Fatal(err)
			}
			if err := s.engine.SetNeighbour(index, next, host(byte(index)), true); err != nil {
				s.tb.Fatal(err)
			}
		}
	}
	s.engine.Publish()
}

func (s *segment) routed(own []string) Interface {
	return Interface{
		Up:         true,
		MAC:        portMAC,
		Addresses:  []netip.Addr{netip.MustParseAddr(own[0]), netip.MustParseAddr(own[1])},
		IP6Enabled: true,
	}
}

// setACLs sets the ACLs of interface 1, the pod's; nil: none.
func (s *segment) setACLs(input, output []ACLRule) {
	i := Interface{Up: true, MAC: portMAC}
	if s.engine.live.Load().iface(1).l2.slot == 0 {
		i = s.routed([]string{"10.1.0.1", "fd01::1"})
	}
	i.ACL.Count = true
	if input != nil {
		i.ACL.Input = []*ACLFilter{NewACLFilter(3, "weft:policy:in", input)}
	}
	if output != nil {
		i.ACL.Output = []*ACLFilter{NewACLFilter(4, "weft:policy:out", output)}
	}
	s.set(1, i)
	s.engine.Publish()
}

// sends reports whether a frame from interface 1 reaches interface 2, or the reverse.
func (s *segment) sends(from uint32, f flow) bool {
	raw := f.frame()
	to := host(byte(3 - from))
	source := host(byte(from))
	if s.engine.live.Load().iface(1).l2.slot == 0 {
		to = portMAC
	}
	copy(raw, to[:])
	copy(raw[6:], source[:])
	return len(s.receive(from, raw, frame.Virtio{})) == 1
}

// accessFlows are of the pod at interface 1.
var accessFlows = map[string]flow{
	"TCP": {"10.1.0.5", "10.2.0.9", 6, 40000, 443, tcpSYN, 0}, "UDP": {"10.1.0.5", "10.2.0.9", 17, 5000, 53, 0, 0},
	"TCP of IPv6": {"fd01::5", "fd02::9", 6, 40000, 443, tcpSYN, 0}, "echo of IPv6": {
		"fd01::5", "fd02::9", 58, 128, 77, 0, 0,
	},
}

func TestAccessListsOfBothDirectionsApply(t *testing.T) {
	permit := []ACLRule{allow(true, acl4, "", "", 0), allow(true, acl6, "", "", 0)}
	deny := []ACLRule{denyAll(acl4), denyAll(acl6)}
	for _, c := range accessCases {
		for name, f := range accessFlows {
			t.Run(c.name+" "+name, func(t *testing.T) {
				s := c.setUp(t)
				for step, want := range []struct {
					input, output       []ACLRule
					out, answer, asking bool // a flow of the pod, its answer, and a flow to the pod before it
				}{
					{nil, nil, true, true, true},
					{permit, deny, true, true, false},
					{deny, permit, false, true, true},
					{deny, deny, false, false, false},
					{nil, deny, true, false, false},
					{deny, nil, false, true, true},
				} {
					s.setACLs(nil, nil)
					s.setACLs(want.input, want.output)
					other := f.reversed()
					if f.protocol == frame.ProtocolICMPv6 {
						other.from = frame.ICMP6Echo
					} else {
						other.from = other.from + 1
						other.to = other.to + 1
					}
					if got := s.sends(2, other); got != want.asking {
						t.Errorf("step %d: a flow to the pod passes: %t", step, got)
					}
					if got := s.sends(1, f); got != want.out {
						t.Errorf("step %d: a flow of the pod passes: %t", step, got)
					}
					for range 3 { // the first may take the full path
						if got := s.sends(2, f.reversed().with(tcpACK)); got != want.answer {
							t.Errorf("step %d: an answer passes: %t", step, got)
						}
						// A packet that looks like an answer opens a session of the outer side, unless it is the reply
						// to an echo.
						later := want.out ||
							want.output != nil && want.output[0].Reflect && f.protocol != frame.ProtocolICMPv6
						if got := s.sends(1, f.with(tcpACK)); got != later {
							t.Errorf("step %d: another packet of the pod passes: %t", step, got)
						}
					}
				}
			})
		}
	}
}

func TestDropsOfOutputACLsAreCounted(t *testing.T) {
	for _, c := range accessCases {
		s := c.setUp(t)
		s.setACLs(nil, []ACLRule{denyAll(acl4)})
		before := s.engine.Counters(2).Drops
		s.sends(2, accessFlows["UDP"].reversed())
		if got := s.engine.Drops()[c.node+"/ACL deny packets"]; got != 1 {
			t.Errorf("%s: drops %v", c.name, s.engine.Drops())
		}
		if got := s.engine.Counters(2).Drops - before; got != 1 {
			t.Errorf("%s: %d drops of the receiving interface", c.name, got)
		}
		if got := s.engine.live.Load().iface(1).acl.Output[0].Hits(); got[0].Packets != 1 || got[0].Bytes == 0 {
			t.Errorf("%s: hits %v", c.name, got)
		}
	}
}

// TestHitsAreCountedOnce sends frames that the input ACL of the fast path permits and the output ACL sends to the full
// path.
func TestHitsAreCountedOnce(t *testing.T) {
	for _, c := range accessCases {
		s := c.setUp(t)
		s.setACLs([]ACLRule{denyAll(acl6), allow(false, acl4, "", "", 17)}, nil)
		two := Interface{Up: true, MAC: portMAC}
		if c.name == "routed" {
			two = s.routed([]string{"10.2.0.1", "fd02::1"})
		}
		two.ACL = AccessLists{Output: []*ACLFilter{NewACLFilter(5, "", []ACLRule{denyAll(acl4)})}, Count: true}
		for n, rules := range [][]ACLRule{
			nil, {denyAll(acl4)}, {allow(false, acl4, "", "", 17)}, {allow(true, acl4, "", "", 17)},
		} {
			two.ACL.Output = nil
			if rules != nil {
				two.ACL.Output = []*ACLFilter{NewACLFilter(5, "", rules)}
			}
			s.set(2, two)
			s.engine.Publish()
			for range 4 {
				s.sends(1, accessFlows["UDP"])
			}
			if got := s.engine.live.Load().iface(1).acl.Input[0].Hits(); got[0].Packets != 0 ||
				got[1].Packets != uint64(4*(n+1)) {
				t.Errorf("%s: hits %v after %d packets", c.name, got, 4*(n+1))
			}
		}
		if got := two.ACL.Output[0].Hits()[0].Packets; got != 1 {
			t.Errorf("%s: %d hits of a rule that opens a session", c.name, got)
		}
	}
}

// TestRulesCountTheirOwnFramesOfAVector sends vectors of frames that a rule without sessions permits and frames of a
// session.
func TestRulesCountTheirOwnFramesOfAVector(t *testing.T) {
	for _, c := range accessCases {
		s := c.setUp(t)
		s.setACLs([]ACLRule{allow(false, acl4, "", "", 17, 53, 53), allow(true, acl4, "", "", 17)}, nil)
		two := Interface{Up: true, MAC: portMAC}
		if c.name == "routed" {
			two = s.routed([]string{"10.2.0.1", "fd02::1"})
		}
		two.ACL = AccessLists{
			Output: []*ACLFilter{NewACLFilter(5, "", []ACLRule{allow(false, acl4, "", "", 17)})},
			Count:  true,
		}
		s.set(2, two)
		s.engine.Publish()
		raw := accessFlows["UDP"].frame()
		to := portMAC
		source := host(1)
		if c.name == "bridged" {
			to = host(2)
		}
		copy(raw, to[:])
		copy(raw[6:], source[:])
		port := 53
		s.ports[1].each = func(b []byte) {
			b[37] = byte(port)
			port = 107 - port // 53 and 54
		}
		s.run(1, raw, 20)
		if got := s.engine.live.Load().iface(1).acl.Input[0].Hits(); got[0].Packets != 10 || got[1].Packets != 1 {
			t.Errorf("%s: hits %v", c.name, got)
		}
		if got := two.ACL.Output[0].Hits()[0].Packets; got != 20 {
			t.Errorf("%s: %d hits of the output ACL", c.name, got)
		}
	}
}

func TestFloodedFramesPassTheOutputACLOfEachMember(t *testing.T) {
	s := newSegment(t, plain(1, 1, 2, 3))
	s.setACLs(nil, []ACLRule{denyAll(acl4)})
	raw := accessFlows["UDP"].reversed().frame()
	source := host(2)
	copy(raw, frame.Broadcast[:])
	copy(raw[6:], source[:])
	var got []uint32
	for _, d := range s.receive(2, raw, frame.Virtio{}) {
		got = append(got, d.on)
	}
	if !slices.Equal(got, []uint32{3}) {
		t.Errorf("sent to %v", got)
	}
	if n := len(s.receive(2, between(host(2), frame.Broadcast), frame.Virtio{})); n != 2 {
		t.Errorf("a frame without IP was sent to %d members", n)
	}
}

func TestSessionsAllocateNothing(t *testing.T) {
	s := accessCases[1].setUp(t)
	s.setACLs([]ACLRule{allow(true, acl4, "", "", 0)}, []ACLRule{denyAll(acl4)})
	s.ports[1].show = nil
	s.ports[2].show = nil
	raw := accessFlows["UDP"].frame()
	copy(raw, portMAC[:])
	port := uint16(0)
	if n := allocations(2000, func() {
		port++
		raw[34] = byte(port >> 8)
		raw[35] = byte(port)
		s.run(1, raw, 1)
	}); n != 0 {
		t.Errorf("%v allocations for a new session", n)
	}
	if got := s.engine.Drops()["acl-plugin-in-ip4-fa/new sessions added"]; got < 2000 {
		t.Errorf("%d sessions", got)
	}
}

func TestTracesNameTheRule(t *testing.T) {
	for _, c := range accessCases {
		s := c.setUp(t)
		s.setACLs([]ACLRule{denyAll(acl6), allow(true, acl4, "", "", 17, 53, 53), denyAll(acl4)}, []ACLRule{
			denyAll(acl4),
		})
		var paths []string
		s.serve(func() { s.engine.StartTrace(VirtioInput, 10) })
		denied := accessFlows["UDP"]
		denied.to = 54
		s.sends(1, denied)
		s.sends(1, accessFlows["UDP"])
		s.sends(2, accessFlows["UDP"].reversed())
		s.sends(2, denied.reversed())
		s.sends(1, accessFlows["TCP of IPv6"])
		s.serve(func() { paths = s.engine.TracePaths(func(uint32) string { return "pod" })[0] })
		for n, want := range [][]string{
			{"acl-plugin-in\n  pod: denied by rule 2 of ACL 3 (weft:policy:in)", "error-drop", "ACL deny packets"},
			{"acl-plugin-in\n  pod: permitted by rule 1 of ACL 3 (weft:policy:in)", "pod-output"},
			{"acl-plugin-out\n  pod: permitted by a session", "pod-output"},
			{
				"acl-plugin-out\n  pod: denied by rule 0 of ACL 4 (weft:policy:out)", "error-drop",
				c.node + ": ACL deny packets",
			},
			{"acl-plugin-in\n  pod: denied by rule 0 of ACL 3 (weft:policy:in)", "error-drop"},
		} {
			if len(paths) != 5 {
				t.Fatalf("%d paths", len(paths))
			}
			for _, part := range want {
				if !strings.Contains(paths[n], part) {
					t.Errorf("%s: path %d does not contain %q:\n%s", c.name, n, part, paths[n])
				}
			}
		}
	}
}

func TestTraceSaysThatNoRuleMatches(t *testing.T) {
	s := accessCases[0].setUp(t)
	s.setACLs([]ACLRule{allow(true, acl6, "", "", 0)}, nil)
	var paths []string
	s.serve(func() { s.engine.StartTrace(VirtioInput, 1) })
	s.sends(1, accessFlows["UDP"])
	s.serve(func() { paths = s.engine.TracePaths(func(uint32) string { return "pod" })[0] })
	if len(paths) != 1 || !strings.Contains(paths[0], "pod: denied by no rule of the ACLs") {
		t.Errorf("paths %q", paths)
	}
}

// TestPacketsOfTheDataplaneAreFiltered sends an expired packet to the pod's gateway: its ICMP error passes the pod's
// output ACL only if a rule permits it.
func TestPacketsOfTheDataplaneAreFiltered(t *testing.T) {
	for _, permitted := range []bool{false, true} {
		s := accessCases[1].setUp(t)
		output := []ACLRule{denyAll(acl4)}
		if permitted {
			output = append([]ACLRule{allow(false, acl4, "", "", 1)}, output...)
		}
		s.setACLs(nil, output)
		raw := flow{"10.2.0.9", "10.1.0.5", 1, frame.ICMPTimeExceeded, 0, 0, 0}.frame()
		m := s.engine.workers[0].slow.fromSlow.Reserve()
		m.Fill(raw)
		m.Reason = slow.Output
		m.Out = 1
		s.engine.workers[0].slow.fromSlow.Commit()
		s.seen = nil
		s.worker.round()
		if got := len(s.seen) == 1; got != permitted {
			t.Errorf("sent: %t, want %t", got, permitted)
		}
	}
}

// TestPacketsOfTheDataplaneAreNotSentByAnInterfaceThatIsDown sets an interface down while the slow path has a frame for
// it, such as one that waited for a neighbour.
func TestPacketsOfTheDataplaneAreNotSentByAnInterfaceThatIsDown(t *testing.T) {
	for _, up := range []bool{true, false} {
		s := accessCases[1].setUp(t)
		i := s.routed([]string{"10.1.0.1", "fd01::1"})
		i.Up = up
		s.set(1, i)
		s.engine.Publish()
		m := s.engine.workers[0].slow.fromSlow.Reserve()
		m.Fill(flow{"10.2.0.9", "10.1.0.5", 17, 53, 5000, 0, 0}.frame())
		m.Reason = slow.Output
		m.Out = 1
		s.engine.workers[0].slow.fromSlow.Commit()
		s.seen = nil
		s.worker.round()
		if got := len(s.seen) == 1; got != up {
			t.Errorf("up %t, sent %t", up, got)
		}
	}
}
