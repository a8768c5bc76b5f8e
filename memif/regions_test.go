package memif

import (
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The layout of clients that use their own packet memory without copying: rings in the first region, buffers anywhere
// in the others.
func TestRingsAndBuffersInSeveralRegions(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.add(t, hostileConfig)
	client := newLiar(t, l.Path())
	const pool = 1 << 16
	rings := layout{toServer: 1, toClient: 1, log2: 2}
	client.say(start().encode(), -1)
	for i, size := range []uint64{rings.size(), pool, pool} {
		fd := client.memfd(int64(size), unix.MFD_ALLOW_SEALING)
		if err := client.memory.add(fd, size); err != nil {
			t.Fatal(err)
		}
		client.say(newRegion{index: uint16(i), size: size}.encode(), fd)
	}
	base := client.memory.regions[0].base
	out := rings.newRing(base, 0)
	in := rings.newRing(base, 1)
	client.say(newRing{toServer: true, log2: rings.log2}.encode(), client.eventfd())
	client.say(newRing{log2: rings.log2, offset: uint32(rings.ringOffset(1))}.encode(), client.eventfd())
	// One packet in three pieces, two of them out of order in the last region.
	pieces := []descriptor{
		{flags: chained, region: 2, length: 100, offset: pool - 100},
		{flags: chained, region: 1, length: 50, offset: 3},
		{region: 2, length: 25},
	}
	at := 0
	packet := make([]byte, 175)
	fillPattern(packet, 9)
	for i, d := range pieces {
		out.place(uint16(i), d)
		copy(client.bytes(d), packet[at:])
		in.place(uint16(i), descriptor{region: d.region, length: 2048, offset: 4096 + uint32(i)*2048})
		at += int(d.length)
	}
	out.setHead(3)
	in.setHead(3)
	client.say(named(connectMessage, "pools"), -1)
	server := await(t, l.connected, "connection")
	t.Cleanup(server.Release)
	got := buffers(2)
	if n := server.RxQueues()[0].Receive(got); n != 1 || len(got[0]) != 175 || !hasPattern(got[0], 9) {
		t.Errorf("received %d packets, %d bytes", n, len(got[0]))
	}
	if i := server.Info(); i.Regions != 3 || i.Memory != 2*pool+rings.size() || i.Guarded {
		t.Errorf("connected with %+v", i)
	}
	long := make([]byte, 5000)
	fillPattern(long, 4)
	server.TxQueues()[0].Send([][]byte{long})
	var back []byte
	for i := range in.tail() {
		back = append(back, client.bytes(in.descriptor(i))...)
	}
	if len(back) != len(long) || !hasPattern(back, 4) {
		t.Errorf("sent 5000 bytes, %d arrived", len(back))
	}
}

// bytes returns the memory of a descriptor of the client.
func (l *liar) bytes(d descriptor) []byte {
	at, verdict := l.memory.at(d)
	if verdict != good {
		l.t.Fatalf("descriptor %+v", d)
	}
	return unsafe.Slice((*byte)(at), d.length)
}

func TestClientEndsTheConnectionOfAnInvalidServer(t *testing.T) {
	for name, lie := range map[string]func(server, client *Conn){
		"packets without a request": func(server, client *Conn) {
			server.tx[0].ring.setTail(17)
			client.rx[0].Receive(buffers(1))
		},
		"packets taken back": func(server, client *Conn) {
			server.tx[0].Send(packets(4, 64))
			client.rx[0].Receive(buffers(4))
			server.tx[0].ring.setTail(2)
			client.rx[0].Receive(buffers(4))
		},
		"slots freed that were not used": func(server, client *Conn) {
			server.rx[0].ring.setTail(1)
			client.tx[0].Send(packets(1, 64))
		},
	} {
		server, client := heapPair(layout{toServer: 1, toClient: 1, log2: 4, bufferSize: 2048})
		lie(server, client)
		if client.Err() != ErrIndex { //nolint:errorlint // not wrapped
			t.Errorf("%s: %v", name, client.Err())
		}
	}
}

// allocated returns the size of a file's allocated pages.
func allocated(t *testing.T, fd int) int64 {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		t.Fatal(err)
	}
	return stat.Blocks * blockSize
}

// Finding 4: a client kept the memory of each of its connections, and the pages stayed accounted to the server.
func TestMemoryOfAnEndedConnectionIsEmptied(t *testing.T) {
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

// The client must not find zeros in its rings before it gets the server's reason.
func TestMemoryIsNotEmptiedBeforeTheClientGetsTheReason(t *testing.T) {
	for name, options := range map[string]ListenOptions{
		"without a broker": {},
		"with a broker":    {Broker: newBroker(t)},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, options)
			l.parting = timeout
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
					t.Fatalf("disconnected without a reason: %s", reason)
				}
			}
			if allocated(t, fd) == 0 {
				t.Error("emptied before the client disconnected")
			}
			client.socket.Close()
			eventually(t, "the memory is emptied", func() bool { return allocated(t, fd) == 0 })
		})
	}
}

