package forward

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weftnet/weft/vswitch/frame"
)

// segment is an engine with memory ports on interfaces 1 to 6 and bviIndex, an interface without a port; the test
// drives its worker.
type segment struct {
	tb     testing.TB
	engine *Engine
	worker *worker
	ports  map[uint32]*memoryPort
	seen   []delivery
	now    uint32
}

// delivery is a transmitted frame.
type delivery struct {
	on     uint32
	raw    []byte
	virtio frame.Virtio
}

const (
	segmentPorts = 6
	bviIndex     = 9
)

var bviMAC = frame.MAC{2, 0, 0, 0, 0, 0xb1}

func newSegment(tb testing.TB, bridges ...Bridge) *segment {
	tb.Helper()
	e, err := New(Config{})
	if err != nil {
		tb.Fatal(err)
	}
	s := &segment{tb: tb, engine: e, worker: e.workers[0], ports: map[uint32]*memoryPort{}, now: 1000}
	s.worker.l2.fib.clock = func() uint32 { return s.now }
	for index := uint32(1); index <= segmentPorts; index++ {
		s.addPort(index)
	}
	s.set(bviIndex, Interface{
		Up:         true,
		MAC:        bviMAC,
		Addresses:  []netip.Addr{netip.MustParseAddr("10.9.0.254")},
		IP6Enabled: true,
		LinkLocal:  netip.MustParseAddr("fe80::b1"),
	})
	for _, b := range bridges {
		if err := e.SetBridge(b); err != nil {
			tb.Fatal(err)
		}
	}
	e.Publish()
	tb.Cleanup(func() {
		close(e.stopped)
		_ = e.supervisor.closeAll()
		e.free()
	})
	return s
}

func (s *segment) addPort(index uint32) {
	s.tb.Helper()
	p, err := newMemoryPort()
	if err != nil {
		s.tb.Fatal(err)
	}
	s.ports[index] = p
	p.show = func(raw []byte, v frame.Virtio) { s.seen = append(s.seen, delivery{index, slices.Clone(raw), v}) }
	if err := s.engine.supervisor.add(index, func() (vectorPort, error) { return p, nil }); err != nil {
		s.tb.Fatal(err)
	}
	s.set(index, Interface{Up: true, MAC: portMAC})
}

func (s *segment) set(index uint32, i Interface) {
	s.tb.Helper()
	if err := s.engine.SetInterface(index, i); err != nil {
		s.tb.Fatal(err)
	}
}

// change sets a bridge domain and publishes.
func (s *segment) change(b Bridge) {
	s.tb.Helper()
	if err := s.engine.SetBridge(b); err != nil {
		s.tb.Fatal(err)
	}
	s.engine.Publish()
}

// receive receives a frame on an interface and returns what was transmitted for it.
func (s *segment) receive(on uint32, raw []byte, v frame.Virtio) []delivery {
	s.seen = nil
	p := s.ports[on]
	p.frame = raw
	p.virtio = v
	p.waiting = 1
	for p.waiting > 0 {
		s.worker.round()
	}
	if free := s.worker.countFree(); free != poolSize {
		s.tb.Errorf("%d of %d buffers left", free, poolSize)
	}
	return s.seen
}

// reached returns the interfaces that transmit a frame between two MACs.
func (s *segment) reached(on uint32, from, to frame.MAC) []uint32 {
	var list []uint32
	for _, d := range s.receive(on, between(from, to), frame.Virtio{}) {
		list = append(list, d.on)
	}
	slices.Sort(list)
	return list
}

// serve drives the worker until f, which waits for it, returns.
func (s *segment) serve(f func()) { s.drive(begin(f)) }

// begin runs f in a goroutine and returns a channel that is closed at its end.
func begin(f func()) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}

func (s *segment) drive(done chan struct{}) {
	for {
		select {
		case <-done:
			return
		default:
			s.worker.round()
		}
	}
}

// between returns a frame of a type that is only bridged.
func between(from, to frame.MAC) []byte {
	raw := make([]byte, 60)
	frame.PutEthernet(raw, to, from, 0x88b5)
	return raw
}

// host returns a MAC by number.
func host(n byte) frame.MAC { return frame.MAC{2, 0, 0, 0, 1, n} }

// plain is a bridge domain with all features and these members.
func plain(id uint32, members ...uint32) Bridge {
	b := Bridge{ID: id, Learn: true, Forward: true, Flood: true, UUFlood: true, BVI: NoInterface}
	for _, m := range members {
		b.Members = append(b.Members, BridgeMember{Interface: m})
	}
	return b
}

// routed is plain with the BVI and its static MAC.
func routed(id uint32, members ...uint32) Bridge {
	b := plain(id, members...)
	b.BVI = bviIndex
	b.Configured = []ConfiguredMAC{{MAC: bviMAC, Interface: bviIndex, Static: true}}
	return b
}
