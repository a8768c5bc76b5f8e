package memif

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hostilePair is a connection of a liar after a valid handshake.
func hostilePair(t *testing.T, flags int) (*lab, *liar, *Conn) {
	t.Helper()
	l := newLab(t, ListenOptions{})
	l.add(t, hostileConfig)
	liar := newLiar(t, l.Path())
	size := hostileLayout.size()
	liar.honest(liar.memfd(int64(size), flags), size)
	if kind, reason := liar.firstAnswer(); kind != connectedMessage {
		t.Fatalf("answered %d %q", kind, reason)
	}
	c := await(t, l.connected, "connection")
	t.Cleanup(c.Release)
	return l, liar, c
}

func TestInvalidDescriptorsDropOnlyTheirPacket(t *testing.T) {
	_, liar, server := hostilePair(t, unix.MFD_ALLOW_SEALING)
	size := uint32(hostileLayout.size())
	out := liar.ring(0)
	rx := server.RxQueues()[0]
	lies := []descriptor{
		{region: 1, length: 64},
		{region: 0xffff, length: 64, flags: 0xfffe},
		{length: 64, offset: size - 63},
		{length: size + 1},
		{length: 0xffffffff, offset: 0xffffffff},
		{length: 1, offset: 0xffffffff},
		{length: 0},
		{length: 5000},
		{length: 64, offset: size - 64}, // valid
		{flags: chained, length: 64},    // its end is not published
	}
	for i, d := range lies {
		out.place(uint16(i), d)
	}
	out.setHead(uint16(len(lies)))
	got := packets(20, 4096)
	if n := rx.Receive(got); n != 1 || len(got[0]) != 64 {
		t.Errorf("received %d", n)
	}
	want := QueueStats{Packets: 1, Bytes: 64, BadRegion: 2, BadOffset: 4, BadLength: 1, TooLong: 1, Unfinished: 1}
	if s := rx.Stats(); s != want {
		t.Errorf("counted %+v", s)
	}
	if server.Err() != nil {
		t.Error(server.Err())
	}
}

// Finding 5: dropped packets count against the limit of a call.
func TestRejectedSlotsCountAgainstTheLimitOfACall(t *testing.T) {
	for _, peek := range []bool{false, true} {
		_, liar, server := hostilePair(t, unix.MFD_ALLOW_SEALING)
		out := liar.ring(0)
		rx := server.RxQueues()[0]
		for i := range uint16(16) {
			out.place(i, descriptor{region: 1, length: 64})
		}
		out.setHead(16)
		ask := func() int { return rx.Receive(buffers(2)) }
		if peek {
			ask = func() int { return rx.Peek(make([]Packet, 2)) }
		}
		for call := 1; call <= 2; call++ {
			if n := ask(); n != 0 {
				t.Errorf("received %d", n)
			}
			if dropped := rx.Stats().BadRegion; dropped != uint64(2*slotsEach*call) {
				t.Errorf("a call with room for 2 packets read %d slots (call %d)", dropped, call)
			}
		}
		if rx.Waiting() != 0 {
			t.Error("slots remain")
		}
	}
}

// Finding 5: a peer that keeps sending invalid descriptors is disconnected.
func TestPeerThatKeepsSendingInvalidDescriptorsIsDisconnected(t *testing.T) {
	for name, c := range map[string]struct {
		good int // of 16 packets
		ends bool
	}{"all are wrong": {0, true}, "three quarters are wrong": {4, true}, "a quarter is wrong": {12, false}} {
		t.Run(name, func(t *testing.T) {
			_, liar, server := hostilePair(t, unix.MFD_ALLOW_SEALING)
			out := liar.ring(0)
			rx := server.RxQueues()[0]
			for i := range uint16(16) {
				out.place(i, descriptor{length: 64})
				if int(i) >= c.good {
					out.place(i, descriptor{region: 1, length: 64})
				}
			}
			for sent := 16; sent < 4*maxErrors && server.Err() == nil; sent += 16 {
				out.setHead(uint16(sent))
				for rx.Waiting() > 0 {
					rx.Receive(buffers(16))
				}
			}
			if got := server.Err(); errors.Is(got, ErrDescriptors) != c.ends {
				t.Errorf("the server's reason is %v", got)
			}
			if c.ends {
				if kind, reason := liar.firstAnswer(); kind != disconnectMessage || reason != ErrDescriptors.Error() {
					t.Errorf("the peer got %d %q", kind, reason)
				}
			}
		})
	}
}

