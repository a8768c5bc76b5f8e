package forward

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/weftnet/weft/vswitch/frame"
)

// flow describes a packet of a test.
type flow struct {
	source, target string
	protocol       uint8
	from, to       uint16 // ports, or ICMP type and identifier
	flags          uint8  // of TCP
	fragment       uint16 // offset in units of 8 bytes, and 0x2000 if more follow
}

func (f flow) with(flags uint8) flow {
	f.flags = flags
	return f
}

// frame returns the packet with an Ethernet header.
func (f flow) frame() []byte {
	upper := make([]byte, 20)
	binary.BigEndian.PutUint16(upper, f.from)
	binary.BigEndian.PutUint16(upper[2:], f.to)
	switch f.protocol {
	case frame.ProtocolTCP:
		upper[tcpFlagsAt] = f.flags
	case frame.ProtocolICMP, frame.ProtocolICMPv6:
		clear(upper[:4])
		upper[0] = uint8(f.from)
		binary.BigEndian.PutUint16(upper[4:], f.to)
	}
	source := netip.MustParseAddr(f.source)
	target := netip.MustParseAddr(f.target)
	fields := frame.IPFields{TTL: 64, Protocol: f.protocol, Source: source, Destination: target}
	if source.Is4() {
		b := make([]byte, frame.EthernetLen+frame.IPv4Len+len(upper))
		frame.PutEthernet(b, portMAC, podMAC, frame.TypeIPv4)
		fields.PayloadLen = len(upper)
		p := b[frame.EthernetLen:]
		frame.PutIPv4(p, fields)
		binary.BigEndian.PutUint16(p[6:], f.fragment)
		binary.BigEndian.PutUint16(p[10:], 0)
		binary.BigEndian.PutUint16(p[10:], frame.Checksum(p[:frame.IPv4Len]))
		copy(p[frame.IPv4Len:], upper)
		return b
	}
	if f.fragment != 0 {
		fields.Protocol = 44
		upper = append(fragmentHeader(f.protocol, f.fragment&0x1fff, f.fragment&0x2000 != 0), upper...)
	}
	b := make([]byte, frame.EthernetLen+frame.IPv6Len+len(upper))
	frame.PutEthernet(b, portMAC, podMAC, frame.TypeIPv6)
	fields.PayloadLen = len(upper)
	frame.PutIPv6(b[frame.EthernetLen:], fields)
	copy(b[frame.EthernetLen+frame.IPv6Len:], upper)
	return b
}

//nolint:revive // the fields of a rule
func allow(reflects bool, family int, source, target string, protocol uint8, ports ...uint16) ACLRule {
	all := []string{"0.0.0.0/0", "::/0"}[family]
	r := ACLRule{
		Permit:      true,
		Reflect:     reflects,
		Source:      netip.MustParsePrefix(all),
		Destination: netip.MustParsePrefix(all),
		Protocol:    protocol,
		Sources:     PortRange{0, 65535}, Destinations: PortRange{0, 65535},
	}
	if source != "" {
		r.Source = netip.MustParsePrefix(source)
	}
	if target != "" {
		r.Destination = netip.MustParsePrefix(target)
	}
	if len(ports) == 2 {
		r.Destinations = PortRange{ports[0], ports[1]}
	}
	return r
}

func denyAll(family int) ACLRule {
	r := allow(false, family, "", "", 0)
	r.Permit = false
	return r
}

// gate is an interface with ACLs, whose clock the test sets. Each packet takes the fast path and then the full path.
type gate struct {
	links  *links
	worker *worker
	vector plainACL
	began  moment // of the vector
	view   *view
	acl    accessControl
	iface  *iface
	now    uint32
}

func newGate(limit int) *gate {
	g := &gate{
		links: &links{draft: &draft{published: &published{workers: make([]*worker, 1)}}, sessionLimit: limit},
		view:  &view{},
		iface: &iface{},
		now:   1000,
	}
	g.acl = accessControl{view: g.view, clock: func() uint32 { return g.now }}
	g.worker = &worker{acl: g.acl}
	return g
}

