package forward

import (
	"slices"
	"testing"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

// aged is a bridge domain of ports 1 to 3 with an age of a minute.
func aged() Bridge {
	b := plain(1, 1, 2, 3)
	b.Age = time.Minute
	return b
}

func TestMACsExpireAfterTheirAge(t *testing.T) {
	s := newSegment(t, aged())
	s.reached(2, host(2), frame.Broadcast)
	for _, step := range []struct {
		later uint32
		want  []uint32
	}{{59, []uint32{2}}, {1, []uint32{2, 3}}} {
		if s.now += step.later; !slices.Equal(s.reached(1, host(1), host(2)), step.want) {
			t.Errorf("after %d s not %v", s.now-1000, step.want)
		}
	}
	s.reached(2, host(2), frame.Broadcast)
	s.now += 59
	s.reached(2, host(2), frame.Broadcast)
	s.now += 59
	if got := s.reached(1, host(1), host(2)); !slices.Equal(got, []uint32{2}) {
		t.Errorf("a MAC that spoke was forgotten: %v", got)
	}
	s.now += 3600
	s.worker.round()
	if n := s.worker.l2.fib.macs.count; n != 0 {
		t.Errorf("%d MACs take room after an hour of silence", n)
	}
}

func TestMACsOfABridgeWithoutAgeDoNotExpire(t *testing.T) {
	s := newSegment(t, plain(1, 1, 2, 3))
	s.reached(2, host(2), frame.Broadcast)
	s.now += 1 << 30
	if got := s.reached(1, host(1), host(2)); !slices.Equal(got, []uint32{2}) {
		t.Errorf("reached %v", got)
	}
}

func TestMovedMACIsRelearned(t *testing.T) {
	s := newSegment(t, plain(1, 1, 2, 3))
	s.reached(2, host(2), frame.Broadcast)
	s.reached(3, host(2), frame.Broadcast)
	if got := s.reached(1, host(1), host(2)); !slices.Equal(got, []uint32{3}) {
		t.Errorf("reached %v", got)
	}
	if n := s.engine.Drops()["l2-learn/L2 mac moves"]; n != 1 {
		t.Errorf("%d moves", n)
	}
}

func TestMulticastAndZeroMACsAreNotLearned(t *testing.T) {
	s := newSegment(t, plain(1, 1, 2, 3))
	for _, m := range []frame.MAC{{}, frame.Broadcast, stpGroup} {
		if got := s.reached(2, m, host(9)); len(got) != 2 {
			t.Errorf("a frame from %v reached %v", m, got)
		}
	}
	if s.worker.l2.fib.macs.count != 0 {
		t.Errorf("%d learned", s.worker.l2.fib.macs.count)
	}
}

func TestConfiguredMACs(t *testing.T) {
	static := ConfiguredMAC{MAC: host(2), Interface: 2, Static: true}
	filter := ConfiguredMAC{MAC: host(2), Interface: NoInterface, Static: true, Filter: true}
	proposed := ConfiguredMAC{MAC: host(2), Interface: 2}
	sends := func(on uint32) func(*segment) { return func(s *segment) { s.reached(on, host(2), frame.Broadcast) } }
	for _, c := range []struct {
		rule     string
		fixed    ConfiguredMAC
		before   func(*segment)
		from, to frame.MAC
		want     []uint32
		reason   string
	}{
		{"a static MAC needs no learning", static, nil, host(1), host(2), []uint32{2}, ""},
		{
			"a static MAC does not move", static, sends(3), host(1), host(2), []uint32{2},
			"l2-learn/L2 mac move violations",
		},
		{
			"another member cannot send from a static MAC", static, nil, host(2), host(9), nil,
			"l2-learn/L2 mac move violations",
		},
		{"a static MAC does not age", static, func(s *segment) { s.now += 1e6 }, host(1), host(2), []uint32{2}, ""},
		{"a frame to a filtered MAC is dropped", filter, nil, host(1), host(2), nil, "l2-fwd/Filter Mac Drop"},
		{"a frame from a filtered MAC is dropped", filter, nil, host(2), host(9), nil, "l2-learn/L2 filter mac drops"},
		{"a MAC that is not static is configured", proposed, nil, host(1), host(2), []uint32{2}, ""},
		{"a MAC that is not static moves", proposed, sends(3), host(1), host(2), []uint32{3}, ""},
		{
			"a static MAC behind an interface outside of the bridge domain",
			ConfiguredMAC{MAC: host(2), Interface: 6, Static: true}, nil, host(1), host(2), nil,
			"l2-output/L2 Output interface not valid",
		},
	} {
		t.Run(c.rule, func(t *testing.T) {
			b := aged()
			b.Configured = []ConfiguredMAC{c.fixed}
			s := newSegment(t, b)
			if c.before != nil {
				c.before(s)
			}
			if got := s.reached(1, c.from, c.to); !slices.Equal(got, c.want) {
				t.Errorf("reached %v, want %v; drops %v", got, c.want, s.engine.Drops())
			}
			if c.reason != "" && s.engine.Drops()[c.reason] != 1 {
				t.Errorf("no %q in %v", c.reason, s.engine.Drops())
			}
		})
	}
}

// A pod sends frames from thousands of MACs. Unicast to other members of its network, those that come later included,
// reaches them alone.
func TestMACFloodCostsOnlyItsInterface(t *testing.T) {
	s := newSegment(t, plain(1, 1, 2, 3), plain(2, 4))
	const flood = 9000
	first := frame.MAC{6}
	storm := func() {
		for n := range flood {
			s.reached(1, frame.MAC{6, 0, 0, byte(n >> 16), byte(n >> 8), byte(n)}, first)
		}
	}
	s.reached(2, host(2), frame.Broadcast)
	storm()
	if got := s.reached(3, host(3), host(2)); !slices.Equal(got, []uint32{2}) {
		t.Errorf("a frame to a member that was there before the flood reached %v", got)
	}
	storm()
	if got := s.reached(2, host(2), host(3)); !slices.Equal(got, []uint32{3}) {
		t.Errorf("a frame to a member that came during the flood reached %v", got)
	}
	s.reached(4, host(4), frame.Broadcast)
	s.serve(func() {
		learned := map[uint32]int{}
		for _, m := range s.engine.LearnedMACs(0) {
			learned[m.Interface]++
		}
		if learned[1] > maxLearnedOn || learned[1] < maxLearnedOn/2 || learned[2] != 1 || learned[3] != 1 ||
			learned[4] != 1 {
			t.Errorf("learned are, by interface, %v", learned)
		}
		s.engine.FlushMACs(MACFilter{Bridge: 1, Interface: NoInterface})
	})
	if s.worker.l2.fib.macs.count != 1 {
		t.Errorf("%d left after the flush", s.worker.l2.fib.macs.count)
	}
}

// Many interfaces flood: a network and the whole table are full. An interface with few MACs learns and keeps them.
func TestFullMACTableHasRoomForInterfacesWithFewMACs(t *testing.T) {
	for name, bridges := range map[string]int{"a full bridge domain": 1, "a full table": 4} {
		t.Run(name, func(t *testing.T) {
			table := newMACTable()
			n := 0
			flood := func(frames int) {
				for range frames {
					n++
					m := frame.MAC{6, 0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
					slot := uint16(1 + n%bridges)
					table.add(macEntry{macKeyOf(slot, m), uint32(100 + n%40), 1}, maxLearnedOn)
				}
			}
			flood(3 * maxLearned)
			if want := min(bridges*maxLearnedInBridge, maxLearned); table.count != want {
				t.Fatalf("the flood has %d entries, want %d", table.count, want)
			}
			const few = 64
			for i := range byte(few) {
				if !table.add(macEntry{macKeyOf(1, host(i)), 1, 1}, maxLearnedOn) {
					t.Fatalf("MAC %d is not learned", i)
				}
			}
			flood(maxLearned)
			for i := range byte(few) {
				if e := table.find(macKeyOf(1, host(i))); e == nil || e.out != 1 {
					t.Errorf("MAC %d is forgotten", i)
				}
			}
			if table.count > maxLearned {
				t.Errorf("the table has %d entries", table.count)
			}
		})
	}
}

func TestTunnelMayHaveTheMACsOfANode(t *testing.T) {
	b := plain(1, 1, 2)
	b.Members[0].SplitHorizon = 1
	s := newSegment(t, b)
	for n := range 3 * maxLearnedOn {
		s.reached(1, frame.MAC{6, 0, 0, byte(n >> 16), byte(n >> 8), byte(n)}, frame.Broadcast)
	}
	if n := s.worker.l2.fib.macs.byOut[1]; n != 3*maxLearnedOn {
		t.Errorf("%d learned", n)
	}
}

func TestFlushRemovesMatchingMACs(t *testing.T) {
	for _, c := range []struct {
		rule   string
		filter MACFilter
		left   int
	}{
		{"all", MACFilter{Interface: NoInterface}, 0},
		{"a bridge", MACFilter{Bridge: 1, Interface: NoInterface}, 2},
		{"an interface", MACFilter{Interface: 2}, 3},
		{"a bridge and an interface of another", MACFilter{Bridge: 1, Interface: 3}, 4},
		{"an unknown bridge", MACFilter{Bridge: 7, Interface: NoInterface}, 4},
	} {
		t.Run(c.rule, func(t *testing.T) {
			s := newSegment(t, plain(1, 1, 2), plain(2, 3, 4))
			for on := uint32(1); on <= 4; on++ {
				s.reached(on, host(byte(on)), frame.Broadcast)
			}
			s.serve(func() {
				s.engine.FlushMACs(c.filter)
				if list := s.engine.LearnedMACs(0); len(list) != c.left {
					t.Errorf("MACs after the flush: %v", list)
				}
			})
		})
	}
}

func TestForgetMACRequiresItsInterface(t *testing.T) {
	s := newSegment(t, aged())
	s.reached(2, host(2), frame.Broadcast)
	s.serve(func() {
		e := s.engine
		if e.ForgetMAC(1, host(2), 3) || e.ForgetMAC(1, host(3), NoInterface) || e.ForgetMAC(7, host(2), NoInterface) {
			t.Error("forgot what is not there")
		}
		if !e.ForgetMAC(1, host(2), 2) || e.ForgetMAC(1, host(2), NoInterface) {
			t.Error("not forgotten, or twice")
		}
	})
	s.reached(2, host(2), frame.Broadcast)
	s.now += 60
	s.serve(func() {
		if s.engine.ForgetMAC(1, host(2), NoInterface) || len(s.engine.LearnedMACs(1)) != 0 {
			t.Error("one that is too old is there still")
		}
	})
}
