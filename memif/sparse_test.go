package memif

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// allocated is how many bytes of a file have pages.
func allocated(t *testing.T, fd int) int64 {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		t.Fatal(err)
	}
	return stat.Blocks * blockSize
}

// finding 4: a client kept the memory of each of its connections, and its pages stayed accounted to the server.
func TestMemoryThatAClientKeepsIsEmptiedAfterItsConnection(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.add(t, hostileConfig)
	client := newLiar(t, l.Path())
	fd := client.memfd(liedSize, unix.MFD_ALLOW_SEALING)
	client.honest(fd, liedSize)
	server := await(t, l.connected, "connection")
	const slots = 16
	in := client.ring(1)
	for i := range uint16(slots) {
		in.place(i, descriptor{length: 2048, offset: liedSize/2 + uint32(i)*2048})
	}
	in.setHead(slots)
	if n := server.TxQueues()[0].Send(packets(8, 2000)); n != 8 {
		t.Fatalf("%d packets sent: %v", n, server.Err())
	}
	if allocated(t, fd) == 0 {
		t.Fatal("nothing was written")
	}
	client.socket.Close()
	_ = await(t, l.disconnected, "end of the connection")
	server.Release()
	eventually(t, "the memory is emptied", func() bool { return allocated(t, fd) == 0 })
}

// A client that reads its rings before the server's reason must not find zeros there.
func TestMemoryIsNotEmptiedBeforeTheClientWasTold(t *testing.T) {
	for name, options := range map[string]ListenOptions{"without a broker": {}, "with a broker": {Broker: newBroker(t)}} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, options)
			l.parting = patience
			i := l.addReleasing(t, hostileConfig)
			client := newLiar(t, l.Path())
			fd := client.memfd(liedSize, unix.MFD_ALLOW_SEALING)
			client.honest(fd, liedSize)
			await(t, l.connected, "connection")
			if err := i.Close(); err != nil {
				t.Fatal(err)
			}
			_ = await(t, l.disconnected, "end of the connection")
			for kind, reason := client.answer(); kind != disconnectMessage; kind, reason = client.answer() {
				if kind == 0 {
					t.Fatalf("hung up on without a reason: %s", reason)
				}
			}
			if allocated(t, fd) == 0 {
				t.Error("emptied before the client hung up")
			}
			client.socket.Close()
			eventually(t, "the memory is emptied", func() bool { return allocated(t, fd) == 0 })
		})
	}
}

func TestMemoryOfAClientThatDoesNotHangUpIsEmptied(t *testing.T) {
	l := newLab(t, ListenOptions{})
	i := l.addReleasing(t, hostileConfig)
	client := newLiar(t, l.Path())
	fd := client.memfd(liedSize, unix.MFD_ALLOW_SEALING)
	client.honest(fd, liedSize)
	await(t, l.connected, "connection")
	i.Disconnect("moved")
	eventually(t, "the memory is emptied", func() bool { return allocated(t, fd) == 0 })
}

// A client that has paid for all its pages, such as the packet memory of a program, keeps what is in them.
func TestMemoryWithAllItsPagesIsLeftAsItIs(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.add(t, hostileConfig)
	client := newLiar(t, l.Path())
	fd := client.memfd(liedSize, unix.MFD_ALLOW_SEALING)
	want := make([]byte, liedSize/2)
	fillPattern(want, 3)
	if _, err := unix.Pwrite(fd, make([]byte, liedSize), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Pwrite(fd, want, liedSize/2); err != nil {
		t.Fatal(err)
	}
	client.honest(fd, liedSize)
	server := await(t, l.connected, "connection")
	client.socket.Close()
	_ = await(t, l.disconnected, "end of the connection")
	server.Release()
	got := make([]byte, len(want))
	if _, err := unix.Pread(fd, got, liedSize/2); err != nil || !slices.Equal(got, want) {
		t.Errorf("the memory has changed: %v", err)
	}
}

// Memory without rings may be a program's own, which other connections of it use.
func TestMemoryWithoutRingsIsLeftAsItIs(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.add(t, hostileConfig)
	client := newLiar(t, l.Path())
	rings, pool := client.memfd(liedSize, unix.MFD_ALLOW_SEALING), client.memfd(liedSize, unix.MFD_ALLOW_SEALING)
	want := make([]byte, 4096)
	fillPattern(want, 5)
	if _, err := unix.Pwrite(pool, want, 0); err != nil {
		t.Fatal(err)
	}
	if err := client.memory.add(rings, liedSize); err != nil {
		t.Fatal(err)
	}
	hostileLayout.newRing(client.memory.regions[0].base, 0)
	client.say(start().encode(), -1)
	client.say(newRegion{size: liedSize}.encode(), rings)
	client.say(newRegion{index: 1, size: liedSize}.encode(), pool)
	client.say(newRing{toServer: true, log2: hostileLayout.log2}.encode(), client.eventfd())
	client.say(named(connectMessage, "pool"), -1)
	server := await(t, l.connected, "connection")
	client.socket.Close()
	_ = await(t, l.disconnected, "end of the connection")
	server.Release()
	got := make([]byte, len(want))
	if _, err := unix.Pread(pool, got, 0); err != nil || !slices.Equal(got, want) {
		t.Errorf("the memory has changed: %v", err)
	}
}

func TestAClientLeavesNoMorePagesToTheServerThanItsRingsNeed(t *testing.T) {
	const size = 1 << 22
	config := hostileConfig
	config.RxQueues, config.TxQueues, config.RingSize = 1, 1, 16
	if most := config.mostSparse(); most >= size {
		t.Fatalf("%d bytes are allowed", most)
	}
	for name, c := range map[string]struct {
		pages  bool
		answer messageType
	}{"without pages": {false, disconnectMessage}, "with pages": {true, ackMessage}} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, ListenOptions{})
			l.addReleasing(t, config)
			client := newLiar(t, l.Path())
			fd := client.memfd(size, unix.MFD_ALLOW_SEALING)
			if c.pages {
				if err := unix.Fallocate(fd, 0, 0, size); err != nil {
					t.Fatal(err)
				}
			}
			client.say(start().encode(), -1)
			for _, want := range []messageType{helloMessage, ackMessage} {
				if kind, reason := client.answer(); kind != want {
					t.Fatalf("answered %d %q, want %d", kind, reason, want)
				}
			}
			client.say(newRegion{size: size}.encode(), fd)
			if kind, reason := client.answer(); kind != c.answer {
				t.Errorf("answered %d %q, want %d", kind, reason, c.answer)
			}
		})
	}
}