// liesInIndexes are invalid indexes, which end a connection.
func liesInIndexes() map[string]func(*liar, *Conn) {
	return map[string]func(*liar, *Conn){
		"more packets than slots": func(l *liar, c *Conn) {
			out := l.ring(0)
			out.setHead(17)
			c.RxQueues()[0].Receive(buffers(1))
		},
		"packets taken back": func(l *liar, c *Conn) {
			out := l.ring(0)
			out.setHead(4)
			c.RxQueues()[0].Receive(buffers(4))
			out.setHead(3)
			c.RxQueues()[0].Peek(make([]Packet, 1))
		},
		"a slot that Peek still shows": func(l *liar, c *Conn) {
			out := l.ring(0)
			out.setHead(16)
			c.RxQueues()[0].Peek(make([]Packet, 1))
			out.setHead(17)
			c.RxQueues()[0].Peek(make([]Packet, 1))
		},
		"more buffers than slots": func(l *liar, c *Conn) {
			in := l.ring(1)
			in.setHead(17)
			c.TxQueues()[0].Send(packets(1, 64))
		},
		"buffers taken back": func(l *liar, c *Conn) {
			in := l.ring(1)
			c.TxQueues()[0].Send(packets(16, 64))
			in.setHead(15)
			c.TxQueues()[0].Send(packets(1, 64))
		},
		"buffers taken back that are being filled": func(l *liar, c *Conn) {
			in := l.ring(1)
			for range 16 {
				c.TxQueues()[0].Append(make([]byte, 64))
			}
			in.setHead(15)
			c.TxQueues()[0].Append(make([]byte, 64))
		},
		"a buffer out of its region": func(l *liar, c *Conn) {
			in := l.ring(1)
			in.place(0, descriptor{length: 2048, offset: uint32(hostileLayout.size()) - 2047})
			c.TxQueues()[0].Send(packets(1, 64))
		},
		"a buffer in no region": func(l *liar, c *Conn) {
			in := l.ring(1)
			in.place(0, descriptor{region: 7, length: 2048})
			c.TxQueues()[0].Reserve(10)
		},
		"a tiny buffer in a chain": func(l *liar, c *Conn) {
			in := l.ring(1)
			in.place(1, descriptor{length: 1})
			c.TxQueues()[0].Send(packets(1, 5000))
		},
	}
}

func TestInvalidIndexesEndTheConnection(t *testing.T) {
	for name, lie := range liesInIndexes() {
		t.Run(name, func(t *testing.T) {
			l, liar, server := hostilePair(t, unix.MFD_ALLOW_SEALING)
			lie(liar, server)
			if server.Err() == nil {
				t.Fatal("the connection has not ended")
			}
			if n := server.TxQueues()[0].Send(packets(1, 64)) + server.RxQueues()[0].Receive(buffers(1)); n != 0 {
				t.Errorf("moved %d packets after the end", n)
			}
			_ = await(t, l.disconnected, "end of the connection")
			if kind, reason := liar.firstAnswer(); kind != disconnectMessage || reason == "" {
				t.Errorf("answered %d %q", kind, reason)
			}
			// The memory stays mapped until the owner releases the connection; then the interface accepts the next
			// client.
			server.TxQueues()[0].Free()
			server.Release()
			c, err := Connect(t.Context(), ClientConfig{Socket: l.Path(), ID: 1, Secret: hostileConfig.Secret})
			if err != nil {
				t.Fatal(err)
			}
			await(t, l.connected, "connection").Release()
			_ = await(t, c.Gone(), "end of the connection")
			c.Release()
		})
	}
}

// The memory of a connection that has ended is mapped until Release, but nothing in it is valid.
func TestPacketsOfAnEndedConnectionAreNotReceived(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.add(t, Config{})
	server, client := connectPair(t, l, ClientConfig{})
	if n := client.TxQueues()[0].Send(packets(3, 64)); n != 3 {
		t.Fatalf("sent %d", n)
	}
	rx := server.RxQueues()[0]
	if n := rx.Waiting(); n != 3 {
		t.Fatalf("%d wait", n)
	}
	server.Close()
	if n := rx.Waiting(); n != 0 {
		t.Errorf("%d wait after the end", n)
	}
	if rx.Arm() {
		t.Error("Arm reports packets after the end")
	}
	if n := rx.Receive(buffers(1)) + rx.Peek(make([]Packet, 1)); n != 0 {
		t.Errorf("%d received after the end", n)
	}
}

