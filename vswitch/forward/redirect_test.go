package forward

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weftnet/weft/vswitch/frame"
)

// newRedirectSegment redirects packets to the dataplane's addresses on uplinkIndex to interface 3.
func newRedirectSegment(t *testing.T, udp bool) *segment {
	t.Helper()
	s := newTunnelSegment(t, IP4)
	s.set(3, Interface{Up: true, MAC: frame.MAC{2, 0, 0, 0, 0, 3}})
	next := tunnelEnds[IP4][1].Next()
	must(t, s.engine.SetNeighbour(3, next, host(33), true))
	s.set(uplinkIndex, Interface{Up: true, MAC: portMAC, IP6Enabled: true, Addresses: []netip.Addr{tunnelEnds[IP4][0]},
		Redirect4: &Redirect{Interface: 3, NextHop: next, UDP: udp}})
	s.engine.Publish()
	return s
}

func TestUnhandledLocalPacketsAreRedirected(t *testing.T) {
	const vxlan, other = 4789, 53
	packet := func(protocol uint8, port int, change func(p []byte)) []byte {
		raw := tunnelPacket(make([]byte, 30))
		raw[14+9], raw[36], raw[37] = protocol, byte(port>>8), byte(port)
		change(raw[14:])
		fixIPv4Checksum(raw)
		return raw
	}
	none := func([]byte) {}
	for rule, c := range map[string]struct {
		udp, redirected bool
		raw             []byte
	}{
		"TCP":                                 {false, true, packet(frame.ProtocolTCP, other, none)},
		"TCP at the end of its TTL":           {false, true, packet(frame.ProtocolTCP, other, func(p []byte) { p[8] = 1 })},
		"an unknown protocol":                 {false, true, packet(253, other, none)},
		"UDP":                                 {true, true, packet(frame.ProtocolUDP, other, none)},
		"UDP that is not punted":              {false, false, packet(frame.ProtocolUDP, other, none)},
		"a packet of no tunnel":               {true, false, packet(frame.ProtocolUDP, vxlan, none)},
		"an echo request":                     {true, false, packet(frame.ProtocolICMP, frame.ICMPEcho<<8, func(p []byte) { p[20] = frame.ICMPEcho })},
		"an echo reply":                       {true, true, packet(frame.ProtocolICMP, other, func(p []byte) { p[20] = frame.ICMPEchoReply })},
		"a first fragment of an echo request": {true, true, packet(frame.ProtocolICMP, frame.ICMPEcho<<8, func(p []byte) { p[6], p[20] = 0x20, frame.ICMPEcho })},
		"a fragment of a tunnel packet":       {true, false, packet(frame.ProtocolUDP, vxlan, func(p []byte) { p[6] = 0x20 })},
		"a later fragment of an ICMP":         {true, true, packet(frame.ProtocolICMP, other, func(p []byte) { p[7], p[20] = 1, frame.ICMPEcho })},
	} {
		t.Run(rule, func(t *testing.T) {
			s := newRedirectSegment(t, c.udp)
			seen := slices.DeleteFunc(s.receive(uplinkIndex, c.raw, frame.Virtio{}), func(d delivery) bool { return d.on != 3 })
			if (len(seen) == 1) != c.redirected {
				t.Fatalf("%+v, drops %v", seen, s.engine.Drops())
			}
			if c.redirected && !slices.Equal(seen[0].raw[frame.EthernetLen:], c.raw[frame.EthernetLen:]) {
				t.Errorf("%x became %x", c.raw, seen[0].raw)
			}
		})
	}
	s := newRedirectSegment(t, true)
	s.set(3, Interface{MAC: frame.MAC{2, 0, 0, 0, 0, 3}})
	s.engine.Publish()
	if seen := s.receive(uplinkIndex, packet(frame.ProtocolTCP, other, none), frame.Virtio{}); len(seen) != 0 {
		t.Errorf("redirected to an interface that is down: %+v", seen)
	}
}
