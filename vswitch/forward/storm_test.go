package forward

import (
	"testing"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

const (
	stormDrops = "l2-flood/storm limit exceeded"
	testLimit  = 6400 // copies per second
)

// newStorm is a bridge domain with members from 1 on and a storm limit; its clock stands still.
func newStorm(tb testing.TB, members int) (s *segment, now *time.Duration) {
	tb.Helper()
	s = newSegment(tb)
	now = new(time.Duration)
	s.worker.stopwatch = func() time.Duration { return *now }
	s.worker.l2.storm.limit = testLimit
	b := plain(1)
	for n := range members {
		index := uint32(100 + n)
		s.addPort(index)
		b.Members = append(b.Members, BridgeMember{Interface: index})
	}
	s.change(b)
	return s, now
}

// storm receives frames on an interface and returns how many were flooded, and how many the limit dropped.
func (s *segment) storm(on uint32, raw []byte, frames int) (flooded, dropped uint64) {
	s.tb.Helper()
	before := s.engine.Errors()
	s.run(on, raw, frames)
	after := s.engine.Errors()
	const flood = "l2-flood/L2 flood packets"
	flooded = after[flood] - before[flood]
	dropped = after[stormDrops] - before[stormDrops]
	if flooded+dropped != uint64(frames) {
		s.tb.Errorf("of %d frames %d were flooded and %d dropped", frames, flooded, dropped)
	}
	return flooded, dropped
}

// A burst from the first member uses up its bucket; then it gets as many copies as the limit allows over time.
func TestStormIsLimitedByCopiesPerSecond(t *testing.T) {
	s, now := newStorm(t, 33) // 32 receivers: 31 copies
	broadcast := between(host(1), frame.Broadcast)
	perFrame := 31
	atOnce := uint64((testLimit/burstDivisor + perFrame - 1) / perFrame)
	if flooded, _ := s.storm(100, broadcast, 1000); flooded != atOnce {
		t.Errorf("%d frames were flooded at once, want %d", flooded, atOnce)
	}
	sum := uint64(0)
	for range 10_000 { // a second
		*now += 100 * time.Microsecond
		flooded, _ := s.storm(100, broadcast, 3)
		sum += flooded
	}
	if got, want := int(sum)*perFrame, testLimit; got > want || got < want-2*perFrame {
		t.Errorf("%d copies in a second, want %d", got, want)
	}
	*now += time.Hour
	if flooded, _ := s.storm(100, broadcast, 1000); flooded != atOnce {
		t.Errorf("after an hour %d frames were flooded at once, want %d", flooded, atOnce)
	}
}

func TestStormLimitsItsSenderOnly(t *testing.T) {
	s, _ := newStorm(t, 33)
	s.reached(101, host(2), frame.Broadcast)
	s.storm(100, between(host(1), frame.Broadcast), 1000)
	if flooded, dropped := s.storm(101, between(host(2), frame.Broadcast), 10); dropped != 0 {
		t.Errorf("of another member %d frames were flooded and %d dropped", flooded, dropped)
	}
	s.run(100, between(host(1), host(2)), 1000)
	if got := s.ports[101].sent; got < 1000 {
		t.Errorf("%d of 1000 frames to a known MAC arrived", got)
	}
	for name, to := range map[string]frame.MAC{"a group": {0x33, 0x33, 0, 0, 0, 1}, "an unknown MAC": host(99)} {
		if flooded, _ := s.storm(100, between(host(1), to), 10); flooded != 0 {
			t.Errorf("%d frames to %s were flooded", flooded, name)
		}
	}
}

// In a bridge domain of any size a member can solicit its neighbours.
func TestCostOfAFloodedFrameIsLimited(t *testing.T) {
	s, _ := newStorm(t, 200)
	if flooded, _ := s.storm(100, between(host(1), frame.Broadcast), 100); flooded != testLimit/burstDivisor/
		maxFrameCost {
		t.Errorf("%d frames were flooded, want %d", flooded, testLimit/burstDivisor/maxFrameCost)
	}
}

func TestSingleReceiverAndBVIAreNotLimited(t *testing.T) {
	s, _ := newStorm(t, 2)
	if _, dropped := s.storm(100, between(host(1), frame.Broadcast), 100_000); dropped != 0 {
		t.Errorf("%d frames between two were dropped", dropped)
	}
	s, _ = newStorm(t, 33)
	b := routed(1)
	for index := uint32(100); index < 133; index++ {
		b.Members = append(b.Members, BridgeMember{Interface: index})
	}
	s.change(b)
	s.storm(100, between(host(1), frame.Broadcast), 1000)
	bvi := s.worker.snapshot.iface(bviIndex)
	for range 1000 {
		c := s.worker.tx.pool.One()
		c.SetLen(copy(c.Room(), between(bviMAC, frame.Broadcast)))
		before := s.ports[100].sent
		s.worker.l2.fromBVI(bvi, c)
		s.worker.tx.flush()
		if s.ports[100].sent != before+1 {
			t.Fatalf("frame of the BVI was not sent; drops %v", s.engine.Drops())
		}
	}
}

func TestLowestLimitStillFloods(t *testing.T) {
	s, now := newStorm(t, 33)
	s.storm(100, between(host(1), frame.Broadcast), 1000)
	s.worker.l2.storm.limit = 1
	sum := uint64(0)
	for range 310 {
		*now += time.Second
		flooded, _ := s.storm(100, between(host(1), frame.Broadcast), 3)
		sum += flooded
	}
	if sum != 10 {
		t.Errorf("%d frames were flooded in 310 seconds, want 10 of 31 copies each", sum)
	}
}

func TestWithoutALimitNothingIsDropped(t *testing.T) {
	for configured, want := range map[int]int{0: DefaultStormLimit, -1: 0, 5: 5, 1 << 40: int(time.Second)} {
		if got := stormLimit(configured); got != want {
			t.Errorf("%d is the limit %d, want %d", configured, got, want)
		}
	}
	s, _ := newStorm(t, 33)
	s.worker.l2.storm.limit = 0
	if _, dropped := s.storm(100, between(host(1), frame.Broadcast), 5000); dropped != 0 {
		t.Errorf("%d frames were dropped", dropped)
	}
}
