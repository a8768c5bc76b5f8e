package forward

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

var stpGroup = frame.MAC{0x01, 0x80, 0xc2, 0, 0, 0}

// grouped is a bridge domain of ports 1 and 2, with 3 and 4 in split-horizon group 7 and 5 in group 8.
func grouped() Bridge {
	b := plain(1, 1, 2)
	b.Members = append(b.Members, BridgeMember{3, 7}, BridgeMember{4, 7}, BridgeMember{5, 8})
	return b
}

func TestBridgeForwardsAndFloods(t *testing.T) {
	learnt := func(s *segment) { s.reached(2, host(2), frame.Broadcast) } // host 2 is behind port 2
	for _, c := range []struct {
		rule   string
		bridge Bridge
		before func(*segment)
		on     uint32
		to     frame.MAC
		want   []uint32
		reason string
	}{
		{"an unknown MAC is flooded", plain(1, 1, 2, 3), nil, 1, host(9), []uint32{2, 3}, ""},
		{"a broadcast is flooded", plain(1, 1, 2, 3), nil, 1, frame.Broadcast, []uint32{2, 3}, ""},
		{"reserved multicast is flooded, as in VPP", plain(1, 1, 2, 3), nil, 1, stpGroup, []uint32{2, 3}, ""},
		{"a frame to a known MAC goes to one member", plain(1, 1, 2, 3), learnt, 1, host(2), []uint32{2}, ""},
		{"a frame is not reflected", plain(1, 1, 2, 3), learnt, 2, host(2), nil, "l2-fwd/Reflection Drop"},
		{"a single member", plain(1, 1), nil, 1, frame.Broadcast, nil, "l2-flood/L2 replication complete"},
		{"split horizon", grouped(), nil, 3, host(9), []uint32{1, 2, 5}, ""},
		{"no split-horizon group", grouped(), nil, 1, host(9), []uint32{2, 3, 4, 5}, ""},
		{"split horizon, known MAC", grouped(), func(s *segment) { s.reached(4, host(4), frame.Broadcast) },
			3, host(4), nil, "l2-output/L2 split horizon drops"},
		{"a member that is down is skipped", plain(1, 1, 2, 3), func(s *segment) {
			s.set(2, Interface{})
			s.engine.Publish()
		}, 1, host(9), []uint32{3}, ""},
		{"a known MAC behind a member that is down", plain(1, 1, 2, 3), func(s *segment) {
			learnt(s)
			s.set(2, Interface{})
			s.engine.Publish()
		}, 1, host(2), nil, "interface-output/interface is down"},
		{"a MAC behind a removed member", plain(1, 1, 2, 3), func(s *segment) {
			learnt(s)
			s.change(plain(1, 1, 3))
		}, 1, host(2), nil, "l2-output/L2 Output interface not valid"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			s := newSegment(t, c.bridge)
			if c.before != nil {
				c.before(s)
			}
			if got := s.reached(c.on, host(1), c.to); !slices.Equal(got, c.want) {
				t.Errorf("reached %v, want %v; drops %v", got, c.want, s.engine.Drops())
			}
			if c.reason != "" && s.engine.Drops()[c.reason] != 1 {
				t.Errorf("no %q in %v", c.reason, s.engine.Drops())
			}
		})
	}
}

