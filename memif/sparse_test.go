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
	if left := allocated(t, fd); left != 0 {
		t.Errorf("%d bytes are left", left)
	}
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
