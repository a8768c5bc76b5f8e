package forward

import (
	"fmt"
	"testing"
)

// seeded makes the hashes of sessions those of a seed until the test ends.
func seeded(t *testing.T, seed uint64) {
	t.Helper()
	random := sessionSeed
	sessionSeed = seed
	t.Cleanup(func() { sessionSeed = random })
}

// crowd is a gate whose table clients fill.
type crowd struct {
	*gate
	way direction // in which the clients open sessions
}

const crowdLimit = 1024

func newCrowd(way direction) *crowd {
	g := newGate(crowdLimit)
	lists := [2][]ACLRule{{denyAll(acl4)}, {denyAll(acl4)}}
	lists[way] = []ACLRule{allow(true, acl4, "", "", 0)}
	g.set(lists[inward], lists[outward])
	return &crowd{g, way}
}

// ask sends a UDP request of a client, which is answered.
func (c *crowd) ask(client string, port uint16) bool {
	f := flow{client, "10.1.0.5", 17, port, 53, 0, 0}
	return c.passes(c.way, f) && c.passes(1-c.way, f.reversed())
}

// connects opens a TCP connection of a client.
func (c *crowd) connects(client string, port uint16) bool {
	return c.connect(c.way, flow{client, "10.1.0.5", 6, port, 80, tcpSYN, 0})
}

// isOpen reports whether a packet of the pod passes in a connection of a client.
func (c *crowd) isOpen(client string, port uint16) bool {
	return c.passes(1-c.way, flow{client, "10.1.0.5", 6, port, 80, tcpACK, 0}.reversed())
}

// One client fills the table with answered UDP sessions. Others find room, and keep what they have. Which sessions
// share a shard depends on the seed: with some of these seeds neither of two clients had half of the examined sessions.
func TestOneClientOfUDPCannotFillTheTable(t *testing.T) {
	for _, seed := range []uint64{1, 55, 85, 102, 168, 180, 182, 200} {
		seeded(t, seed)
		for _, way := range []direction{inward, outward} {
			newCrowd(way).mustServeOthers(t)
		}
	}
}

func (c *crowd) mustServeOthers(t *testing.T) {
	t.Helper()
	if !c.ask("10.3.0.1", 1) || !c.connects("10.3.0.1", 1) {
		t.Fatal("no session")
	}
	for n := range 5 * crowdLimit {
		if !c.ask("10.4.0.9", uint16(n+1)) {
			t.Fatalf("seed %d, direction %d: request %d is refused", sessionSeed, c.way, n)
		}
		if n%crowdLimit == 0 {
			c.now++
		}
		if n%8 == 0 && !c.ask("10.3.0.2", uint16(n+1)) {
			t.Fatalf("seed %d, direction %d: a client finds no room after %d requests of another one", sessionSeed,
				c.way, n)
		}
	}
	if !c.passes(1-c.way, flow{"10.3.0.1", "10.1.0.5", 17, 1, 53, 0, 0}.reversed()) || !c.isOpen("10.3.0.1", 1) {
		t.Errorf("seed %d, direction %d: a session of another client was replaced", sessionSeed, c.way)
	}
	if n := c.live(t); n > crowdLimit+crowdLimit/shardSlack+sessionShards {
		t.Errorf("%d sessions, the limit is %d", n, crowdLimit)
	}
}

// Three clients share the table evenly, so that none has half of it.
func TestAFewClientsOfUDPCannotFillTheTable(t *testing.T) {
	c := newCrowd(outward)
	for n := range 5 * crowdLimit {
		if !c.ask(fmt.Sprint("10.4.0.", n%3), uint16(n+1)) {
			t.Fatalf("request %d is refused", n)
		}
		if n%64 == 0 && !c.ask("10.3.0.2", uint16(n+1)) {
			t.Fatalf("a client finds no room after %d requests of other clients", n)
		}
	}
}

// One client keeps as many TCP connections to a pod as the table holds, and sends in all of them. Others find room, and
// keep what they have.
func TestOneClientOfTCPCannotFillTheTable(t *testing.T) {
	c := newCrowd(outward)
	if !c.connects("10.3.0.1", 1) || !c.ask("10.3.0.1", 1) {
		t.Fatal("no session")
	}
	var kept []uint16
	for port := range uint16(2 * crowdLimit) {
		if c.connects("10.4.0.9", port+1) {
			kept = append(kept, port+1)
		}
	}
	if len(kept) < crowdLimit {
		t.Fatalf("only %d connections", len(kept))
	}
	for round := range uint16(5) {
		c.now += pressedTimeout - 1
		for _, port := range kept {
			_ = c.isOpen("10.4.0.9", port) // their packets keep them, or they were replaced
		}
		if !c.isOpen("10.3.0.1", 1) {
			t.Fatalf("round %d: the connection of another client was replaced", round)
		}
		if !c.connects("10.3.0.2", round+1) {
			t.Fatalf("round %d: another client finds no room", round)
		}
	}
	lost := 0
	for _, port := range kept {
		if !c.isOpen("10.4.0.9", port) {
			lost++
		}
	}
	if lost > 5 {
		t.Errorf("the client lost %d connections to 5 of other clients", lost)
	}
}

// Clients that share the table with TCP connections, some with a quarter of the examined ones but none with half: none
// ends for a new one.
func TestConnectionsOfClientsWithFewAreNotReplaced(t *testing.T) {
	seeded(t, 1)
	c := newCrowd(outward)
	const clients = 16
	client := func(n uint16) (address string, port uint16) { return fmt.Sprint("10.4.0.", n%clients), n/clients + 1 }
	opened := 0
	for n := range uint16(2 * crowdLimit) {
		if c.connects(client(n)) {
			opened++
		}
	}
	left := 0
	for n := range uint16(2 * crowdLimit) {
		if c.isOpen(client(n)) {
			left++
		}
	}
	if left != opened || opened < crowdLimit {
		t.Errorf("%d of %d connections are left", left, opened)
	}
}

// The connections that a pod opened are not replaced for those of clients, although the pod is the opener of most.
func TestAClientCannotEndTheConnectionsThatAPodOpened(t *testing.T) {
	g := newGate(crowdLimit)
	g.set([]ACLRule{allow(true, acl4, "10.1.0.5/32", "", 6), denyAll(acl4)}, []ACLRule{
		allow(true, acl4, "", "10.1.0.5/32", 6), denyAll(acl4),
	})
	var opened []flow
	for port := range uint16(2 * crowdLimit) {
		f := flow{"10.1.0.5", "10.3.0.1", 6, port + 1, 80, tcpSYN, 0}
		if g.connect(inward, f) {
			opened = append(opened, f)
		}
	}
	for port := range uint16(100) {
		_ = g.connect(outward, flow{"10.4.0.9", "10.1.0.5", 6, port + 1, 80, tcpSYN, 0})
	}
	g.set([]ACLRule{allow(true, acl4, "10.1.0.5/32", "", 6), denyAll(acl4)}, []ACLRule{denyAll(acl4)})
	for _, f := range opened {
		if !g.passes(outward, f.reversed().with(tcpACK)) {
			t.Fatalf("a client ended the connection from port %d", f.from)
		}
	}
}
