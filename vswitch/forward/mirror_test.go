package forward

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/port"
)

// mirrored adds a memif as interface 3, and mirrors to it from interface 1 (rx) and interface 2 (tx).
func (b *memifBench) mirrored(tb testing.TB, change func(*memif.ClientConfig)) *memif.Conn {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "mirror.sock")
	if err := b.engine.OpenMemif(3, port.MemifConfig{Socket: path, ID: 7}); err != nil {
		tb.Fatal(err)
	}
	c := memif.ClientConfig{Socket: path, ID: 7}
	change(&c)
	conn, err := memif.Connect(context.Background(), c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(conn.Release)
	b.await(tb, PeerConnected)
	for index, i := range map[uint32]Interface{
		1: {Up: true, MAC: portMAC, Mirrors: []Mirror{{To: 3, Rx: true}}},
		2: {Up: true, MAC: portMAC, Mirrors: []Mirror{{To: 3, Tx: true}}},
		3: {Up: true, MAC: portMAC},
	} {
		if err := b.engine.SetInterface(index, i); err != nil {
			tb.Fatal(err)
		}
	}
	b.engine.Publish()
	return conn
}

func roomFor(n int) [][]byte {
	room := make([][]byte, n)
	for i := range room {
		room[i] = make([]byte, 2048)
	}
	return room
}

func TestMirrorGetsReceivedAndSentFrames(t *testing.T) {
	b := newMemifBench(t, func(*memif.ClientConfig) {})
	b.bridge(t)
	b.teach(t)
	mirror := b.mirrored(t, func(*memif.ClientConfig) {}).RxQueues()[0]
	v := make([][]byte, 100) // more than mirrorBuffers
	for i := range v {
		v[i] = udp4("10.2.7.7", 18+10*i)
	}
	room := roomFor(len(v))
	if n, _ := b.cross(t, v, room); n != len(v) {
		t.Fatalf("%d of %d arrived", n, len(v))
	}
	copies := roomFor(2*len(v) + 1)
	if n := mirror.Receive(copies); n != 2*len(v) {
		t.Fatalf("the mirror has %d frames, want %d", n, 2*len(v))
	}
	seen := map[string]int{}
	for _, c := range copies[:2*len(v)] {
		seen[string(c)]++
	}
	for i, f := range v {
		if seen[string(f)] != 2 || !bytes.Equal(room[i], f) {
			t.Fatalf("frame %d: %d copies", i, seen[string(f)])
		}
	}
	if c := b.engine.Counters(3); c.TxPackets != uint64(2*len(v)) || c.TxErrors != 0 {
		t.Errorf("counters of the mirror: %+v", c)
	}
}

// Routed frames are rewritten in place: the mirror has them as they arrived, and as they were sent.
func TestMirrorOfRoutedFrames(t *testing.T) {
	b := newMemifBench(t, func(*memif.ClientConfig) {})
	mirror := b.mirrored(t, func(*memif.ClientConfig) {}).RxQueues()[0]
	b.route(t)
	for index, m := range map[uint32]Mirror{1: {To: 3, Rx: true}, 2: {To: 3, Tx: true}} {
		i := *b.engine.live.Load().iface(index)
		i.mirrors = newMirrors([]Mirror{m})
		b.engine.edit().put(&i)
	}
	b.engine.Publish()
	v := [][]byte{udp4("10.2.7.7", 1000)}
	room := roomFor(1)
	copies := roomFor(3)
	if n, _ := b.cross(t, v, room); n != 1 {
		t.Fatal("not routed")
	}
	if n := mirror.Receive(copies); n != 2 || !bytes.Equal(copies[0], v[0]) || !bytes.Equal(copies[1], room[0]) ||
		bytes.Equal(copies[0], copies[1]) {
		t.Errorf("%d copies: % x / % x", n, copies[0][:34], copies[1][:34])
	}
}

// A mirror whose peer does not read loses copies, and only copies.
func TestFullMirrorLosesOnlyCopies(t *testing.T) {
	b := newMemifBench(t, func(*memif.ClientConfig) {})
	b.bridge(t)
	b.teach(t)
	b.mirrored(t, func(c *memif.ClientConfig) { c.RingSize = 64 })
	v := make([][]byte, 200)
	room := roomFor(200)
	for i := range v {
		v[i] = udp4("10.2.7.7", 18)
	}
	for range 3 {
		if n, _ := b.cross(t, v, room); n != len(v) {
			t.Fatalf("%d of %d arrived", n, len(v))
		}
	}
	if c := b.engine.Counters(3); c.TxPackets != 64 || c.TxErrors != 1200-64 {
		t.Errorf("counters of the mirror: %+v", c)
	}
	if free := b.worker.countFree(); free != poolSize {
		t.Errorf("%d of %d buffers left", free, poolSize)
	}
	if n := b.engine.Drops()["memif-tx/no_free_slots"]; n != 0 {
		t.Errorf("%d drops of forwarded frames are counted", n)
	}
}

func TestMirrorAllocatesNothing(t *testing.T) {
	b := newMemifBench(t, func(*memif.ClientConfig) {})
	b.bridge(t)
	b.teach(t)
	b.mirrored(t, func(*memif.ClientConfig) {})
	v := [][]byte{udp4("10.2.7.7", 1000)}
	room := roomFor(1)
	if n := allocations(100, func() { b.cross(t, v, room) }); n != 0 {
		t.Errorf("%v allocations a vector", n)
	}
}
