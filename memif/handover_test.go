package memif

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// duplicates stands for the passing of descriptors to another process.
func duplicates(t *testing.T, descriptors ...int) (all []int) {
	t.Helper()
	for _, fd := range descriptors {
		other, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, other)
	}
	return all
}

// brokers returns the brokers of both processes of a handover, or none.
func brokers(t *testing.T, brokered bool) (before, after ListenOptions) {
	t.Helper()
	if !brokered {
		return ListenOptions{}, ListenOptions{}
	}
	return ListenOptions{Broker: newBroker(t)}, ListenOptions{Broker: newBroker(t)}
}

// successor adopts the socket of a suspended listener.
func (l *lab) successor(t *testing.T, o ListenOptions) *lab {
	t.Helper()
	next := &lab{
		connected:    make(chan *Conn, 100),
		disconnected: make(chan error, 100),
		refused:      make(chan Refusal, 20000),
	}
	o.Refused = func(r Refusal) { next.refused <- r }
	var err error
	if next.Listener, err = Adopt(l.Path(), duplicates(t, l.Descriptor())[0], o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = next.Close() })
	return next
}

// pass passes a suspended connection to an interface of the other process.
func pass(t *testing.T, from *Conn, to *Interface) *Conn {
	t.Helper()
	p, descriptors := from.Pass()
	if p == nil {
		t.Fatalf("the connection cannot be passed: %v", from.Err())
	}
	next, err := to.Resume(p, duplicates(t, descriptors...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(next.Release)
	return next
}

// numbered returns packets with their numbers, of which every third takes several slots.
func numbered(from, to int) (v [][]byte) {
	for n := from; n < to; n++ {
		length := 64
		if n%3 == 0 {
			length = 3000
		}
		v = append(v, bytes.Repeat([]byte{byte(n)}, length))
	}
	return v
}

// expectNumbered receives the packets of numbered.
func expectNumbered(t *testing.T, c *Conn, from, to int) {
	t.Helper()
	for _, want := range numbered(from, to) {
		got := [][]byte{make([]byte, 4096)}
		eventually(t, "a packet", func() bool { return c.RxQueues()[0].Receive(got) == 1 })
		if !bytes.Equal(got[0], want) {
			t.Fatalf("packet %d of %d bytes instead of %d of %d", got[0][0], len(got[0]), want[0], len(want))
		}
	}
}

// Packets that wait in both rings at the time of a handover arrive once and in order, and the client notices nothing.
func TestConnectionContinuesInAnotherListener(t *testing.T) {
	for name, brokered := range map[string]bool{"without broker": false, "with broker": true} {
		t.Run(name, func(t *testing.T) {
			before, after := brokers(t, brokered)
			l := newLab(t, before)
			l.add(t, hostileConfig)
			server, client := connectPair(t, l, ClientConfig{ID: 1, Secret: hostileConfig.Secret, Name: "eth9"})
			client.TxQueues()[0].Send(numbered(0, 30))
			expectNumbered(t, server, 0, 10)
			server.TxQueues()[0].Send(numbered(100, 120))
			expectNumbered(t, client, 100, 110)
			shown := make([]Packet, 2)
			if n := server.RxQueues()[0].Peek(shown); n != 2 {
				t.Fatalf("%d packets shown", n)
			}
			server.TxQueues()[0].Append(numbered(120, 121)[0])
			l.Suspend()
			next := l.successor(t, after)
			resumed := pass(t, server, next.add(t, hostileConfig))
			client.TxQueues()[0].Send(numbered(30, 40))
			server.Leave()
			l.Release()
			next.Start()
			if i := resumed.Info(); i != server.Info() || i.PeerInterface != "eth9" {
				t.Errorf("connected with %+v, before with %+v", i, server.Info())
			}
			expectNumbered(t, resumed, 12, 40) // 10 and 11 were forwarded
			expectNumbered(t, client, 110, 121)
			for n := range 10 { // rings wrap
				for _, way := range [][2]*Conn{{client, resumed}, {resumed, client}} {
					way[0].TxQueues()[0].Send(numbered(n, n+150))
					expectNumbered(t, way[1], n, n+150)
				}
			}
			if err := errors.Join(client.Err(), resumed.Err()); err != nil {
				t.Error("the connection ended:", err)
			}
			if free := client.TxQueues()[0].Free(); free != client.TxQueues()[0].Size() {
				t.Errorf("the server has not returned %d slots", client.TxQueues()[0].Size()-free)
			}
			if _, err := os.Stat(l.Path()); err != nil {
				t.Error("the socket's file:", err)
			}
			second, err := Connect(t.Context(), ClientConfig{Socket: l.Path(), ID: 1, Secret: hostileConfig.Secret})
			if err == nil {
				second.Release()
			}
			if reasonFrom(err) != "already connected" {
				t.Errorf("a second client gets %v", err)
			}
			client.Close()
			if err := await(t, next.disconnected, "end of the connection"); err == nil {
				t.Error("no reason of the end")
			}
			resumed.Release()
			next.stillServes(t)
		})
	}
}

// A client need not wait for the next packet to have the slots back that the first process has read.
func TestHandoverReturnsTheSlotsOfReceivedPackets(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.add(t, hostileConfig)
	server, client := connectPair(t, l, ClientConfig{ID: 1, Secret: hostileConfig.Secret})
	queue := client.TxQueues()[0]
	queue.Send(numbered(1, 3))
	if n := server.RxQueues()[0].Peek(make([]Packet, 2)); n != 2 || queue.Free() != queue.Size()-2 {
		t.Fatalf("%d packets shown, %d free slots", n, queue.Free())
	}
	l.Suspend()
	next := l.successor(t, ListenOptions{})
	_ = pass(t, server, next.add(t, hostileConfig))
	server.Leave()
	l.Release()
	next.Start()
	if queue.Free() != queue.Size() {
		t.Errorf("%d free slots of %d", queue.Free(), queue.Size())
	}
}

// A client that ends while nothing is read from its socket is noticed by the other process.
func TestEndOfAClientDuringAHandoverIsNoticed(t *testing.T) {
	for name, brokered := range map[string]bool{"without broker": false, "with broker": true} {
		t.Run(name, func(t *testing.T) {
			before, after := brokers(t, brokered)
			l := newLab(t, before)
			l.add(t, hostileConfig)
			server, client := connectPair(t, l, ClientConfig{ID: 1, Secret: hostileConfig.Secret})
			l.Suspend()
			next := l.successor(t, after)
			resumed := pass(t, server, next.add(t, hostileConfig))
			client.Close()
			_ = await(t, client.Gone(), "end of the connection")
			server.Leave()
			l.Release()
			next.Start()
			_ = await(t, next.disconnected, "end of the connection")
			resumed.Release()
			next.stillServes(t)
		})
	}
}

// A client that writes nonsense into its rings during a handover loses its own connection only.
func TestHostileRingsDuringAHandoverEndOnlyTheirConnection(t *testing.T) {
	l := newLab(t, ListenOptions{})
	other := hostileConfig
	other.ID = 2
	l.add(t, hostileConfig)
	l.add(t, other)
	server, client := connectPair(t, l, ClientConfig{ID: 1, Secret: hostileConfig.Secret})
	bystander, friend := connectPair(t, l, ClientConfig{ID: 2, Secret: hostileConfig.Secret})
	l.Suspend()
	next := l.successor(t, ListenOptions{})
	resumed := pass(t, server, next.add(t, hostileConfig))
	kept := pass(t, bystander, next.add(t, other))
	client.tx[0].ring.setHead(client.tx[0].next + 5000)
	server.Leave()
	bystander.Leave()
	l.Release()
	next.Start()
	if n := resumed.RxQueues()[0].Receive(buffers(1)); n != 0 {
		t.Errorf("%d packets received", n)
	}
	if err := await(t, next.disconnected, "end of the connection"); !errors.Is(err, ErrIndex) {
		t.Errorf("the connection ended with %v", err)
	}
	bothWays(t, kept, friend)
}

// Memory that a client truncates, because it cannot be sealed, ends its connection, before Pass and after it.
func TestMemoryTruncatedDuringAHandoverEndsTheConnection(t *testing.T) {
	for name, truncateFirst := range map[string]bool{"before Pass": true, "after Resume": false} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, ListenOptions{})
			l.add(t, hostileConfig)
			client := newLiar(t, l.Path())
			fd := client.memfd(int64(hostileLayout.size()), 0) // no sealing
			client.honest(fd, hostileLayout.size())
			server := await(t, l.connected, "connection")
			t.Cleanup(server.Release)
			if !server.Info().Guarded {
				t.Fatal("the memory is sealed")
			}
			l.Suspend()
			next := l.successor(t, ListenOptions{})
			i := next.add(t, hostileConfig)
			truncate := func() {
				if err := unix.Ftruncate(fd, 0); err != nil {
					t.Fatal(err)
				}
			}
			if truncateFirst {
				truncate()
				p, descriptors := server.Pass()
				if p != nil { // nothing had to be touched
					if _, err := i.Resume(p, duplicates(t, descriptors...)); err == nil {
						t.Error("a region without memory is resumed")
					}
				}
				server.Leave()
				l.Release()
				next.Start()
			} else {
				resumed := pass(t, server, i)
				truncate()
				server.Leave()
				l.Release()
				next.Start()
				_ = resumed.RxQueues()[0].Receive(buffers(1))
				if err := await(t, next.disconnected, "end of the connection"); !errors.Is(err, ErrFault) {
					t.Errorf("the connection ended with %v", err)
				}
				resumed.Release()
			}
			next.stillServes(t)
		})
	}
}

