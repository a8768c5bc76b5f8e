package forward

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

// newRouted is a segment with a routed bridge domain of ports 1 to 3: 10.9.0.0/24 is the BVI's subnet, 10.2.0.0/16 is
// behind port 4.
func newRouted(t testing.TB) *segment {
	t.Helper()
	s := newSegment(t, routed(1, 1, 2, 3))
	s.set(4, Interface{Up: true, MAC: portMAC, Addresses: []netip.Addr{netip.MustParseAddr("10.2.0.254")}})
	for prefix, r := range map[string]Route{
		"10.9.0.254/32": {Action: Local},
		"10.9.0.0/24":   {Paths: []Path{{Interface: bviIndex}}},
		"10.2.0.0/16":   {Paths: []Path{{Interface: 4, NextHop: netip.MustParseAddr("10.2.0.1")}}},
	} {
		if err := s.engine.SetRoute(TableKey{Family: IP4}, netip.MustParsePrefix(prefix), r); err != nil {
			t.Fatal(err)
		}
	}
	for a, index := range map[string]uint32{"10.2.0.1": 4, "10.9.0.2": bviIndex} {
		if err := s.engine.SetNeighbour(index, netip.MustParseAddr(a), host(2), true); err != nil {
			t.Fatal(err)
		}
	}
	s.engine.Publish()
	return s
}

// packet returns an IPv4 packet between two MACs.
func packet(from, to frame.MAC, address string) []byte {
	raw := udp4(address, 18)
	frame.Ethernet(raw).Rewrite(to, from)
	return raw
}

// slowPathReplies receives a frame, runs the slow path, and returns what was transmitted.
func (s *segment) slowPathReplies(on uint32, raw []byte) []delivery {
	out := s.receive(on, raw, frame.Virtio{})
	s.engine.slow.Step(time.Unix(1e9, 0))
	s.worker.round()
	if len(s.seen) > len(out) {
		return s.seen[len(out):]
	}
	return nil
}

func arpRequest(from frame.MAC, target string) []byte {
	raw := make([]byte, frame.EthernetLen+frame.ARPLen)
	frame.PutEthernet(raw, frame.Broadcast, from, frame.TypeARP)
	frame.PutARP(raw[frame.EthernetLen:], frame.ARPFields{Operation: frame.ARPRequest, SenderMAC: from,
		Sender: netip.MustParseAddr("10.9.0.77"), Target: netip.MustParseAddr(target)})
	return raw
}

func TestFramesToTheBVIAreRouted(t *testing.T) {
	s := newRouted(t)
	out := s.receive(1, packet(host(1), bviMAC, "10.2.7.7"), frame.Virtio{})
	if len(out) != 1 || out[0].on != 4 {
		t.Fatalf("sent %v; drops %v", out, s.engine.Drops())
	}
	e := frame.Ethernet(out[0].raw)
	if e.Source() != portMAC || e.Destination() != host(2) || frame.IPv4(e.Payload()).TTL() != 63 {
		t.Errorf("sent %x", out[0].raw)
	}
	if c := s.engine.Counters(bviIndex); c.RxPackets != 1 || c.RxIP4 != 1 {
		t.Errorf("the BVI counted %+v", c)
	}
}

func TestPacketsRoutedToTheBVIAreBridged(t *testing.T) {
	s := newRouted(t)
	raw := packet(host(9), portMAC, "10.9.0.2")
	if got := s.receive(4, raw, frame.Virtio{}); len(got) != 3 {
		t.Errorf("an unknown MAC was sent on %d interfaces; drops %v", len(got), s.engine.Drops())
	}
	s.reached(2, host(2), frame.Broadcast)
	out := s.receive(4, raw, frame.Virtio{})
	if len(out) != 1 || out[0].on != 2 || frame.Ethernet(out[0].raw).Source() != bviMAC {
		t.Errorf("sent %v; drops %v", out, s.engine.Drops())
	}
	if c := s.engine.Counters(bviIndex); c.TxPackets != 2 || c.TxBytes != 2*uint64(len(raw)) {
		t.Errorf("the BVI counted %+v", c)
	}
}

func TestBVIAnswersARPInItsBridge(t *testing.T) {
	s := newRouted(t)
	out := s.slowPathReplies(2, arpRequest(host(2), "10.9.0.254"))
	if len(out) != 1 || out[0].on != 2 || frame.Ethernet(out[0].raw).Source() != bviMAC {
		t.Fatalf("answered %v; drops %v", out, s.engine.Drops())
	}
	if got := s.slowPathReplies(2, arpRequest(host(2), "10.9.0.3")); got != nil {
		t.Errorf("answered for a foreign address: %v", got)
	}
}

