package forward

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/frame"
)

// received is a received frame.
func received(t testing.TB, raw []byte, v frame.Virtio) *frame.Buffer {
	t.Helper()
	b := frame.NewPool(frame.BufferSize, 1).One()
	if !b.Borrow(0, raw) {
		t.Fatalf("%d bytes do not fit", len(raw))
	}
	b.Virtio = v
	return b
}

// fastPathAgrees checks that the fast path, if it takes a frame, decides as the full path does.
func fastPathAgrees(t testing.TB, w *worker, f delivery) (taken bool) {
	t.Helper()
	in := f.on
	raw := f.raw
	v := f.virtio
	w.routes.use(w.snapshot)
	from := w.snapshot.iface(in)
	s, ok := w.fastPath(from)
	short := received(t, raw, v)
	long := received(t, raw, v)
	if !ok || !s.tryForward(short) {
		return false
	}
	if d := w.input(from, long); d != (verdict{out: s.out}) || !bytes.Equal(short.Bytes(), long.Bytes()) ||
		short.Virtio != long.Virtio {
		t.Errorf("%x from %d:\nthe fast path sends %x to %d,\nthe full path %x with %+v", raw, in, short.Bytes(),
			s.out.index, long.Bytes(), d)
	}
	if s.port != w.ports.at(s.out.index) {
		t.Errorf("to %d by another one's port", s.out.index)
	}
	return true
}

func FuzzFastPath(f *testing.F) {
	for _, raw := range seeds() {
		f.Add(raw, true, uint8(0), uint8(0), false)
		f.Add(raw, false, uint8(frame.VirtioNeedsChecksum), uint8(0), true)
	}
	b := newBench(f)
	b.route(f, "10.2.7.0/24", Route{Paths: []Path{{Interface: 2}}})
	if err := b.engine.SetNeighbour(2, netip.MustParseAddr("10.2.7.7"), podMAC, true); err != nil {
		f.Fatal(err)
	}
	b.engine.Publish()
	s := newRouted(f)
	f.Fuzz(func(t *testing.T, raw []byte, mend bool, flags, gso uint8, first bool) {
		if len(raw) > 2<<10 {
			return
		}
		if mend {
			raw = withValidHeaders(raw)
		}
		v := frame.Virtio{Flags: flags, GSOType: gso, GSOSize: 500, ChecksumStart: 34, ChecksumOffset: 6}
		b.worker.refresh()
		fastPathAgrees(t, b.worker, delivery{1, raw, v})
		// The full path learns MACs first, because the fast path requires that.
		in := uint32(2)
		if first {
			in = 1
		}
		s.receive(in, raw, v)
		fastPathAgrees(t, s.worker, delivery{in, raw, v})
	})
}

func TestPlainFramesTakeTheFastPath(t *testing.T) {
	b := newBench(t)
	b.worker.refresh()
	for name, c := range map[string]struct {
		raw  []byte
		want bool
	}{
		"plain":     {udp4("10.2.7.7", 18), true},
		"long":      {udp4("10.2.7.7", 1400), true},
		"padded":    {append(udp4("10.2.7.7", 1), 0, 0, 0), true},
		"above MTU": {udp4("10.2.7.7", 1600), false},
		"for us":    {udp4("10.1.0.1", 18), false},
		"no route":  {udp4("10.99.0.1", 18), false},
		"expired":   {change(udp4("10.2.7.7", 18), func(b []byte) { b[22] = 1; fixIPv4Checksum(b) }), false},
		"bad sum":   {change(udp4("10.2.7.7", 18), func(b []byte) { b[24]++ }), false},
		"spoofed": {
			change(udp4("10.2.7.7", 18), func(b []byte) { copy(b[26:], []byte{10, 1, 0, 1}); fixIPv4Checksum(b) }),
			false,
		},
		"from a group": {change(udp4("10.2.7.7", 18), func(b []byte) { b[26] = 224; fixIPv4Checksum(b) }), false},
		"not our MAC":  {change(udp4("10.2.7.7", 18), func(b []byte) { b[5]++ }), false},
		"too short":    {udp4("10.2.7.7", 18)[:30], false},
		"IPv6":         {udp6("fd02::7", 18), false},
	} {
		if got := fastPathAgrees(t, b.worker, delivery{1, c.raw, frame.Virtio{}}); got != c.want {
			t.Errorf("%s: taken %v", name, got)
		}
	}
}