// A connection that cannot be resumed ends, and its client can connect again.
func TestConnectionThatCannotBeResumedInAnotherListenerEnds(t *testing.T) {
	for name, spoil := range map[string]func(p *Passed, descriptors []int) []int{
		"a descriptor too few": func(_ *Passed, d []int) []int { _ = unix.Close(d[len(d)-1]); return d[:len(d)-1] },
		"no descriptors":       func(_ *Passed, d []int) []int { closeAll(d); return nil },
		"another id":           func(p *Passed, d []int) []int { p.Info.ID++; return d },
		"another mode":         func(p *Passed, d []int) []int { p.Info.Mode = IP; return d },
		"too many rings": func(p *Passed, d []int) []int {
			p.Rings = append(p.Rings, p.Rings[0], p.Rings[0])
			return d
		},
		"a ring too large":        func(p *Passed, d []int) []int { p.Rings[0].Log2 = 11; return d },
		"a huge ring":             func(p *Passed, d []int) []int { p.Rings[0].Log2 = 200; return d },
		"a ring out of region":    func(p *Passed, d []int) []int { p.Rings[0].Offset = 1 << 31; return d },
		"a ring elsewhere":        func(p *Passed, d []int) []int { p.Rings[0].Offset += 256; return d },
		"a ring in no region":     func(p *Passed, d []int) []int { p.Rings[1].Region = 7; return d },
		"a region of no size":     func(p *Passed, d []int) []int { p.Regions[0].Size = 0; return d },
		"a region larger than it": func(p *Passed, d []int) []int { p.Regions[0].Size += 1 << 20; return d },
		"no region": func(_ *Passed, d []int) []int {
			_ = unix.Dup3(d[2], d[1], unix.O_CLOEXEC)
			return d
		},
		"no eventfd": func(_ *Passed, d []int) []int {
			_ = unix.Dup3(d[1], d[2], unix.O_CLOEXEC)
			return d
		},
		"no socket": func(_ *Passed, d []int) []int {
			_ = unix.Dup3(d[1], d[0], unix.O_CLOEXEC)
			return d
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, ListenOptions{})
			l.add(t, hostileConfig)
			server, client := connectPair(t, l, ClientConfig{ID: 1, Secret: hostileConfig.Secret})
			l.Suspend()
			next := l.successor(t, ListenOptions{})
			i := next.add(t, hostileConfig)
			p, descriptors := server.Pass()
			before := openNow(t)
			if _, err := i.Resume(p, spoil(p, duplicates(t, descriptors...))); err == nil {
				t.Fatal("it is resumed")
			}
			checkLeaks(t, before)
			server.Leave()
			l.Release()
			next.Start()
			select {
			case <-client.Gone():
			case <-time.After(timeout):
				t.Error("the client is not hung up on")
			}
			next.stillServes(t)
		})
	}
}