func TestBridgeFeaturesCanBeDisabled(t *testing.T) {
	for _, c := range []struct {
		rule   string
		off    func(*Bridge)
		known  bool
		to     frame.MAC
		want   []uint32
		reason string
	}{
		{
			"no flooding: a broadcast is dropped", func(b *Bridge) { b.Flood = false }, false, frame.Broadcast, nil,
			"feature-bitmap-drop/L2 feature forwarding disabled",
		},
		{
			"no flooding: an unknown MAC is flooded still", func(b *Bridge) { b.Flood = false }, false, host(9),
			[]uint32{2, 3}, "",
		},
		{
			"no flooding of unknown MACs", func(b *Bridge) { b.UUFlood = false }, false, host(9), nil,
			"l2-fwd/L2 forward misses",
		},
		{
			"no flooding of unknown MACs: a broadcast is flooded still", func(b *Bridge) { b.UUFlood = false }, false,
			frame.Broadcast, []uint32{2, 3}, "",
		},
		{
			"no flooding of unknown MACs: known ones get theirs", func(b *Bridge) { b.UUFlood = false }, true, host(2),
			[]uint32{2}, "",
		},
		{
			"no forwarding: a known MAC's frame is flooded", func(b *Bridge) { b.Forward = false }, true, host(2),
			[]uint32{2, 3}, "",
		},
		{"no forwarding and no flooding", func(b *Bridge) {
			b.Forward = false
			b.UUFlood = false
			b.Flood = false
		}, true, host(2), nil, "feature-bitmap-drop/L2 feature forwarding disabled"},
		{"no learning", func(b *Bridge) { b.Learn = false }, true, host(2), []uint32{2, 3}, ""},
	} {
		t.Run(c.rule, func(t *testing.T) {
			b := plain(1, 1, 2, 3)
			c.off(&b)
			s := newSegment(t, b)
			if c.known {
				s.reached(2, host(2), host(77))
			}
			before := s.engine.Drops()[c.reason]
			if got := s.reached(1, host(1), c.to); !slices.Equal(got, c.want) {
				t.Errorf("reached %v, want %v; drops %v", got, c.want, s.engine.Drops())
			}
			if c.reason != "" && s.engine.Drops()[c.reason] != before+1 {
				t.Errorf("no %q in %v", c.reason, s.engine.Drops())
			}
		})
	}
}

func TestBridgesWithTheSameMACsAreSeparate(t *testing.T) {
	s := newSegment(t, plain(1, 1, 2), plain(2, 3, 4))
	s.reached(2, host(2), frame.Broadcast)
	s.reached(4, host(2), frame.Broadcast)
	for on, want := range map[uint32]uint32{1: 2, 3: 4} {
		if got := s.reached(on, host(1), host(2)); !slices.Equal(got, []uint32{want}) {
			t.Errorf("from %d: reached %v", on, got)
		}
		if got := s.reached(on, host(1), frame.Broadcast); !slices.Equal(got, []uint32{want}) {
			t.Errorf("broadcast from %d: reached %v", on, got)
		}
	}
}

func TestBridgedFramesAreUnchanged(t *testing.T) {
	tagged := between(host(1), frame.Broadcast)
	copy(tagged[12:], []byte{0x81, 0, 0, 5, 8, 0})
	gso := frame.Virtio{
		Flags:          1,
		GSOType:        frame.GSOUDP,
		HeaderLen:      42,
		GSOSize:        1000,
		ChecksumStart:  34,
		ChecksumOffset: 6,
	}
	big := udp4("10.2.7.7", 60000)
	copy(big, frame.Broadcast[:])
	for name, c := range map[string]delivery{
		"tagged":             {raw: tagged},
		"longer than an MTU": {raw: append(between(host(1), frame.Broadcast), make([]byte, 5000)...)},
		"a GSO frame":        {raw: big, virtio: gso},
		"expired": {
			raw: change(udp4("10.2.7.7", 18), func(b []byte) { copy(b, frame.Broadcast[:]); b[22] = 0 }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSegment(t, plain(1, 1, 2, 3))
			out := s.receive(1, c.raw, c.virtio)
			if len(out) != 2 {
				t.Fatalf("%d copies; drops %v", len(out), s.engine.Drops())
			}
			for _, d := range out {
				if !slices.Equal(d.raw, c.raw) || d.virtio != c.virtio {
					t.Errorf("on %d: %d bytes, %+v", d.on, len(d.raw), d.virtio)
				}
			}
		})
	}
}