// set sets the rules of both directions; nil: no ACL.
func (g *gate) set(input, output []ACLRule) {
	var a AccessLists
	if input != nil {
		a.Input = []*ACLFilter{NewACLFilter(1, "in", input)}
	}
	if output != nil {
		a.Output = []*ACLFilter{NewACLFilter(2, "out", output)}
	}
	next := *g.iface
	next.setAccessLists(a, g.links)
	g.iface = &next
}

func (g *gate) passes(d direction, f flow) bool {
	if g.iface.acl == nil {
		return true
	}
	raw := f.frame()
	if at := (moment{g.iface.acl.generation, g.now}); at != g.began {
		g.vector = plainACL{}
		g.began = at
	}
	g.vector.next()
	plain := g.vector.permits(g.worker, g.iface, d, plainFrame{raw, len(raw)})
	r := g.acl.verdict(g.iface, d, raw)
	if plain && r != noDrop {
		panic(fmt.Sprintf("only the fast path permits %+v", f))
	}
	g.view.drops[r].Add(1)
	return r == noDrop
}

// live returns the number of sessions, and checks that each is found.
func (g *gate) live(t interface{ Fatalf(string, ...any) }) (n int) {
	table := g.iface.acl.sessions
	for i := range table.shards {
		s := &table.shards[i]
		used := 0
		for n := range s.sessions[:s.used] {
			e := &s.sessions[n]
			if e.flags&inUse == 0 {
				continue
			}
			used++
			h := e.hash()
			if &table.shards[h>>(64-shardOrder)] != s || int(s.find(h, &e.sessionKey)) != n+1 {
				t.Fatalf("session %+v is not found", e)
			}
		}
		waiting := 0
		for n, older := s.oldest, uint16(0); n != 0; n = s.sessions[n-1].newer {
			if e := &s.sessions[n-1]; e.settled() || e.older != older || e.flags&inUse == 0 {
				t.Fatalf("session %+v is in the list of those that are not settled, after %d", e, older)
			}
			older = n
			waiting++
		}
		settled := 0
		for n := range s.sessions[:s.used] {
			if e := &s.sessions[n]; e.flags&inUse != 0 && e.settled() {
				settled++
			}
		}
		if settled+waiting != used {
			t.Fatalf("shard %d: %d sessions, %d settled and %d not", i, used, settled, waiting)
		}
		if used != int(s.live) {
			t.Fatalf("shard %d: %d sessions, %d counted", i, used, s.live)
		}
		n += used
	}
	return n
}

var tcpFlow = flow{source: "10.1.0.5", target: "10.2.0.9", protocol: 6, from: 40000, to: 443, flags: tcpSYN}

// connect completes a handshake of TCP whose opener sends in a direction.
func (g *gate) connect(d direction, f flow) bool {
	return g.passes(d, f.with(tcpSYN)) && g.passes(1-d, f.reversed().with(tcpSYN|tcpACK)) && g.passes(d, f.with(tcpACK))
}

func TestAnswersPassWithASessionOnly(t *testing.T) {
	for name, f := range map[string]flow{
		"TCP": tcpFlow, "UDP": {"10.1.0.5", "10.2.0.9", 17, 5000, 53, 0, 0}, "SCTP": {
			"10.1.0.5", "10.2.0.9", 132, 5000, 53, 0, 0,
		},
		"echo": {"10.1.0.5", "10.2.0.9", 1, 8, 77, 0, 0}, "GRE": {"10.1.0.5", "10.2.0.9", 47, 0, 0, 0, 0},
		"TCP of IPv6": {"fd01::5", "fd02::9", 6, 5000, 443, tcpSYN, 0}, "UDP of IPv6": {
			"fd02::5", "fd01::9", 17, 5000, 53, 0, 0,
		},
		"echo of IPv6": {"fd01::5", "fd02::9", 58, 128, 77, 0, 0}, "SCTP of IPv6": {
			"fd02::5", "fd01::9", 132, 5, 6, 0, 0,
		},
	} {
		for _, d := range []direction{inward, outward} {
			t.Run(fmt.Sprint(name, d), func(t *testing.T) {
				g := newGate(DefaultSessionLimit)
				lists := [2][]ACLRule{{denyAll(acl4), denyAll(acl6)}, {denyAll(acl4), denyAll(acl6)}}
				lists[d] = []ACLRule{allow(true, acl4, "", "", f.protocol), allow(true, acl6, "", "", f.protocol)}
				g.set(lists[inward], lists[outward])
				if g.passes(1-d, f.reversed()) {
					t.Error("an answer passes before there is a session")
				}
				if !g.passes(d, f) {
					t.Fatal("the first packet is dropped")
				}
				if !g.passes(1-d, f.reversed()) || !g.passes(d, f) {
					t.Error("a packet of the session is dropped")
				}
				other := f.reversed()
				if other.to++; g.passes(1-d, other) && f.protocol != 47 {
					t.Error("a packet of another flow passes")
				}
				g.now += transientTimeout + settledTimeout
				if g.passes(1-d, f.reversed()) {
					t.Error("an answer passes after the timeout")
				}
			})
		}
	}
}