func TestSealedMemoryCannotBeTruncated(t *testing.T) {
	_, liar, server := hostilePair(t, unix.MFD_ALLOW_SEALING)
	if server.Info().Guarded {
		t.Error("guarded")
	}
	if err := unix.Ftruncate(liar.fds[0], 0); err == nil {
		t.Error("the region could be truncated")
	}
}

// One region that the client can truncate is enough for a fault, whichever it is.
func TestMemoryIsGuardedIfOneRegionIsNotSealed(t *testing.T) {
	for _, flags := range [][]int{{0, unix.MFD_ALLOW_SEALING}, {unix.MFD_ALLOW_SEALING, 0}} {
		l := newLab(t, ListenOptions{})
		l.add(t, hostileConfig)
		liar := newLiar(t, l.Path())
		size := hostileLayout.size()
		liar.honest(liar.memfd(int64(size), flags[0]), size, liar.memfd(int64(size), flags[1]))
		if kind, reason := liar.firstAnswer(); kind != connectedMessage {
			t.Fatalf("answered %d %q", kind, reason)
		}
		server := await(t, l.connected, "connection")
		if !server.Info().Guarded {
			t.Errorf("regions with flags %#x: not guarded", flags)
		}
		server.Release()
	}
}

func TestTruncatedMemoryEndsTheConnection(t *testing.T) {
	for name, touch := range map[string]func(*Conn){
		"receive": func(c *Conn) { c.RxQueues()[0].Receive(buffers(1)) },
		"peek":    func(c *Conn) { c.RxQueues()[0].Peek(make([]Packet, 1)) },
		"release": func(c *Conn) { c.RxQueues()[0].Release() },
		"waiting": func(c *Conn) { c.RxQueues()[0].Waiting() },
		"arm":     func(c *Conn) { c.RxQueues()[0].Arm() },
		"disarm":  func(c *Conn) { c.RxQueues()[0].Disarm() },
		"send":    func(c *Conn) { c.TxQueues()[0].Send(packets(1, 64)) },
		"append":  func(c *Conn) { c.TxQueues()[0].Append(make([]byte, 5000)) },
		"free":    func(c *Conn) { c.TxQueues()[0].Free() },
		"reserve": func(c *Conn) { c.TxQueues()[0].Reserve(10) },
		"commit":  func(c *Conn) { c.TxQueues()[0].Commit(10) },
		"flush":   func(c *Conn) { c.TxQueues()[0].Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			l, liar, server := hostilePair(t, 0)
			if !server.Info().Guarded {
				t.Fatal("not guarded")
			}
			out := liar.ring(0)
			out.setHead(2)
			rx := server.RxQueues()[0]
			tx := server.TxQueues()[0]
			if rx.Peek(make([]Packet, 1)) != 1 || tx.Reserve(10) == nil || !tx.Append(make([]byte, 64)) ||
				tx.Reserve(10) == nil {
				t.Fatal("the memory is unusable before the truncation")
			}
			if err := unix.Ftruncate(liar.fds[0], 0); err != nil {
				t.Fatal(err)
			}
			touch(server)
			if server.Err() != ErrFault { //nolint:errorlint // not wrapped
				t.Fatalf("ended with %v", server.Err())
			}
			_ = await(t, l.disconnected, "end of the connection")
			server.Release()
			l.stillServesAgain(t)
		})
	}
}

func (l *lab) stillServesAgain(t *testing.T) {
	t.Helper()
	c, err := Connect(t.Context(), ClientConfig{Socket: l.Path(), ID: 1, Secret: hostileConfig.Secret})
	if err != nil {
		t.Fatal(err)
	}
	await(t, l.connected, "connection").Release()
	_ = await(t, c.Gone(), "end of the connection")
	c.Release()
}

