package forward

import (
	"net/netip"
	"testing"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/frame"
)

func TestMemifsAllocateNothing(t *testing.T) {
	for name, wire := range map[string]func(*memifBench, testing.TB){
		"bridged": (*memifBench).bridge,
		"routed":  (*memifBench).route,
	} {
		b := newMemifBench(t, func(c *memif.ClientConfig) { c.RxQueues = 2 })
		wire(b, t)
		b.teach(t)
		v := make([][]byte, 64)
		room := make([][]byte, 64)
		for i := range v {
			v[i] = udp4("10.2.7.7", 18)
			room[i] = make([]byte, 2048)
		}
		if n := allocations(100, func() {
			if n, _ := b.cross(t, v, room); n != len(v) {
				t.Fatalf("%d of %d arrived; drops %v", n, len(v), b.engine.Drops())
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations a vector", name, n)
		}
	}
}

// A frame without room in its client's ring is dropped and counted, and others are not affected.
func TestFramesToAFullRingAreCounted(t *testing.T) {
	b := newMemifBench(t, func(c *memif.ClientConfig) { c.RingSize = 64 })
	b.bridge(t)
	b.teach(t)
	v := make([][]byte, 48)
	for i := range v {
		v[i] = udp4("10.2.7.7", 18)
	}
	for range 2 {
		if n := b.clients[0].TxQueues()[0].Send(v); n != len(v) {
			t.Fatalf("%d of %d fit", n, len(v))
		}
		b.ring()
		for b.worker.round() {
		}
	}
	if n, c := b.engine.Drops()["memif-tx/no_free_slots"], b.engine.Counters(2); n != 32 || c.TxPackets != 64 ||
		c.TxErrors != 32 {
		t.Errorf("%d dropped, counters %+v", n, c)
	}
	if free := b.worker.countFree(); free != poolSize {
		t.Errorf("%d of %d buffers left", free, poolSize)
	}
}

// Missing checksums and segmentation are completed before a client gets a frame.
func TestMemifGetsCompleteFrames(t *testing.T) {
	b := newMemifBench(t, func(*memif.ClientConfig) {})
	b.route(t)
	from, err := newMemoryPort()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.engine.supervisor.add(3, func() (vectorPort, error) { return from, nil }); err != nil {
		t.Fatal(err)
	}
	if err := b.engine.SetInterface(3, Interface{
		Up:        true,
		MAC:       portMAC,
		Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.1")},
	}); err != nil {
		t.Fatal(err)
	}
	b.engine.Publish()
	from.frame = tcp4Segments(5000)
	from.waiting = 1
	from.virtio = frame.Virtio{
		Flags:          frame.VirtioNeedsChecksum,
		GSOType:        frame.GSOTCP4,
		HeaderLen:      54,
		GSOSize:        1400,
		ChecksumStart:  34,
		ChecksumOffset: 16,
	}
	for from.waiting > 0 {
		b.worker.round()
	}
	room := make([][]byte, 8)
	for i := range room {
		room[i] = make([]byte, 2048)
	}
	n := b.clients[1].RxQueues()[0].Receive(room)
	if n != 4 {
		t.Fatalf("%d segments; drops %v", n, b.engine.Drops())
	}
	for i, raw := range room[:n] {
		p, err := frame.ParseIPv4(raw[frame.EthernetLen:])
		if err != nil || !p.ChecksumValid() || frame.Sum(p.Payload(), pseudo4(p)) != 0xffff {
			t.Errorf("segment %d of %d bytes: %v", i, len(raw), err)
		}
	}
}

func pseudo4(p frame.IPv4) uint16 {
	return frame.Sum(p[12:20], uint16(p.Protocol())+uint16(len(p.Payload())))
}

// tcp4Segments returns a GSO frame to 10.2.7.7.
func tcp4Segments(payload int) []byte {
	b := make([]byte, frame.EthernetLen+frame.IPv4Len+20+payload)
	frame.PutEthernet(b, portMAC, podMAC, frame.TypeIPv4)
	frame.PutIPv4(b[frame.EthernetLen:], frame.IPFields{
		TTL:         64,
		Protocol:    frame.ProtocolTCP,
		Source:      netip.MustParseAddr("10.9.0.1"),
		Destination: netip.MustParseAddr("10.2.7.7"), PayloadLen: 20 + payload,
	})
	b[frame.EthernetLen+frame.IPv4Len+12] = 5 << 4
	return b
}