func TestEchoRequestsOfTheAnsweringSideAreNotAnswers(t *testing.T) {
	g := newGate(DefaultSessionLimit)
	g.set([]ACLRule{allow(true, acl4, "", "", 1)}, []ACLRule{denyAll(acl4)})
	f := flow{"10.1.0.5", "10.2.0.9", 1, 8, 77, 0, 0}
	if !g.passes(inward, f) || !g.passes(outward, f.reversed()) {
		t.Fatal("the echo is dropped")
	}
	back := f.reversed()
	back.from = frame.ICMPEcho
	if g.passes(outward, back) {
		t.Error("a request of the other side passes")
	}
	if g.passes(outward, flow{"10.2.0.9", "10.1.0.5", 1, frame.ICMPUnreachable, 77, 0, 0}) {
		t.Error("an ICMP error passes without a rule")
	}
}

func TestSessionsFollowChangedLists(t *testing.T) {
	to := func(ports ...uint16) []ACLRule {
		return []ACLRule{allow(true, acl4, "", "", 6, ports...), denyAll(acl4)}
	}
	stays := tcpFlow
	ends := tcpFlow
	ends.to = 80
	for _, d := range []direction{inward, outward} {
		g := newGate(DefaultSessionLimit)
		set := func(rules []ACLRule) {
			lists := [2][]ACLRule{{denyAll(acl4)}, {denyAll(acl4)}}
			lists[d] = rules
			g.set(lists[inward], lists[outward])
		}
		set(to(1, 65535))
		if !g.connect(d, stays) || !g.connect(d, ends) {
			t.Fatal("no connection")
		}
		set(append([]ACLRule{allow(false, acl4, "", "10.2.0.9/32", 6, 443, 443)}, to(81, 442)...)) // without Reflect
		for _, f := range []flow{stays, stays.reversed()} {
			way := d
			if f == stays.reversed() {
				way = 1 - d
			}
			if !g.passes(way, f.with(tcpACK)) {
				t.Errorf("direction %d: the connection that stays permitted lost a packet", d)
			}
		}
		if g.passes(1-d, ends.reversed().with(tcpACK)) || g.passes(d, ends.with(tcpACK)) {
			t.Errorf("direction %d: the connection that is denied now continues", d)
		}
		set(to(1, 65535))
		if !g.passes(1-d, ends.reversed().with(tcpACK)) || !g.passes(d, ends.with(tcpACK)) {
			t.Errorf("direction %d: the connection that is permitted again lost a packet", d)
		}
	}
}

// The list of the other direction permits what the other side sends. That must not open the session again.
func TestDeniedConnectionEndsAlthoughTheOtherSideMaySend(t *testing.T) {
	open := []ACLRule{allow(true, acl4, "", "", 0)}
	for _, d := range []direction{inward, outward} {
		g := newGate(DefaultSessionLimit)
		set := func(rules []ACLRule) {
			lists := [2][]ACLRule{open, open}
			lists[d] = rules
			g.set(lists[inward], lists[outward])
		}
		set(open)
		if !g.connect(d, tcpFlow) {
			t.Fatal("no connection")
		}
		set([]ACLRule{denyAll(acl4)})
		for range 3 {
			if g.passes(1-d, tcpFlow.reversed().with(tcpACK)) || g.passes(d, tcpFlow.with(tcpACK)) {
				t.Errorf("direction %d: the denied connection continues", d)
			}
			g.now += tcpTimeout - 1
		}
		if g.passes(d, tcpFlow.with(tcpSYN)) {
			t.Errorf("direction %d: the denied side begins a connection", d)
		}
		if g.passes(1-d, tcpFlow.reversed().with(tcpACK)) || g.passes(d, tcpFlow.with(tcpACK)) {
			t.Errorf("direction %d: the denied connection continues after a SYN of the denied side", d)
		}
		if !g.connect(1-d, tcpFlow.reversed()) {
			t.Errorf("direction %d: the permitted side cannot begin a connection between the same ports", d)
		}
		g.live(t)
	}
}