// The broadcast address is in a block of which other addresses can be routed.
func TestFastPathDoesNotForwardTheLimitedBroadcast(t *testing.T) {
	b := newBench(t)
	b.route(t, "0.0.0.0/0", Route{Paths: []Path{{Interface: 2, NextHop: netip.MustParseAddr("10.2.0.1")}}})
	b.engine.Publish()
	b.worker.refresh()
	for destination, want := range map[string]bool{
		"255.255.255.254": true,
		"255.255.255.255": false,
		"0.0.0.1":         true,
		"0.0.0.0":         false,
	} {
		for range 2 {
			if got := fastPathAgrees(t, b.worker, delivery{1, udp4(destination, 18), frame.Virtio{}}); got != want {
				t.Errorf("%s: taken %v", destination, got)
			}
		}
	}
}

// The cache returns the same results as tables and neighbours, whatever it was asked before.
func TestRouteCacheMatchesTables(t *testing.T) {
	b := newBench(t)
	e := b.engine
	table := TableKey{IP4, 7}
	neighbours := []netip.Addr{
		netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.1.255"), netip.MustParseAddr("10.0.1.3"),
	}
	rapid.Check(t, func(r *rapid.T) {
		e.DelTable(table)
		e.AddTable(table)
		address := rapid.Custom(func(r *rapid.T) netip.Addr {
			return netip.AddrFrom4([4]byte{
				10, 0, rapid.Byte().Draw(r, "block") % 2, rapid.SampledFrom([]byte{0, 1, 2, 255}).Draw(r, "host"),
			})
		})
		for range rapid.IntRange(1, 30).Draw(r, "steps") {
			p := netip.PrefixFrom(address.Draw(r, "address"),
				rapid.SampledFrom([]int{0, 8, 23, 24, 25, 31, 32}).Draw(r, "bits")).Masked()
			switch rapid.IntRange(0, 4).Draw(r, "what") {
			case 4:
				if err := e.SetInterface(2, Interface{Up: rapid.Bool().Draw(r, "up"), MAC: portMAC}); err != nil {
					r.Fatal(err)
				}
			case 0, 1:
				if err := e.SetRoute(table, p, someRoute(r, neighbours)); err != nil {
					r.Fatal(err)
				}
			case 2:
				e.DelRoute(table, p)
			case 3:
				n := rapid.SampledFrom(neighbours).Draw(r, "neighbour")
				if e.DelNeighbour(2, n); rapid.Bool().Draw(r, "known") {
					if err := e.SetNeighbour(2, n, frame.MAC{2, 0, 0, 9, 9, byte(rapid.IntRange(1, 3).Draw(r, "mac"))},
						true); err != nil {
						r.Fatal(err)
					}
				}
			}
			e.Publish()
			b.worker.refresh()
			s := b.worker.snapshot
			b.worker.routes.use(s)
			for range 16 {
				compareRoute(r, b.worker, s.slot(table), address.Draw(r, "asked"))
			}
		}
	})
}

