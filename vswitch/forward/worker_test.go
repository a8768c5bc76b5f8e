package forward

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/weftnet/weft/vswitch/frame"
)

func TestWorkerAllocatesNothing(t *testing.T) {
	b := newBench(t)
	b.route(t, "10.61.0.0/16", Route{Paths: []Path{{Interface: 2}}})
	b.engine.Publish()
	for name, raw := range map[string][]byte{
		"forwarded IPv4":   udp4("10.2.7.7", 18),
		"forwarded IPv6":   udp6("fd02::7", 18),
		"dropped":          udp4("224.0.0.1", 18),
		"to the slow path": udp4("10.1.0.1", 18),
		"no route":         udp6("fd77::1", 18),
		"unresolved":       udp4("10.61.0.1", 18),
	} {
		if n := allocations(100, func() { b.run(raw, frame.Virtio{}, frame.VectorSize) }); n != 0 {
			t.Errorf("%s: %v allocations a vector", name, n)
		}
	}
}

// change returns a modified copy of a packet.
func change(raw []byte, f func(b []byte)) []byte {
	f(raw)
	return raw
}

// fixIPv4Checksum updates the checksum of a changed IPv4 header.
func fixIPv4Checksum(b []byte) {
	h := b[frame.EthernetLen : frame.EthernetLen+frame.IPv4Len]
	h[10] = 0
	h[11] = 0
	c := frame.Checksum(h)
	h[10] = byte(c >> 8)
	h[11] = byte(c)
}

// dropCase is a frame, and the reason for its drop.
type dropCase struct {
	reason string
	raw    []byte
	virtio frame.Virtio
}

func TestDropsAreCountedByReason(t *testing.T) {
	for _, c := range slices.Concat(bad4(), bad6(), deadEnds()) {
		t.Run(c.reason, func(t *testing.T) {
			b := newBench(t)
			b.addFailingRoutes(t)
			b.run(c.raw, c.virtio, 1)
			if n := b.engine.Drops()[c.reason]; n != 1 || b.out.sent != 0 {
				t.Errorf("%d sent, counters %+v, drops %v", b.out.sent, b.engine.Counters(1), b.engine.Drops())
			}
			if free := b.worker.countFree(); free != poolSize {
				t.Errorf("%d of %d buffers left", free, poolSize)
			}
		})
	}
}

func bad4() []dropCase {
	return []dropCase{
		{"ethernet-input/frame too short", make([]byte, 13), frame.Virtio{}},
		{"ethernet-input/l3 mac mismatch", change(udp4("10.2.7.7", 18), func(b []byte) { b[5] = 77 }), frame.Virtio{}},
		{"ethernet-input/l3 mac mismatch", change(udp6("fd02::7", 18), func(b []byte) { b[5] = 77 }), frame.Virtio{}},
		{
			"ethernet-input/unknown ethernet type", change(udp4("10.2.7.7", 18), func(b []byte) { b[12] = 0x81 }),
			frame.Virtio{},
		},
		{"ip4-input/version", change(udp4("10.2.7.7", 18), func(b []byte) { b[14] = 0x55 }), frame.Virtio{}},
		{"ip4-input/too_short", change(udp4("10.2.7.7", 18), func(b []byte) { b[14] = 0x44 }), frame.Virtio{}},
		{"ip4-input/too_short", udp4("10.2.7.7", 18)[:30], frame.Virtio{}},
		{"ip4-input/bad_length", udp4("10.2.7.7", 18)[:50], frame.Virtio{}},
		{"ip4-input/bad_checksum", change(udp4("10.2.7.7", 18), func(b []byte) { b[24]++ }), frame.Virtio{}},
		{
			"ip4-input/source address invalid",
			change(udp4("10.2.7.7", 18), func(b []byte) { b[26] = 127; fixIPv4Checksum(b) }), frame.Virtio{},
		},
		{
			"ip4-input/source address invalid",
			change(udp4("10.2.7.7", 18), func(b []byte) { b[26] = 224; fixIPv4Checksum(b) }), frame.Virtio{},
		},
		{
			"ip4-local/spoofed_local_packets",
			change(udp4("10.2.7.7", 18), func(b []byte) { b[27] = 1; fixIPv4Checksum(b) }), frame.Virtio{},
		},
		{"ip4-input/multicast or broadcast not forwarded", udp4("224.0.0.5", 18), frame.Virtio{}},
		{"ip4-input/multicast or broadcast not forwarded", udp4("255.255.255.255", 18), frame.Virtio{}},
		{
			"ip4-input/time_expired", change(udp4("10.2.7.7", 18), func(b []byte) { b[22] = 1; fixIPv4Checksum(b) }),
			frame.Virtio{},
		},
		{
			"ip4-input/time_expired", change(udp4("10.2.7.7", 18), func(b []byte) { b[22] = 0; fixIPv4Checksum(b) }),
			frame.Virtio{},
		},
		{"ethernet-input/no error", udp4("10.77.0.1", 18), frame.Virtio{}},
		{
			"ip4-input/mtu_exceeded",
			change(udp4("10.2.7.7", 1500), func(b []byte) { b[20] = 0x40; fixIPv4Checksum(b) }), frame.Virtio{},
		},
		{"ip4-frag/cant_fragment_header", udp4("10.2.7.7", 3000),
			frame.Virtio{Flags: 1, GSOType: frame.GSOUDP, GSOSize: 1490, ChecksumStart: 34, ChecksumOffset: 6}},
		{
			"virtio-input/bad virtio header", udp4("10.2.7.7", 18),
			frame.Virtio{Flags: frame.VirtioNeedsChecksum, ChecksumStart: 60},
		},
		{"virtio-input/bad virtio header", udp4("10.2.7.7", 18), frame.Virtio{GSOType: 9}},
		{
			"virtio-input/bad virtio header", udp4("10.2.7.7", 18),
			frame.Virtio{Flags: 1, GSOType: frame.GSOTCP4, GSOSize: 9, ChecksumStart: 34, ChecksumOffset: 6},
		},
		{
			"virtio-input/bad virtio header", udp6("fd02::7", 18),
			frame.Virtio{Flags: 1, GSOType: frame.GSOUDP, GSOSize: 9, ChecksumStart: 34, ChecksumOffset: 6},
		},
	}
}

