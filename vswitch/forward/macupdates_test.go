package forward

import (
	"slices"
	"testing"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/slow"
)

// newPair is an engine of two workers that the test drives; ports are spread over them by index.
func newPair(t *testing.T) (s *segment, even, odd *worker) {
	t.Helper()
	e, err := New(Config{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	s = &segment{tb: t, engine: e, worker: e.workers[0], ports: map[uint32]*memoryPort{}, now: 1000}
	for _, w := range e.workers {
		w.l2.fib.clock = func() uint32 { return s.now }
	}
	for index := uint32(1); index <= 4; index++ {
		s.addPort(index)
	}
	s.change(aged())
	t.Cleanup(func() {
		close(e.stopped)
		_ = e.supervisor.closeAll()
		e.free()
	})
	return s, e.workers[0], e.workers[1]
}

func TestWorkersShareLearnedMACs(t *testing.T) {
	s, even, odd := newPair(t)
	on := func(w *worker, port uint32, from, to frame.MAC) []uint32 {
		s.worker = w
		return s.reached(port, from, to)
	}
	on(even, 2, host(2), frame.Broadcast)
	if got := on(odd, 1, host(1), host(2)); !slices.Equal(got, []uint32{2}) {
		t.Errorf("the other worker's MAC: reached %v", got)
	}
	on(odd, 3, host(2), frame.Broadcast)
	if got := on(even, 2, host(9), host(2)); !slices.Equal(got, []uint32{3}) {
		t.Errorf("after it moved: reached %v", got)
	}
	for range 3 { // it does not expire while it sends
		s.now += 40
		on(odd, 3, host(2), frame.Broadcast)
	}
	if got := on(even, 2, host(9), host(2)); !slices.Equal(got, []uint32{3}) {
		t.Errorf("after three pauses of 40 s: reached %v", got)
	}
	s.now += 60
	if got := on(even, 2, host(9), host(2)); len(got) != 2 {
		t.Errorf("after a minute: reached %v", got)
	}
}

func TestFlushRemovesPendingUpdates(t *testing.T) {
	s, even, odd := newPair(t)
	s.worker = odd
	s.reached(3, host(3), frame.Broadcast) // even has not applied the update
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.engine.FlushMACs(MACFilter{Interface: NoInterface})
		if list := s.engine.LearnedMACs(0); len(list) != 0 {
			t.Errorf("MACs after the flush: %v", list)
		}
	}()
	for open := true; open; {
		select {
		case <-done:
			open = false
		default:
			even.round()
			odd.round()
		}
	}
	if even.l2.fib.macs.count+odd.l2.fib.macs.count != 0 {
		t.Errorf("%d and %d MACs after the flush", even.l2.fib.macs.count, odd.l2.fib.macs.count)
	}
}

func TestUpdatesAreLostWhenTheRingIsFull(t *testing.T) {
	r := slow.NewRing[macUpdate](updateRingOrder)
	l := l2fib{out: []*slow.Ring[macUpdate]{r}}
	for round := range uint32(3) {
		for n := range 1<<updateRingOrder + 5 {
			l.announce(macKey(n+1), round)
		}
		for n := range 1 << updateRingOrder {
			if u := r.Peek(); u == nil || *u != (macUpdate{macKey(n + 1), round}) {
				t.Fatalf("number %d is %+v", n, u)
			}
			r.Advance()
		}
		if !r.Empty() {
			t.Fatalf("update beyond the ring's size: %+v", *r.Peek())
		}
	}
}