// If the other process gives up before Start, the first one still has everything, and ends as without a handover.
func TestListenerIsClosedAfterAHandoverThatFailed(t *testing.T) {
	for name, brokered := range map[string]bool{"without broker": false, "with broker": true} {
		t.Run(name, func(t *testing.T) {
			before, after := brokers(t, brokered)
			l := newLab(t, before)
			l.addReleasing(t, hostileConfig)
			server, client := connectPair(t, l, ClientConfig{ID: 1, Secret: hostileConfig.Secret})
			l.Suspend()
			next := l.successor(t, after)
			resumed := pass(t, server, next.add(t, hostileConfig))
			resumed.Leave()
			next.Release()
			if err := client.Err(); err != nil {
				t.Error("the client was disconnected by the other process:", err)
			}
			if _, err := os.Stat(l.Path()); err != nil {
				t.Error("the other process removed the socket's file:", err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			_ = await(t, l.disconnected, "end of the connection")
			select {
			case <-client.Gone():
			case <-time.After(timeout):
				t.Fatal("the client is not disconnected")
			}
			if got := reasonFrom(client.Err()); !brokered && got != errDeleted.Reason {
				t.Errorf("the client was told %q", got)
			}
			if _, err := os.Stat(l.Path()); !errors.Is(err, os.ErrNotExist) {
				t.Error("the socket's file is still there:", err)
			}
		})
	}
}

// A client in the middle of its handshake is hung up on, and one that waits to be accepted is served by the other
// process.
func TestClientsConnectDuringAHandover(t *testing.T) {
	for name, brokered := range map[string]bool{"without broker": false, "with broker": true} {
		t.Run(name, func(t *testing.T) {
			before, after := brokers(t, brokered)
			l := newLab(t, before)
			l.add(t, hostileConfig)
			slow := newLiar(t, l.Path())
			if kind, _ := slow.answer(); kind != helloMessage {
				t.Fatalf("message %d", kind)
			}
			l.Suspend()
			connected := make(chan error, 1)
			go func() {
				c, err := Connect(t.Context(), ClientConfig{
					Socket:  l.Path(),
					ID:      1,
					Secret:  hostileConfig.Secret,
					Timeout: timeout,
				})
				if err == nil {
					c.Release()
				}
				connected <- err
			}()
			next := l.successor(t, after)
			next.addReleasing(t, hostileConfig)
			l.Release()
			next.Start()
			if err := await(t, connected, "end of connect"); err != nil {
				t.Error("a client that waited:", err)
			}
			for kind := ackMessage; kind != 0; {
				kind, _ = slow.answer()
			}
		})
	}
}

// Clients that are served before the connections of the former listener are resumed could take their interfaces.
func TestAdoptedListenerServesNoClientBeforeStart(t *testing.T) {
	for name, brokered := range map[string]bool{"without broker": false, "with broker": true} {
		t.Run(name, func(t *testing.T) {
			before, after := brokers(t, brokered)
			l := newLab(t, before)
			l.add(t, hostileConfig)
			l.Suspend()
			next := l.successor(t, after)
			l.Release()
			next.addReleasing(t, hostileConfig)
			early := newLiar(t, l.Path())
			_ = early.socket.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
			if m, _, err := early.receive(); err == nil {
				t.Fatalf("the client is served: message %d", m.kind())
			}
			next.Start()
			_ = early.socket.SetReadDeadline(time.Now().Add(timeout))
			if m, _, err := early.receive(); err != nil || m.kind() != helloMessage {
				t.Fatalf("no hello: %v", err)
			}
		})
	}
}
