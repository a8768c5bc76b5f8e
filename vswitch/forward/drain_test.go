package forward

import (
	"runtime"
	"testing"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

// withPending runs f, which waits for the worker, and starts the worker once it has a request.
func (s *segment) withPending(f func()) {
	s.tb.Helper()
	done := begin(f)
	s.awaitMail()
	s.drive(done)
}

func (s *segment) awaitMail() {
	s.tb.Helper()
	for deadline := time.Now().Add(time.Minute); s.worker.requests.newest.Load() == nil; {
		if time.Now().After(deadline) {
			s.tb.Fatal("no request to the worker")
		}
		runtime.Gosched()
	}
}

func TestWaitingFramesAreForwardedBeforeRemoval(t *testing.T) {
	leave := func(e *Engine) error {
		err := e.SetBridge(plain(1, 2))
		e.FlushMACs(MACFilter{Bridge: 1, Interface: 1})
		return err
	}
	for name, c := range map[string]struct {
		waiting, least int
		take           func(*Engine) error
	}{
		"it leaves": {3 * frame.VectorSize, 3 * frame.VectorSize, leave},
		"its port is closed": {
			3 * frame.VectorSize, 3 * frame.VectorSize, func(e *Engine) error { return e.ClosePort(1) },
		},
		"it leaves, and sends without end":    {1 << 40, maxDrained, leave},
		"it is closed, and sends without end": {1 << 40, maxDrained, func(e *Engine) error { return e.ClosePort(1) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSegment(t, plain(1, 1, 2))
			p := s.ports[1]
			p.frame = between(host(1), frame.Broadcast)
			p.virtio = frame.Virtio{}
			p.waiting = c.waiting
			s.withPending(func() {
				if err := c.take(s.engine); err != nil {
					t.Error(err)
				}
			})
			if sent := s.ports[2].sent; sent < c.least {
				t.Errorf("%d of %d frames sent on; drops %v", sent, c.least, s.engine.Drops())
			}
		})
	}
}

func TestPortIsUnusedAfterClose(t *testing.T) {
	s := newSegment(t, plain(1, 1, 2))
	s.worker.round()
	s.worker.rx.activate(s.worker.ports.at(6).rxQueues[0])
	closed := make(chan error, 1)
	s.worker.l2.fib.clock = func() uint32 { // called in a round
		s.worker.l2.fib.clock = func() uint32 { return s.now }
		go func() { closed <- s.engine.supervisor.remove(6) }()
		s.awaitMail()
		s.ports[6].waiting = 1
		return s.now
	}
	s.worker.round()
	if err := <-closed; err != nil || s.ports[6].waiting != 1 {
		t.Errorf("%v; %d of 1 frames left where a port was closed", err, s.ports[6].waiting)
	}
}