func TestListsThatDoNotChangeKeepTheirGeneration(t *testing.T) {
	g := newGate(DefaultSessionLimit)
	f := NewACLFilter(1, "", []ACLRule{allow(true, acl4, "", "", 0)})
	g.iface.setAccessLists(AccessLists{Input: []*ACLFilter{f}}, g.links)
	first := g.iface.acl
	g.iface.setAccessLists(AccessLists{Input: []*ACLFilter{f}}, g.links)
	if g.iface.acl != first {
		t.Error("another generation of the same lists")
	}
	g.iface.setAccessLists(AccessLists{Output: []*ACLFilter{f}}, g.links)
	if g.iface.acl == first || g.iface.acl.generation == first.generation || g.iface.acl.sessions != first.sessions {
		t.Error("other lists have the same generation, or other sessions")
	}
}

func TestFragmentsPassWithTheirSession(t *testing.T) {
	for _, f := range []flow{{"10.1.0.5", "10.2.0.9", 17, 5000, 53, 0, 0}, {"fd01::5", "fd02::9", 17, 5000, 53, 0, 0}} {
		g := newGate(DefaultSessionLimit)
		g.set([]ACLRule{allow(true, acl4, "", "", 17), allow(true, acl6, "", "", 17)}, []ACLRule{
			denyAll(acl4), denyAll(acl6),
		})
		if !g.passes(inward, f) {
			t.Fatal("dropped")
		}
		first := f.reversed()
		later := f.reversed()
		first.fragment = 0x2000
		later.fragment = 3
		if g.passes(outward, later) {
			t.Error("a fragment passes before the first one")
		}
		if !g.passes(outward, f.reversed()) || !g.passes(outward, first) || !g.passes(outward, later) {
			t.Error("fragments of an answer are dropped")
		}
		other := later
		other.protocol = 6
		if g.passes(outward, other) {
			t.Error("a fragment of another protocol passes")
		}
		g.now += fragmentTimeout
		if g.passes(outward, later) {
			t.Error("a fragment passes after the timeout")
		}
	}
}

// The lists may change between two fragments of an answer. They decide about the fragments as about the session: by who
// opened it.
func TestFragmentsOfAnAnswerPassAfterTheListsHaveChanged(t *testing.T) {
	for _, f := range []flow{{"10.1.0.5", "10.2.0.9", 17, 5000, 53, 0, 0}, {"fd01::5", "fd02::9", 17, 5000, 53, 0, 0}} {
		g := newGate(DefaultSessionLimit)
		set := func() {
			input := []ACLRule{allow(true, acl4, "10.1.0.5/32", "", 17), allow(true, acl6, "fd01::5/128", "", 17)}
			g.set(input, []ACLRule{denyAll(acl4), denyAll(acl6)})
		}
		set()
		first := f.reversed()
		later := f.reversed()
		first.fragment = 0x2000
		later.fragment = 3
		if !g.passes(inward, f) || !g.passes(outward, first) {
			t.Fatal("dropped")
		}
		set()
		if !g.passes(outward, later) {
			t.Errorf("%s: the fragment is dropped", later.source)
		}
	}
}

