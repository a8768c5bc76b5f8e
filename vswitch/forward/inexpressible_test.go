package forward

import (
	"testing"

	"github.com/weftnet/weft/vswitch/frame"
)

// lossySocket is a port whose kernel has dropped frames.
type lossySocket struct {
	*memoryPort
	lost uint64
}

func (l *lossySocket) Inexpressible() (n uint64) {
	n = l.lost
	l.lost = 0
	return n
}

// They would otherwise be lost without a trace, also if no other frame arrives.
func TestFramesThatVirtioCannotExpressAreDropsWithAReason(t *testing.T) {
	s := newSegment(t)
	p, err := newMemoryPort()
	must(t, err)
	socket := &lossySocket{p, 3}
	must(t, s.engine.supervisor.add(7, func() (vectorPort, error) { return socket, nil }))
	s.set(7, Interface{Up: true, MAC: portMAC})
	s.engine.Publish()
	s.ports[7] = p
	for range 2 {
		s.worker.round()
	}
	s.receive(7, between(host(1), host(2)), frame.Virtio{})
	if got := s.engine.Drops()["af-packet-input/segmentation that virtio cannot express"]; got != 3 {
		t.Errorf("%d counted; %v", got, s.engine.Drops())
	}
}
