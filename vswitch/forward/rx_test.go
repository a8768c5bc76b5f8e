package forward

import (
	"testing"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

// newTurns is a bridge domain of interfaces 1 to 6 with one host behind each. The clock advances by the cost of each
// transmitted frame.
func newTurns(t *testing.T, costs map[uint32]time.Duration) *segment {
	t.Helper()
	s := newSegment(t, plain(1, 1, 2, 3, 4, 5, 6))
	now := time.Duration(0)
	s.worker.stopwatch = func() time.Duration { return now }
	for index := uint32(1); index <= segmentPorts; index++ {
		s.receive(index, between(host(byte(index)), frame.Broadcast), frame.Virtio{})
		s.ports[index].show = func([]byte, frame.Virtio) { now += costs[index] }
	}
	return s
}

// send queues frames on an interface for the host behind another.
func (s *segment) send(from, to uint32, frames int) {
	s.ports[from].frame = between(host(byte(from)), host(byte(to)))
	s.ports[from].waiting = frames
}

const endless = 1 << 40

func TestBusyQueuesGetTheSameTime(t *testing.T) {
	const (
		cheap = time.Microsecond
		dear  = 20 * time.Microsecond
	)
	s := newTurns(t, map[uint32]time.Duration{2: cheap, 4: dear})
	s.send(1, 2, endless)
	s.send(3, 4, endless)
	for range 10_000 {
		s.worker.round()
	}
	a := time.Duration(s.ports[2].sent) * cheap
	b := time.Duration(s.ports[4].sent) * dear
	if a < b/2 || b < a/2 {
		t.Errorf("one queue got %s, the other %s", a, b)
	}
}

// A frame that arrives during a round waits for its end: one turn of each busy queue.
func TestIdleQueueIsServedFirstInTheNextRound(t *testing.T) {
	for name, cost := range map[string]time.Duration{
		"dropped at once": 0, "a tap's frames": 3 * time.Microsecond, "flooded frames": 200 * time.Microsecond,
	} {
		t.Run(name, func(t *testing.T) {
			s := newTurns(t, map[uint32]time.Duration{2: cost})
			s.send(1, 2, endless)
			s.send(5, 2, endless)
			for range 1000 {
				s.worker.round()
			}
			var before int // frames that were served since it arrived
			for range 100 {
				frames := s.ports[2].sent
				served := false
				s.ports[4].show = func([]byte, frame.Virtio) {
					before = s.ports[2].sent - frames
					served = true
				}
				s.send(3, 4, 1)
				for !served {
					s.worker.round()
				}
				// With free frames the worker checks epoll only every pollEvery rounds.
				most := 0
				if cost == 0 {
					most = pollEvery * 2 * frame.VectorSize
				}
				if before > most {
					t.Fatalf("it waited for %d frames; want %d", before, most)
				}
				s.worker.round() // it is empty
			}
		})
	}
}

func TestBurstShrinksAtOnceForExpensiveFrames(t *testing.T) {
	costs := map[uint32]time.Duration{2: 100 * time.Nanosecond}
	s := newTurns(t, costs)
	s.send(1, 2, endless)
	for range 100 {
		s.worker.round()
	}
	i := s.worker.ports.at(1).rxQueues[0]
	if i.burst != frame.VectorSize {
		t.Errorf("burst of cheap frames is %d", i.burst)
	}
	costs[2] = 100 * time.Microsecond
	s.worker.round()
	if i.burst != 1 {
		t.Errorf("burst after a vector of expensive frames is %d", i.burst)
	}
}

func TestWorkerPollsLongerAfterShortSleeps(t *testing.T) {
	s := newSpinner()
	for range 20 {
		s.slept(shortSleep / 2)
	}
	if s.polls != maxPolls {
		t.Errorf("%d polls after short sleeps", s.polls)
	}
	s.slept(time.Second)
	if s.polls >= maxPolls {
		t.Errorf("%d polls after a long sleep", s.polls)
	}
	for range 20 {
		s.slept(2 * shortSleep)
	}
	if s.polls != minPolls {
		t.Errorf("%d polls after long sleeps", s.polls)
	}
}