func TestMemoryOfAClientThatDoesNotDisconnectIsEmptied(t *testing.T) {
	l := newLab(t, ListenOptions{})
	i := l.addReleasing(t, hostileConfig)
	client := newLiar(t, l.Path())
	fd := client.memfd(liedSize, unix.MFD_ALLOW_SEALING)
	client.honest(fd, liedSize)
	await(t, l.connected, "connection")
	i.Disconnect("moved")
	eventually(t, "the memory is emptied", func() bool { return allocated(t, fd) == 0 })
}

// A client that allocated all its pages, for example a program's packet memory, keeps its data.
func TestFullyAllocatedMemoryIsKept(t *testing.T) {
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

// Memory without rings may belong to a program that uses it for other connections.
func TestMemoryWithoutRingsIsKept(t *testing.T) {
	l := newLab(t, ListenOptions{})
	l.add(t, hostileConfig)
	client := newLiar(t, l.Path())
	rings := client.memfd(liedSize, unix.MFD_ALLOW_SEALING)
	pool := client.memfd(liedSize, unix.MFD_ALLOW_SEALING)
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

func TestClientLeavesTheServerOnlyThePagesThatItsRingsNeed(t *testing.T) {
	const size = 1 << 22
	config := hostileConfig
	config.RxQueues = 1
	config.TxQueues = 1
	config.RingSize = 16
	if most := config.maxSparse(); most >= size {
		t.Fatalf("the limit is %d bytes", most)
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

// The limit is that of all regions together.
func TestRegionsTogetherLeaveTheServerOnlyThePagesThatItsRingsNeed(t *testing.T) {
	const size = 1 << 20
	config := hostileConfig
	config.RxQueues = 1
	config.TxQueues = 1
	config.RingSize = 16
	if most := config.maxSparse(); most < size || most >= 2*size {
		t.Fatalf("the limit is %d bytes", most)
	}
	l := newLab(t, ListenOptions{})
	l.addReleasing(t, config)
	client := newLiar(t, l.Path())
	client.say(start().encode(), -1)
	for index := range uint16(2) {
		client.say(newRegion{index: index, size: size}.encode(), client.memfd(size, unix.MFD_ALLOW_SEALING))
	}
	for _, want := range []messageType{helloMessage, ackMessage, ackMessage, disconnectMessage} {
		if kind, reason := client.answer(); kind != want {
			t.Fatalf("answered %d %q, want %d", kind, reason, want)
		}
	}
}

// heapPair returns both ends of a connection over heap memory, which the race detector and checkptr check.
func heapPair(l layout) (server, client *Conn) {
	words := make([]uint64, (l.size()+7)/8)
	base := unsafe.Pointer(unsafe.SliceData(words))
	server = newConn(&control{socket: noSocket()})
	client = newConn(&control{socket: noSocket()})
	for _, c := range []*Conn{server, client} {
		c.memory.regions = []region{{base: base, size: l.size()}}
	}
	eventfds := make([]int, l.rings())
	for i := range eventfds {
		eventfds[i] = -1
	}
	l.addQueues(client, eventfds, DefaultMaxPacket)
	for i := range l.rings() {
		r := newRing{offset: uint32(l.ringOffset(i)), log2: l.log2}
		add := server.addRx
		if i >= l.toServer {
			add = server.addTx
		}
		if err := add(r, -1, DefaultMaxPacket); err != nil {
			panic(err)
		}
	}
	return server, client
}

// way is one direction of a connection.
type way struct {
	name string
	tx   *TxQueue
	rx   *RxQueue
}

func ways(server, client *Conn) []way {
	return []way{
		{"to server", client.tx[0], server.rx[0]},
		{"to client", server.tx[0], client.rx[0]},
	}
}

// fillPattern fills packet n of a stream such that each byte can be checked.
func fillPattern(b []byte, n int) {
	for i := range b {
		b[i] = byte(n*31 + i + i>>8)
	}
}

func hasPattern(b []byte, n int) bool {
	for i := range b {
		if b[i] != byte(n*31+i+i>>8) {
			return false
		}
	}
	return true
}

func TestLayoutOfARing(t *testing.T) {
	if got := ringBytes(1024); got != 128+1024*16 {
		t.Errorf("a ring of 1024 slots takes %d bytes", got)
	}
	server, client := heapPair(layout{toServer: 1, toClient: 1, log2: 4, bufferSize: 64})
	to := client.tx[0].ring
	raw := unsafe.Slice((*byte)(to.header), 64+4)
	server.rx[0].ring.maskInterrupts(false)
	to.setHead(0x1234)
	if raw[4] != 0 || raw[6] != 0x34 || raw[7] != 0x12 {
		t.Errorf("flags and head are % x", raw[4:8])
	}
	server.rx[0].ring.maskInterrupts(true)
	server.rx[0].ring.setTail(0x5678)
	if raw[4] != 1 || to.head() != 0x1234 || raw[64] != 0x78 || raw[65] != 0x56 {
		t.Errorf("after mask and tail: % x", raw)
	}
}
