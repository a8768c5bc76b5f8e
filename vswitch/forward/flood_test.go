package forward

import (
	"testing"

	"github.com/weftnet/weft/vswitch/frame"
)

// run receives n frames on an interface and does not record transmitted ones.
func (s *segment) run(on uint32, raw []byte, n int) {
	for _, p := range s.ports {
		p.show = nil
	}
	p := s.ports[on]
	for p.frame, p.waiting = raw, n; p.waiting > 0; {
		s.worker.round()
	}
}

func (s *segment) sent() (n int) {
	for _, p := range s.ports {
		n += p.sent
	}
	return n
}

func TestBridgingAllocatesNothing(t *testing.T) {
	s := newRouted(t)
	s.reached(2, host(2), frame.Broadcast)
	moving := uint16(0)
	for name, raw := range map[string]func() []byte{
		"to one member":   func() []byte { return between(host(1), host(2)) },
		"flooded":         func() []byte { return between(host(1), frame.Broadcast) },
		"to the BVI":      func() []byte { return packet(host(1), bviMAC, "10.2.7.7") },
		"to the BVI's IP": func() []byte { return packet(host(1), bviMAC, "10.9.0.254") },
		"in a storm": func() []byte {
			s.worker.snapshot.iface(1).floods[0].tokens = 0
			return between(host(1), frame.Broadcast)
		},
		"dropped": func() []byte { return between(bviMAC, host(2)) },
		"learned": func() []byte { moving++; return between(frame.MAC{6, byte(moving >> 8), byte(moving)}, host(2)) },
	} {
		frames := make([][]byte, measurements*110)
		for i := range frames {
			frames[i] = raw()
		}
		next := 0
		if n := allocations(100, func() { s.now++; s.run(1, frames[next], frame.VectorSize); next++ }); n != 0 {
			t.Errorf("%s: %v allocations a vector", name, n)
		}
	}
}

func TestFloodingBeyondThePoolLosesNothing(t *testing.T) {
	b := plain(1)
	s := newSegment(t)
	for index := uint32(1); index <= segmentPorts; index++ {
		b.Members = append(b.Members, BridgeMember{Interface: index})
	}
	for index := uint32(20); index < 50; index++ {
		s.addPort(index)
		b.Members = append(b.Members, BridgeMember{Interface: index})
	}
	s.change(b)
	s.run(1, between(host(1), frame.Broadcast), frame.VectorSize)
	if want := frame.VectorSize * (len(b.Members) - 1); s.sent() != want {
		t.Errorf("%d copies, want %d; drops %v", s.sent(), want, s.engine.Drops())
	}
	if free := s.worker.countFree(); free != poolSize {
		t.Errorf("%d of %d buffers left", free, poolSize)
	}
}

func BenchmarkBridge(b *testing.B) {
	for name, to := range map[string]frame.MAC{"known": host(2), "flooded to two": frame.Broadcast} {
		b.Run(name, func(b *testing.B) {
			s := newSegment(b, plain(1, 1, 2, 3))
			s.worker.l2.storm.limit = 0
			s.reached(2, host(2), frame.Broadcast)
			b.ReportAllocs()
			b.ResetTimer()
			s.run(1, append(between(host(1), to), 0, 0, 0, 0), b.N)
			if s.sent() < b.N {
				b.Fatalf("%d of %d sent; drops %v", s.sent(), b.N, s.engine.Drops())
			}
		})
	}
}
