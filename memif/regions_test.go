package memif

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestRingsAndBuffersInSeveralRegions is the layout of clients that hand out their own packet memory without copying:
// rings in the first region, buffers anywhere in the others.
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
	out, in := rings.newRing(base, 0), rings.newRing(base, 1)
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

// bytes is what a descriptor of the client's points at.
func (l *liar) bytes(d descriptor) []byte {
	at, verdict := l.memory.at(d)
	if verdict != good {
		l.t.Fatalf("descriptor %+v", d)
	}
	return unsafe.Slice((*byte)(at), d.length)
}

func TestClientEndsWhatAServerLiesAbout(t *testing.T) {
	for name, lie := range map[string]func(server, client *Conn){
		"packets that were not asked for": func(server, client *Conn) {
			server.tx[0].ring.setTail(17)
			client.rx[0].Receive(buffers(1))
		},
		"packets taken back": func(server, client *Conn) {
			server.tx[0].Send(packets(4, 64))
			client.rx[0].Receive(buffers(4))
			server.tx[0].ring.setTail(2)
			client.rx[0].Receive(buffers(4))
		},
		"slots freed that were not sent": func(server, client *Conn) {
			server.rx[0].ring.setTail(1)
			client.tx[0].Send(packets(1, 64))
		},
	} {
		server, client := heapPair(layout{toServer: 1, toClient: 1, log2: 4, bufferSize: 2048})
		lie(server, client)
		if client.Err() != ErrIndex { //nolint:errorlint // it is not wrapped
			t.Errorf("%s: %v", name, client.Err())
		}
	}
}
