package forward

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// memoryPort is a port in memory: it receives prepared frames, and counts or records transmitted ones.
type memoryPort struct {
	event   int // always readable
	frame   []byte
	virtio  frame.Virtio
	waiting int
	sent    int
	show    func([]byte, frame.Virtio)
	takes   port.Offload
	each    func([]byte) // changes a received frame
}

func newMemoryPort() (*memoryPort, error) {
	fd, err := unix.Eventfd(1, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	return &memoryPort{event: fd, takes: port.Offload{Checksum: true, TCP: true, UDP: true}}, err
}

func (p *memoryPort) Receive(v []*frame.Buffer) (int, error) {
	n := min(len(v), p.waiting)
	p.waiting -= n
	for _, b := range v[:n] {
		b.SetLen(copy(b.Room(), p.frame))
		if p.each != nil {
			p.each(b.Bytes())
		}
		b.Virtio = p.virtio
	}
	return n, nil
}

func (p *memoryPort) Transmit(v []*frame.Buffer) (int, error) {
	p.sent += len(v)
	if p.show != nil {
		for _, b := range v {
			p.show(b.Bytes(), b.Virtio)
		}
	}
	return len(v), nil
}

func (p *memoryPort) Offload() port.Offload { return p.takes }

func (p *memoryPort) Descriptor() int { return p.event }
func (p *memoryPort) Arm(bool) bool   { return false }
func (p *memoryPort) Close() error    { return unix.Close(p.event) }

var (
	portMAC = frame.MAC{2, 0, 0, 0, 0, 1}
	podMAC  = frame.MAC{2, 0, 0, 0, 0, 9}
)

// own are the addresses of both interfaces of a bench.
var own = []netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd01::1")}

// bench is an engine with memory ports on interfaces 1 and 2; the test drives its worker.
type bench struct {
	engine  *Engine
	worker  *worker
	in, out *memoryPort
}

func newBench(tb testing.TB) *bench {
	tb.Helper()
	e, err := New(Config{})
	if err != nil {
		tb.Fatal(err)
	}
	b := &bench{engine: e, worker: e.workers[0]}
	for index, p := range []**memoryPort{&b.in, &b.out} {
		if *p, err = newMemoryPort(); err != nil {
			tb.Fatal(err)
		}
		if err := e.supervisor.add(uint32(index+1), func() (vectorPort, error) { return *p, nil }); err != nil {
			tb.Fatal(err)
		}
	}
	b.configure(tb)
	tb.Cleanup(func() {
		close(e.stopped)
		_ = e.supervisor.closeAll()
		e.free()
	})
	return b
}

// configure routes 10.2.0.0/16 and fd02::/16 to interface 2 by one next hop, with 10.1.0.1 and fd01::1 as local
// addresses.
func (b *bench) configure(tb testing.TB) {
	tb.Helper()
	for index := uint32(1); index <= 2; index++ {
		err := b.engine.SetInterface(index, Interface{Up: true, MAC: portMAC, Addresses: own, IP6Enabled: true})
		if err != nil {
			tb.Fatal(err)
		}
	}
	for _, r := range []struct{ prefix, nextHop string }{{"10.2.0.0/16", "10.2.0.1"}, {"fd02::/16", "fe80::2"}} {
		next := netip.MustParseAddr(r.nextHop)
		b.route(tb, r.prefix, Route{Paths: []Path{{Interface: 2, NextHop: next}}})
		if err := b.engine.SetNeighbour(2, next, podMAC, true); err != nil {
			tb.Fatal(err)
		}
	}
	b.route(tb, "10.1.0.1/32", Route{Action: Local})
	b.route(tb, "fd01::1/128", Route{Action: Local})
	b.engine.Publish()
}

func (b *bench) route(tb testing.TB, prefix string, r Route) {
	tb.Helper()
	p := netip.MustParsePrefix(prefix)
	if err := b.engine.SetRoute(TableKey{Family: FamilyOf(p.Addr())}, p, r); err != nil {
		tb.Fatal(err)
	}
}

// udp4 returns a frame from 10.9.0.1 to destination with a payload of size bytes.
func udp4(destination string, size int) []byte {
	b := make([]byte, frame.EthernetLen+frame.IPv4Len+frame.UDPLen+size)
	frame.PutEthernet(b, portMAC, podMAC, frame.TypeIPv4)
	frame.PutIPv4(b[frame.EthernetLen:], frame.IPFields{
		TTL: 64, Protocol: frame.ProtocolUDP, Source: netip.MustParseAddr("10.9.0.1"),
		Destination: netip.MustParseAddr(destination), PayloadLen: frame.UDPLen + size,
	})
	putUDP(b[frame.EthernetLen+frame.IPv4Len:])
	return b
}

func udp6(destination string, size int) []byte {
	b := make([]byte, frame.EthernetLen+frame.IPv6Len+frame.UDPLen+size)
	frame.PutEthernet(b, portMAC, podMAC, frame.TypeIPv6)
	frame.PutIPv6(b[frame.EthernetLen:], frame.IPFields{
		TTL: 64, Protocol: frame.ProtocolUDP, Source: netip.MustParseAddr("fd09::1"),
		Destination: netip.MustParseAddr(destination), PayloadLen: frame.UDPLen + size,
	})
	putUDP(b[frame.EthernetLen+frame.IPv6Len:])
	return b
}

func putUDP(b []byte) {
	binary.BigEndian.PutUint16(b, 4000)
	binary.BigEndian.PutUint16(b[2:], 5000)
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
}

func (b *bench) run(raw []byte, v frame.Virtio, n int) {
	b.in.frame = raw
	b.in.virtio = v
	b.in.waiting = n
	for b.in.waiting > 0 {
		b.worker.round()
	}
}

func BenchmarkForward(tb *testing.B) {
	for name, raw := range map[string][]byte{"ip4": udp4("10.2.7.7", 18), "ip6": udp6("fd02::7", 18)} {
		tb.Run(name, func(tb *testing.B) {
			b := newBench(tb)
			tb.ReportAllocs()
			tb.ResetTimer()
			b.run(raw, frame.Virtio{}, tb.N)
			if b.out.sent != tb.N {
				tb.Fatalf("%d of %d sent; drops %v", b.out.sent, tb.N, b.engine.Drops())
			}
		})
	}
}

func BenchmarkLookup(tb *testing.B) {
	b := newBench(tb)
	for i := range 1000 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 32)
		if err := b.engine.SetRoute(TableKey{Family: IP4}, p, Route{Action: Drop}); err != nil {
			tb.Fatal(err)
		}
		a := netip.AddrFrom16([16]byte{0xfd, 0, 14: byte(i >> 8), 15: byte(i)})
		if err := b.engine.SetRoute(TableKey{Family: IP6}, netip.PrefixFrom(a, 128), Route{Action: Drop}); err != nil {
			tb.Fatal(err)
		}
	}
	b.engine.Publish()
	s := b.engine.live.Load()
	for name, a := range map[string]string{
		"ip4 host":   "10.1.2.3",
		"ip4 prefix": "10.2.2.3",
		"ip6 host":   "fd00::203",
		"ip6 prefix": "fd02::203",
	} {
		tb.Run(name, func(tb *testing.B) {
			a := netip.MustParseAddr(a)
			slot := s.slot(TableKey{Family: FamilyOf(a)})
			for tb.Loop() {
				if s.lookup(slot, a) == nil {
					tb.Fatal("no route")
				}
			}
		})
	}
}

func BenchmarkSetRouteAndPublish(tb *testing.B) {
	b := newBench(tb)
	for i := 0; tb.Loop(); i++ {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 32)
		if err := b.engine.SetRoute(TableKey{Family: IP4}, p, Route{Action: Drop}); err != nil {
			tb.Fatal(err)
		}
		b.engine.Publish()
	}
}