func TestMemoryTruncatedDuringTheHandshakeIsRefused(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.addReleasing(t, hostileConfig)
	liar := newLiar(t, l.Path())
	fd := liar.memfd(1<<20, 0)
	liar.say(start().encode(), -1)
	liar.say(newRegion{size: 1 << 20}.encode(), fd)
	for _, want := range []messageType{helloMessage, ackMessage, ackMessage} {
		if kind, reason := liar.answer(); kind != want {
			t.Fatalf("answered %d %q", kind, reason)
		}
	}
	if err := unix.Ftruncate(fd, 0); err != nil {
		t.Fatal(err)
	}
	liar.say(newRing{toServer: true, log2: 4}.encode(), liar.eventfd())
	liar.say(named(connectMessage, "lie"), -1)
	if kind, reason := liar.firstAnswer(); kind != disconnectMessage {
		t.Errorf("answered %d %q", kind, reason)
	}
	await(t, l.refused, "refusal")
	l.stillServes(t)
}

// The eventfd's counter is full and writes to it would block; the notifier must not block.
func TestNotifierDoesNotBlock(t *testing.T) {
	_, liar, server := hostilePair(t, unix.MFD_ALLOW_SEALING)
	eventfd := liar.fds[2]
	if _, err := unix.Write(eventfd, []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(eventfd, false); err != nil {
		t.Fatal(err)
	}
	in := liar.ring(1)
	in.maskInterrupts(false)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 3 * completions {
			server.TxQueues()[0].Append(make([]byte, 64))
			server.TxQueues()[0].Flush()
			in.setHead(in.tail() + 16)
		}
	}()
	select {
	case <-done:
	case <-time.After(timeout):
		t.Fatal("ringing blocks")
	}
	if s := server.TxQueues()[0].Stats(); s.Rings != 3*completions {
		t.Errorf("%+v", s)
	}
}

// A client that sends few invalid descriptors among valid packets keeps its connection.
func TestInvalidDescriptorsAreForgivenForValidPackets(t *testing.T) {
	_, _, server := hostilePair(t, unix.MFD_ALLOW_SEALING)
	rx := server.rx[0]
	for range 2 * maxErrors {
		rx.reject(badRegion)
		rx.accept(1, 64)
	}
	if server.Err() != nil {
		t.Fatal(server.Err())
	}
	for range maxErrors {
		rx.reject(badRegion)
	}
	if server.Err() != nil {
		t.Errorf("ended with %v at the limit", server.Err())
	}
	if rx.reject(badRegion); server.Err() != ErrDescriptors { //nolint:errorlint // not wrapped
		t.Errorf("ended with %v above the limit", server.Err())
	}
}

// The length of a packet is that of all its buffers.
func TestPacketsOfAWrongLengthAreDropped(t *testing.T) {
	for name, read := range map[string]func(*RxQueue) int{
		"Receive": func(q *RxQueue) int { return q.Receive(packets(2, 4096)) },
		"Peek":    func(q *RxQueue) int { return q.Peek(make([]Packet, 2)) },
	} {
		_, liar, server := hostilePair(t, unix.MFD_ALLOW_SEALING)
		rx := server.rx[0]
		out := liar.ring(0)
		rx.maxPacket = 100
		out.place(0, descriptor{length: 64, flags: chained})
		out.place(1, descriptor{length: 64})
		out.place(2, descriptor{length: 64, flags: chained})
		out.place(3, descriptor{length: 36})
		out.place(4, descriptor{length: 101})
		out.place(5, descriptor{})
		out.place(6, descriptor{length: 100})
		out.setHead(7)
		if n := read(rx); n != 2 {
			t.Errorf("%s: %d packets, want two of 100 bytes", name, n)
		}
		if s := rx.Stats(); s.TooLong != 2 || s.BadLength != 1 || s.Packets != 2 || s.Bytes != 200 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// A chain of many buffers with few bytes costs one packet only as much as a long one.
func TestChainHasAtMostTheSlotsOfTheLongestPacket(t *testing.T) {
	for _, peek := range []bool{false, true} {
		l := newLab(t, ListenOptions{})
		l.add(t, Config{})
		server, client := connectPair(t, l, ClientConfig{RingSize: 1 << maxRingLog2, BufferSize: minBuffer})
		out := client.tx[0].ring
		rx := server.RxQueues()[0]
		for i := range out.size {
			out.place(i, descriptor{flags: chained})
		}
		out.setHead(out.size)
		if peek {
			rx.Peek(make([]Packet, 1))
			rx.Release()
		} else {
			rx.Receive(buffers(1))
		}
		if read, most := int(out.size)-rx.Waiting(), DefaultMaxPacket/minBuffer+1; read != most {
			t.Errorf("a call for one packet read %d slots of a chain, not %d (peek %t)", read, most, peek)
		}
	}
}
