package forward

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/slow"
)

// punted returns the frames that wait for the slow path, by the interface that received them.
func (s *segment) punted() map[uint32]int {
	all := map[uint32]int{}
	for m := s.worker.slow.toSlow.Peek(); m != nil; m = s.worker.slow.toSlow.Peek() {
		all[m.Interface]++
		s.worker.slow.toSlow.Advance()
	}
	return all
}

// requestOf returns a broadcast ARP request.
func requestOf(sender, target string) []byte {
	raw := make([]byte, 60)
	frame.PutEthernet(raw, frame.Broadcast, host(2), frame.TypeARP)
	frame.PutARP(raw[frame.EthernetLen:], frame.ARPFields{Operation: frame.ARPRequest, SenderMAC: host(2),
		Sender: netip.MustParseAddr(sender), Target: netip.MustParseAddr(target)})
	return raw
}

// All interfaces share the ring to the slow path.
func TestPodThatFloodsTheSlowPathDoesNotTakeTheShareOfOthers(t *testing.T) {
	expired := flow{"10.1.0.5", "10.2.0.9", frame.ProtocolUDP, 4000, 53, 0, 0}.frame()
	expired[22] = 1
	fixIPv4Checksum(expired)
	echo := flow{"10.9.0.1", "10.9.0.254", frame.ProtocolICMP, frame.ICMPEcho, 7, 0, 0}.frame()
	copy(echo, bviMAC[:])
	for name, c := range map[string]struct {
		setUp   func() *segment
		flood   []byte
		request []byte
		on      uint32 // the interface that receives the request
	}{
		"packets with TTL 1": {
			func() *segment { s := newSegment(t); s.routeHosts(); return s }, expired,
			requestOf("10.2.0.9", "10.2.0.1"), 2,
		},
		"pings of a member to the gateway of its network": {func() *segment {
			s := newSegment(t, routed(1, 1, 2))
			s.set(bviIndex, Interface{
				Up:        true,
				MAC:       bviMAC,
				Addresses: []netip.Addr{netip.MustParseAddr("10.9.0.254")},
			})
			err := s.engine.SetRoute(TableKey{Family: IP4}, netip.MustParsePrefix("10.9.0.254/32"), Route{
				Action: Local,
			})
			if err != nil {
				t.Fatal(err)
			}
			s.engine.Publish()
			return s
		}, echo, requestOf("10.9.0.2", "10.9.0.254"), bviIndex},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.setUp()
			now := time.Hour
			s.worker.stopwatch = func() time.Duration { return now }
			for range 1000 {
				s.receive(1, c.flood, frame.Virtio{})
			}
			s.receive(2, c.request, frame.Virtio{})
			got := s.punted()
			others := 0
			for index, n := range got {
				if index != c.on || c.on == bviIndex {
					others += n
				}
			}
			if c.on == bviIndex {
				others--
			}
			if others == 0 || others > 1<<puntOrder/2 {
				t.Errorf("%d frames of the flood wait", others)
			}
			if got[c.on] == 0 || s.engine.Drops()["slow-path/queue full"] > 0 {
				t.Errorf("the request is lost: %v", got)
			}
			now += time.Second
			s.receive(1, c.flood, frame.Virtio{})
			if len(s.punted()) != 1 {
				t.Error("no frame passes a second later")
			}
		})
	}
}

// The slow path shares its limits by the members of a bridge domain, not by the BVI that received their frames.
func TestFramesOfABVIHaveTheirSender(t *testing.T) {
	s := newSegment(t, routed(1, 1, 2))
	s.receive(2, requestOf("10.9.0.2", "10.9.0.254"), frame.Virtio{})
	m := s.worker.slow.toSlow.Peek()
	if m == nil || m.Reason != slow.ARP || m.Interface != bviIndex || m.Sender != 2 {
		t.Errorf("%+v", m)
	}
}