func bad6() []dropCase {
	return []dropCase{
		{"ip6-input/too_short", udp6("fd02::7", 18)[:50], frame.Virtio{}},
		{"ip6-input/bad_length", udp6("fd02::7", 18)[:70], frame.Virtio{}},
		{"ip6-input/version", change(udp6("fd02::7", 18), func(b []byte) { b[14] = 0x40 }), frame.Virtio{}},
		{"ip6-input/source address invalid", udp6("::1", 18), frame.Virtio{}},
		{
			"ip6-input/source address invalid", change(udp6("fd02::7", 18), func(b []byte) { clear(b[22:38]) }),
			frame.Virtio{},
		},
		{
			"ip6-input/source address invalid", change(udp6("fd02::7", 18), func(b []byte) { b[22] = 0xff }),
			frame.Virtio{},
		},
		{"ip6-local/spoofed_local_packets", change(udp6("fd02::7", 18), func(b []byte) { b[23] = 1 }), frame.Virtio{}},
		{
			"ip6-input/multicast not forwarded", change(udp6("ff02::9", 18), func(b []byte) { b[0] = 0x33 }),
			frame.Virtio{},
		},
		{"ip6-input/link-local not forwarded", udp6("fe80::77", 18), frame.Virtio{}},
		{"ip6-input/link-local not forwarded", change(udp6("fd02::7", 18), func(b []byte) {
			b[22] = 0xfe
			b[23] = 0x80
		}), frame.Virtio{}},
		{"ip6-input/time_expired", change(udp6("fd02::7", 18), func(b []byte) { b[21] = 1 }), frame.Virtio{}},
		{"ethernet-input/no error", udp6("fd77::1", 18), frame.Virtio{}},
		{"ip6-input/mtu_exceeded", udp6("fd02::7", 1500), frame.Virtio{}},
	}
}

func deadEnds() []dropCase {
	return []dropCase{
		{"ethernet-input/no error", udp4("10.66.1.1", 18), frame.Virtio{}},
		{"ethernet-input/no error", udp4("10.66.1.2", 18), frame.Virtio{}},
		{"ethernet-input/no error", udp4("10.66.1.3", 18), frame.Virtio{}},
		{"ip-lookup/loop between tables", udp4("10.66.1.4", 18), frame.Virtio{}},
		{"interface-output/interface is down", udp4("10.66.1.5", 18), frame.Virtio{}},
		{"interface-output/interface is deleted", udp4("10.66.1.6", 18), frame.Virtio{}},
	}
}

// addFailingRoutes adds routes that do not forward, for different reasons.
func (b *bench) addFailingRoutes(t *testing.T) {
	t.Helper()
	b.route(t, "10.66.1.1/32", Route{Action: Drop})
	b.route(t, "10.66.1.2/32", Route{Action: Unreachable})
	b.route(t, "10.66.1.3/32", Route{Action: Prohibit})
	b.route(t, "10.66.1.4/32", Route{Paths: []Path{{Interface: NoInterface}}})
	b.route(t, "10.66.1.5/32", Route{Paths: []Path{{Interface: 99}}})
	b.route(t, "10.66.1.6/32", Route{Paths: []Path{{Interface: 7}}})
	if err := b.engine.SetInterface(7, Interface{Up: true}); err != nil {
		t.Fatal(err)
	}
	if err := b.engine.SetNeighbour(7, netip.MustParseAddr("10.66.1.6"), podMAC, true); err != nil {
		t.Fatal(err)
	}
	b.engine.Publish()
}