func TestBVISolicitsAllMembers(t *testing.T) {
	b := routed(1, 1, 2)
	b.Members[1].SplitHorizon = 3
	s := newRouted(t)
	s.change(b)
	out := s.slowPathReplies(4, packet(host(9), portMAC, "10.9.0.55"))
	var on []uint32
	for _, d := range out {
		on = append(on, d.on)
		if e := frame.Ethernet(d.raw); e.Type() != frame.TypeARP || e.Source() != bviMAC ||
			e.Destination() != frame.Broadcast {
			t.Errorf("sent %x", d.raw)
		}
	}
	if slices.Sort(on); !slices.Equal(on, []uint32{1, 2}) {
		t.Errorf("asked on %v; drops %v", on, s.engine.Drops())
	}
}

func TestBVIReceivesBroadcastAndItsMAC(t *testing.T) {
	for _, c := range []struct {
		rule   string
		raw    []byte
		want   []uint32
		reason string
	}{
		{"a broadcast reaches members and the BVI", packet(host(1), frame.Broadcast, "255.255.255.255"), []uint32{2, 3},
			"ip4-input/multicast or broadcast not forwarded"},
		{"a frame to an unknown MAC does not reach the BVI", between(host(1), host(9)), []uint32{2, 3}, ""},
		{"another type to its MAC", between(host(1), bviMAC), nil, "l2-fwd/BVI packet with unhandled ethertype"},
		{"a tagged frame to its MAC", change(packet(host(1), bviMAC, "10.2.7.7"), func(b []byte) {
			b[12] = 0x81
			b[13] = 0
		}), nil,
			"l2-fwd/BVI packet with unhandled ethertype"},
		{"a member cannot send from its MAC", between(bviMAC, host(9)), nil, "l2-learn/L2 mac move violations"},
		{
			"a broken packet to its MAC", change(packet(host(1), bviMAC, "10.2.7.7"), func(b []byte) { b[24]++ }), nil,
			"ip4-input/bad_checksum",
		},
	} {
		t.Run(c.rule, func(t *testing.T) {
			s := newRouted(t)
			var got []uint32
			for _, d := range s.receive(1, c.raw, frame.Virtio{}) {
				got = append(got, d.on)
			}
			if slices.Sort(got); !slices.Equal(got, c.want) {
				t.Errorf("reached %v, want %v; drops %v", got, c.want, s.engine.Drops())
			}
			if c.reason != "" && s.engine.Drops()[c.reason] != 1 {
				t.Errorf("no %q in %v", c.reason, s.engine.Drops())
			}
		})
	}
}

func TestBVIDropsFramesIfDownOrForAnotherMAC(t *testing.T) {
	for reason, i := range map[string]Interface{
		"l2-fwd/BVI L3 MAC mismatch":       {Up: true, MAC: host(8)},
		"ethernet-input/subinterface down": {MAC: bviMAC},
	} {
		s := newRouted(t)
		s.set(bviIndex, i)
		s.engine.Publish()
		if out := s.receive(1, packet(host(1), bviMAC, "10.2.7.7"), frame.Virtio{}); out != nil ||
			s.engine.Drops()[reason] != 1 {
			t.Errorf("%s: sent %v; drops %v", reason, out, s.engine.Drops())
		}
	}
}

func TestPacketsAreRoutedBetweenBridges(t *testing.T) {
	s := newRouted(t)
	const other = 10
	s.set(other, Interface{Up: true, MAC: host(0xb2), Addresses: []netip.Addr{netip.MustParseAddr("10.8.0.1")}})
	b := plain(2, 5, 6)
	b.BVI = other
	b.Configured = []ConfiguredMAC{{MAC: host(0xb2), Interface: other, Static: true}}
	route := Route{Paths: []Path{{Interface: other}}}
	if err := s.engine.SetRoute(TableKey{Family: IP4}, netip.MustParsePrefix("10.8.0.0/24"), route); err != nil {
		t.Fatal(err)
	}
	if err := s.engine.SetNeighbour(other, netip.MustParseAddr("10.8.0.2"), host(5), true); err != nil {
		t.Fatal(err)
	}
	s.change(b)
	s.reached(5, host(5), frame.Broadcast)
	out := s.receive(1, packet(host(1), bviMAC, "10.8.0.2"), frame.Virtio{})
	if len(out) != 1 || out[0].on != 5 || frame.Ethernet(out[0].raw).Source() != host(0xb2) {
		t.Errorf("sent %v; drops %v", out, s.engine.Drops())
	}
}

func TestTraceShowsBridging(t *testing.T) {
	s := newRouted(t)
	s.reached(1, host(1), host(9))
	s.slowPathReplies(1, arpRequest(host(1), "10.9.0.254"))
	s.slowPathReplies(1, packet(host(1), bviMAC, "10.9.0.254"))
	s.serve(func() {
		lines := s.engine.Trace(1, 3)
		for n, want := range []string{"-> flooded", "-> flooded", "-> slow path by the BVI"} {
			if len(lines) != 3 || !strings.HasSuffix(lines[n], want) {
				t.Errorf("line %d of %q: no %q", n, lines, want)
			}
		}
	})
}