func TestTimeoutsDependOnBothSides(t *testing.T) {
	answer := tcpFlow.reversed()
	udp := flow{"10.1.0.5", "10.2.0.9", 17, 5000, 53, 0, 0}
	step := func(d direction, f flow) func(*gate) bool { return func(g *gate) bool { return g.passes(d, f) } }
	established := func(g *gate) bool { return g.connect(inward, tcpFlow) }
	for name, c := range map[string]struct {
		steps []func(*gate) bool
		probe flow
		want  uint32
	}{
		"handshake": {
			[]func(*gate) bool{step(inward, tcpFlow), step(outward, answer.with(tcpSYN|tcpACK))}, answer,
			transientTimeout,
		},
		"established": {[]func(*gate) bool{established}, answer.with(tcpACK), tcpTimeout},
		"a stray SYN": {[]func(*gate) bool{established, step(inward, tcpFlow)}, answer.with(tcpACK), tcpTimeout},
		"half closed": {
			[]func(*gate) bool{established, step(inward, tcpFlow.with(tcpACK|tcpFIN))}, answer.with(tcpACK), tcpTimeout,
		},
		"closed": {
			[]func(*gate) bool{
				established, step(inward, tcpFlow.with(tcpACK|tcpFIN)), step(outward, answer.with(tcpACK|tcpFIN)),
			},
			answer, transientTimeout,
		},
		"reset": {
			[]func(*gate) bool{established, step(outward, answer.with(tcpRST))}, answer, transientTimeout,
		},
		"opened again": {
			[]func(*gate) bool{established, step(outward, answer.with(tcpRST)), established}, answer.with(tcpACK),
			tcpTimeout,
		},
		"UDP not answered": {[]func(*gate) bool{step(inward, udp)}, udp.reversed(), transientTimeout},
		"UDP answered": {
			[]func(*gate) bool{step(inward, udp), step(outward, udp.reversed())}, udp.reversed(), settledTimeout,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, late := range []bool{false, true} {
				g := newGate(DefaultSessionLimit)
				g.set([]ACLRule{allow(true, acl4, "", "", 0)}, []ACLRule{denyAll(acl4)})
				for _, do := range c.steps {
					if !do(g) {
						t.Fatal("dropped")
					}
				}
				g.now += c.want - 1
				if late {
					g.now++
				}
				if got := g.passes(outward, c.probe); got == late {
					t.Errorf("after %d seconds an answer passes: %t", g.now-1000, got)
				}
			}
		})
	}
}

// A flood of half-open connections replaces its own sessions, not established ones.
func TestFloodDoesNotReplaceEstablishedSessions(t *testing.T) {
	const limit = 1024
	g := newGate(limit)
	g.set([]ACLRule{denyAll(acl4)}, []ACLRule{allow(true, acl4, "", "", 6)})
	var established []flow
	for n := range limit / 4 {
		f := flow{"10.3.0.1", "10.1.0.5", 6, uint16(n + 1), 80, tcpSYN, 0}
		if !g.connect(outward, f) {
			t.Fatal("no connection")
		}
		established = append(established, f)
	}
	for n := range 20 * limit {
		f := flow{fmt.Sprintf("10.4.%d.%d", n>>8, n&255), "10.1.0.5", 6, uint16(n), 80, tcpSYN, 0}
		if !g.passes(outward, f) {
			t.Fatalf("connection %d is refused", n)
		}
		if n%limit == 0 {
			g.now++
		}
	}
	for _, f := range established {
		if !g.passes(inward, f.reversed().with(tcpACK)) {
			t.Fatal("an established session was replaced")
		}
	}
	if n := g.live(t); n > limit+limit/shardSlack+sessionShards {
		t.Errorf("%d sessions, the limit is %d", n, limit)
	}
	if g.view.drops[statReplaced].Load() == 0 {
		t.Error("replaced sessions are not counted")
	}
}

func TestFullTableDropsNewFlowsUntilSessionsAreIdle(t *testing.T) {
	const limit = 256
	g := newGate(limit)
	g.set([]ACLRule{denyAll(acl4)}, []ACLRule{allow(true, acl4, "", "", 6)})
	refused := 0
	for n := range 2 * limit {
		if !g.connect(outward, flow{"10.3.0.1", "10.1.0.5", 6, uint16(n + 1), 80, tcpSYN, 0}) {
			refused++
		}
	}
	if n := g.live(t); refused != 2*limit-n || n < limit || n > limit+limit/shardSlack+sessionShards {
		t.Errorf("%d sessions and %d refused connections, the limit is %d", n, refused, limit)
	}
	if got := g.view.drops[dropSessions+4].Load(); got != uint64(refused) {
		t.Errorf("%d drops counted, want %d", got, refused)
	}
	g.now += pressedTimeout
	if !g.connect(outward, flow{"10.3.0.2", "10.1.0.5", 6, 1, 80, tcpSYN, 0}) {
		t.Error("a connection is refused though all sessions are idle")
	}
}