func someRoute(r *rapid.T, neighbours []netip.Addr) Route {
	path := Path{Interface: 2}
	switch rapid.IntRange(0, 5).Draw(r, "kind") {
	case 0:
		return Route{Action: rapid.SampledFrom([]Action{Local, Drop, Unreachable}).Draw(r, "action")}
	case 1:
		return Route{Paths: []Path{{Interface: 2, NextHop: neighbours[0]}, {Interface: 1, NextHop: neighbours[0]}}}
	case 2:
		path.Interface = NoInterface
		path.Table = rapid.SampledFrom([]uint32{0, 7}).Draw(r, "table")
	}
	if rapid.Bool().Draw(r, "by a next hop") {
		path.NextHop = rapid.SampledFrom(neighbours).Draw(r, "next hop")
	}
	return Route{Paths: []Path{path}}
}

// compareRoute compares the route to a destination with and without the cache.
func compareRoute(r *rapid.T, w *worker, slot int, a netip.Addr) {
	raw := a.As4()
	got := w.routes.lookup(slot, binary.BigEndian.Uint32(raw[:]))
	header := make(frame.IPv4, frame.IPv4Len)
	out, target, _ := resolveRoute(w.snapshot, slot, a, header)
	if direct := w.snapshot.cacheableRoute(slot, binary.BigEndian.Uint32(raw[:])); got.out != direct.out ||
		got.first != direct.first || got.rest != direct.rest {
		r.Fatalf("%v: the cache says %+v, the tables %+v", a, got, direct)
	}
	if got.out == nil {
		return // the full path decides
	}
	if out == nil {
		r.Fatalf("%v: the cache says %+v, the tables forward no packet", a, got)
	}
	n, ok := out.neighbour(target)
	if !ok || out != got.out || n.mac != frame.MAC(binary.LittleEndian.AppendUint64(nil, got.first)) {
		r.Fatalf("%v: the cache says %+v, find %+v by %v", a, got, out, target)
	}
}

// Frames to one port keep their order, whichever path they take.
func TestFastPathKeepsTheOrder(t *testing.T) {
	b := newMemifBench(t, func(*memif.ClientConfig) {})
	b.bridge(t)
	b.teach(t)
	v := make([][]byte, 200)
	room := make([][]byte, 200)
	for i := range v {
		v[i] = udp4("10.2.7.7", 100+i)
		room[i] = make([]byte, 2048)
		copy(v[i][6:], []byte{2, 9, 9, 9, 9, byte(i / 7 % 2 * i)}) // sometimes an unknown source
		binary.BigEndian.PutUint16(v[i][42:], uint16(i))
	}
	for round := range 2 {
		if n, _ := b.cross(t, v, room); n != len(v) {
			t.Fatalf("%d of %d arrived; drops %v", n, len(v), b.engine.Drops())
		}
		for i := range v {
			if !bytes.Equal(room[i], v[i]) {
				t.Fatalf("round %d: frame %d is %x", round, i, room[i])
			}
		}
	}
}

// Frames arrive unchanged, whatever the sizes of frames and of the peers' buffers.
func TestMemifsForwardFramesOfAnySize(t *testing.T) {
	for _, size := range []int{128, 256, 2048} {
		t.Run(fmt.Sprintf("buffers of %d", size), func(t *testing.T) {
			b := newMemifBench(t, func(c *memif.ClientConfig) { c.BufferSize = size })
			b.bridge(t)
			b.teach(t)
			var v, room [][]byte
			for n := 0; n <= 1600; n += 17 {
				v = append(v, udp4("10.2.7.7", n))
				room = append(room, make([]byte, 4096))
			}
			for first := 0; first < len(v); first += 16 { // chains take many slots
				some := v[first:min(first+16, len(v))]
				if n, _ := b.cross(t, some, room); n != len(some) {
					t.Fatalf("%d of %d arrived; drops %v", n, len(some), b.engine.Drops())
				}
				for i := range some {
					if !bytes.Equal(room[i], some[i]) {
						t.Fatalf("frame of %d bytes became %x", len(some[i]), room[i])
					}
				}
			}
			if free := b.worker.countFree(); free != poolSize {
				t.Errorf("%d of %d buffers left", free, poolSize)
			}
		})
	}
}
