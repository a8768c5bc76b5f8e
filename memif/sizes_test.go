package memif

import (
	"context"
	"strings"
	"testing"
)

// A ring that holds no packet of the MTU loses these packets and passes all others, which is hard to find.
func TestRingsThatHoldNoPacketOfTheMTUAreRefused(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.addReleasing(t, Config{ID: 1, Mode: IP})
	l.addReleasing(t, Config{})
	for _, tt := range []struct {
		name string
		c    ClientConfig
		want string // of the error, "" for success
	}{
		{"slots and buffers as small as possible", ClientConfig{RingSize: 2, BufferSize: 64},
			"ring of 2 slots of 64 bytes: it holds 128 bytes, and a packet of the MTU has 1514; set a larger ring or buffer size, or a smaller MTU"},
		{
			"one byte too few", ClientConfig{RingSize: 4, BufferSize: 2253, MTU: 8999},
			"it holds 9012 bytes, and a packet of the MTU has 9013",
		},
		{"just enough", ClientConfig{RingSize: 4, BufferSize: 2253, MTU: 8998}, ""},
		{
			"the Ethernet header does not fit", ClientConfig{RingSize: 1, BufferSize: 1500},
			"it holds 1500 bytes, and a packet of the MTU has 1514",
		},
		{"mode IP has no Ethernet header", ClientConfig{ID: 1, Mode: IP, RingSize: 1, BufferSize: 1500}, ""},
		{"short packets only", ClientConfig{RingSize: 2, BufferSize: 64, MaxPacket: 128}, ""},
		{
			"the longest packet is less than one of the MTU", ClientConfig{MTU: 9000, MaxPacket: 9013},
			"longest packet of 9013 bytes: a packet of MTU 9000 has 9014",
		},
		{"a negative MTU", ClientConfig{MTU: -1}, "MTU not within 1 and"},
	} {
		tt.c.Socket = l.Path()
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		if tt.want != "" {
			cancel() // Dial does not retry a configuration that cannot work
		}
		client, err := Dial(ctx, tt.c, ClientEvents{})
		cancel()
		if err == nil {
			_ = client.Close()
			_ = await(t, l.disconnected, "end of the connection")
		}
		conn, connected := Connect(t.Context(), tt.c)
		if connected == nil {
			conn.Close()
			_ = await(t, conn.Gone(), "end of the connection")
			conn.Release()
			_ = await(t, l.disconnected, "end of the connection")
		}
		for _, err := range []error{err, connected} {
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
			}
		}
	}
}

func TestServersFewSlotsThatHoldNoPacketOfTheMTUAreRefused(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.add(t, Config{RingSize: 4})
	conn, err := Connect(t.Context(), ClientConfig{Socket: l.Path(), RingSize: 1024, BufferSize: 256})
	if err == nil {
		conn.Release()
		await(t, l.connected, "connection").Release()
		t.Fatal("connected")
	}
	if !strings.Contains(err.Error(),
		"the server offers a ring of 4 slots of 256 bytes: it holds 1024 bytes, and a packet of the MTU has 1514") {
		t.Errorf("%v", err)
	}
	if r := await(t, l.refused, "refusal"); !strings.Contains(r.Err.Error(), "too few slots for a packet of the MTU") {
		t.Errorf("the server learns %v", r.Err)
	}
}

// The peer of a client that listens chooses rings and buffers.
func TestSizesOfAClientThatListensAreLimits(t *testing.T) {
	c := ClientConfig{Socket: "@test", Listen: true, RingSize: 2, BufferSize: 64}
	if err := c.complete(); err != nil {
		t.Error(err)
	}
}

func TestPacketsThatTheRingNeverHoldsAreTakenAndDropped(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.add(t, Config{})
	_, client := connectPair(t, l, ClientConfig{RingSize: 2})
	tx := client.TxQueues()[0]
	if n := tx.Send(packets(1, 5000)); n != 1 {
		t.Errorf("%d taken", n)
	}
	if s := tx.Stats(); s.TooLong != 1 || s.Full != 0 || tx.Send(packets(1, 64)) != 1 {
		t.Errorf("counted %+v", s)
	}
}

func TestPacketsAboveTheMaximumLengthAreNotSent(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.add(t, Config{MaxPacket: 2000})
	server, client := connectPair(t, l, ClientConfig{MaxPacket: 2000})
	for name, tx := range map[string]*TxQueue{"server": server.TxQueues()[0], "client": client.TxQueues()[0]} {
		tx.Free() // slots are known: a server takes the fast path
		for _, length := range []int{2001, 0, 2000} {
			if !tx.Append(make([]byte, length)) {
				t.Errorf("%s: %d bytes are not taken", name, length)
			}
		}
		tx.Flush()
		if s := tx.Stats(); s.TooLong != 1 || s.BadLength != 1 || s.Packets != 1 || s.Bytes != 2000 {
			t.Errorf("%s: counted %+v", name, s)
		}
	}
}

// Peek copies packets of guarded memory, and shows only as many as there is room for.
func TestPeekOfGuardedMemoryLosesNoPacketWhenItsCopiesAreFull(t *testing.T) {
	_, liar, server := hostilePair(t, 0)
	out := liar.ring(0)
	rx := server.RxQueues()[0]
	const length = 60000
	for i := range uint16(16) {
		out.place(i, descriptor{length: length})
	}
	out.setHead(16)
	shown := 0
	for range 16 {
		shown += rx.Peek(make([]Packet, 16))
		rx.Release()
	}
	if s := rx.Stats(); shown != 16 || s.Dropped() != 0 || !server.Info().Guarded {
		t.Errorf("%d shown, guarded %t, counted %+v", shown, server.Info().Guarded, s)
	}
}

func TestRepeatedCloseOfAnInterfaceKeepsItsSuccessor(t *testing.T) {
	l := newLab(t, ListenOptions{})
	first := l.addReleasing(t, Config{})
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	l.add(t, Config{})
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	connectPair(t, l, ClientConfig{})
}