func TestGSOFrameIsForwardedByItsSegmentSize(t *testing.T) {
	for _, c := range []struct {
		rule string
		size uint16
		sent int
	}{
		{"segments fit the MTU", 1500 - frame.IPv4Len - frame.UDPLen, 1},
		{"segments exceed the MTU", 1500 - frame.IPv4Len - frame.UDPLen + 1, 0},
	} {
		t.Run(c.rule, func(t *testing.T) {
			b := newBench(t)
			v := frame.Virtio{
				Flags:          1,
				GSOType:        frame.GSOUDP,
				HeaderLen:      42,
				GSOSize:        c.size,
				ChecksumStart:  34,
				ChecksumOffset: 6,
			}
			length := 0
			b.out.show = func(raw []byte, got frame.Virtio) {
				length = len(raw)
				if got != v {
					t.Errorf("virtio header %+v became %+v", v, got)
				}
			}
			raw := udp4("10.2.7.7", 40000)
			b.run(raw, v, 1)
			if b.out.sent != c.sent || length != c.sent*len(raw) {
				t.Errorf("%d sent, %d bytes", b.out.sent, length)
			}
		})
	}
}

func TestRoutesResolveThroughTables(t *testing.T) {
	b := newBench(t)
	blue := TableKey{IP4, 9}
	if err := b.engine.SetRoute(blue, netip.MustParsePrefix("0.0.0.0/0"), Route{}); !errors.Is(err, ErrNoTable) {
		t.Errorf("route in no table: %v", err)
	}
	b.engine.AddTable(blue)
	b.route(t, "10.50.0.0/16", Route{Paths: []Path{{Interface: NoInterface, Table: 9}}})
	through := Route{Paths: []Path{{Interface: 2, NextHop: netip.MustParseAddr("10.2.0.1")}}}
	if err := b.engine.SetRoute(blue, netip.MustParsePrefix("10.50.1.0/24"), through); err != nil {
		t.Fatal(err)
	}
	b.run(udp4("10.50.1.1", 18), frame.Virtio{}, 1)
	if b.out.sent != 0 {
		t.Error("seen before Publish")
	}
	b.engine.Publish()
	b.run(udp4("10.50.1.1", 18), frame.Virtio{}, 1)
	if b.out.sent != 1 {
		t.Errorf("not forwarded; drops %v", b.engine.Drops())
	}
	b.engine.DelTable(blue)
	b.engine.Publish()
	b.run(udp4("10.50.1.1", 18), frame.Virtio{}, 1)
	if b.out.sent != 1 || b.engine.Drops()["ethernet-input/no error"] != 2 {
		t.Errorf("%d sent after DelTable; drops %v", b.out.sent, b.engine.Drops())
	}
}

func TestFlowsSpreadByWeight(t *testing.T) {
	b := newBench(t)
	paths := []Path{
		{Interface: 2, NextHop: netip.MustParseAddr("10.2.0.1"), Weight: 3},
		{Interface: 2, NextHop: netip.MustParseAddr("10.2.0.2"), Weight: 1},
	}
	b.route(t, "10.60.0.0/16", Route{Paths: paths})
	other := frame.MAC{2, 0, 0, 0, 0, 8}
	if err := b.engine.SetNeighbour(2, paths[1].NextHop, other, true); err != nil {
		t.Fatal(err)
	}
	b.engine.Publish()
	seen := map[frame.MAC]int{}
	b.out.show = func(raw []byte, _ frame.Virtio) { seen[frame.Ethernet(raw).Destination()]++ }
	for i := range 1000 {
		raw := udp4("10.60.1.1", 18)
		raw[34] = byte(i >> 8)
		raw[35] = byte(i)
		b.run(raw, frame.Virtio{}, 2)
	}
	if seen[podMAC] < 1300 || seen[other] < 300 || seen[podMAC]+seen[other] != 2000 || seen[podMAC]%2 != 0 {
		t.Errorf("paths took %v", seen)
	}
}

func TestDynamicNeighbourDoesNotReplaceAStaticOne(t *testing.T) {
	b := newBench(t)
	a := netip.MustParseAddr("10.2.0.1")
	if err := b.engine.SetNeighbour(2, a, frame.MAC{6}, false); err != nil {
		t.Fatal(err)
	}
	b.engine.Publish()
	if n, ok := b.engine.live.Load().iface(2).neighbour(a); !ok || n.mac != podMAC || !n.static {
		t.Errorf("neighbour %+v", n)
	}
}

// countFree returns the number of buffers that no frame uses.
func (w *worker) countFree() int {
	all := make([]*frame.Buffer, poolSize)
	pooled := all[:w.tx.pool.Take(all)]
	w.tx.pool.Put(pooled)
	return len(pooled) + len(w.buffers.empty)
}