func TestMalformedFramesAreNotBridged(t *testing.T) {
	for reason, c := range map[string]delivery{
		"ethernet-input/frame too short": {raw: make([]byte, 13)},
		"virtio-input/bad virtio header": {
			raw:    between(host(1), host(2)),
			virtio: frame.Virtio{Flags: 1, ChecksumStart: 60},
		},
	} {
		s := newSegment(t, plain(1, 1, 2))
		if out := s.receive(1, c.raw, c.virtio); len(out) != 0 || s.engine.Drops()[reason] != 1 {
			t.Errorf("%s: %d sent, drops %v", reason, len(out), s.engine.Drops())
		}
	}
}

func TestInterfaceThatLeavesABridgeRoutes(t *testing.T) {
	b := newBench(t)
	run := func() int {
		b.out.sent = 0
		b.run(udp4("10.2.7.7", 18), frame.Virtio{}, 1)
		return b.out.sent
	}
	set := func(members ...uint32) {
		if err := b.engine.SetBridge(plain(1, members...)); err != nil {
			t.Fatal(err)
		}
		b.engine.Publish()
	}
	if set(1); run() != 0 || b.engine.Drops()["l2-flood/L2 replication complete"] != 1 {
		t.Errorf("routed in a bridge domain; drops %v", b.engine.Drops())
	}
	if set(); run() != 1 {
		t.Errorf("not routed after leaving; drops %v", b.engine.Drops())
	}
}

func TestInvalidBridgesAreRejected(t *testing.T) {
	s := newSegment(t)
	if err := s.engine.SetBridge(plain(1, 99)); !errors.Is(err, ErrNoInterface) {
		t.Errorf("unknown member: %v", err)
	}
	b := plain(1)
	b.BVI = 99
	if err := s.engine.SetBridge(b); !errors.Is(err, ErrNoInterface) {
		t.Errorf("unknown BVI: %v", err)
	}
	for id := uint32(1); id <= maxBridges; id++ {
		if err := s.engine.SetBridge(plain(id)); err != nil {
			t.Fatalf("bridge %d: %v", id, err)
		}
	}
	if err := s.engine.SetBridge(plain(maxBridges + 1)); !errors.Is(err, ErrTooManyBridges) {
		t.Errorf("too many bridge domains: %v", err)
	}
	s.serve(func() { s.engine.DelBridge(7) })
	if err := s.engine.SetBridge(plain(maxBridges + 1)); err != nil {
		t.Errorf("after a deletion: %v", err)
	}
}

func TestRecreatedBridgeHasNoMACs(t *testing.T) {
	s := newSegment(t, plain(1, 1, 2, 3))
	s.reached(2, host(2), frame.Broadcast)
	s.serve(func() { s.engine.DelBridge(1) })
	if got := s.reached(1, host(1), host(2)); got != nil {
		t.Errorf("bridged without a bridge domain: %v", got)
	}
	s.change(plain(5, 1, 2, 3)) // reuses the slot
	if got := s.reached(1, host(1), host(2)); !slices.Equal(got, []uint32{2, 3}) {
		t.Errorf("MAC of a deleted bridge domain is known: %v", got)
	}
	s.serve(func() {
		if list := s.engine.LearnedMACs(0); len(list) != 1 || list[0] != (LearnedMAC{5, host(1), 1, 0}) {
			t.Errorf("learned %v", list)
		}
	})
}

func TestBridgeChangesKeepLearnedMACs(t *testing.T) {
	s := newSegment(t, plain(1, 1, 2, 3))
	s.reached(2, host(2), frame.Broadcast)
	b := plain(1, 1, 2, 3, 4)
	b.Age = time.Hour
	s.change(b)
	if got := s.reached(1, host(1), host(2)); !slices.Equal(got, []uint32{2}) {
		t.Errorf("reached %v", got)
	}
}

func TestBridgeChangeKeepsOtherInterfaces(t *testing.T) {
	s := newSegment(t, plain(1, 1, 2))
	before := s.engine.live.Load().interfaces
	s.change(plain(1, 1, 3))
	after := s.engine.live.Load().interfaces
	for index, changed := range map[int]bool{1: false, 2: true, 3: true, 4: false} {
		if (before[index] != after[index]) != changed {
			t.Errorf("interface %d changed: %v", index, !changed)
		}
	}
}
