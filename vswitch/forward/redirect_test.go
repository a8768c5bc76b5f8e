package forward

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/weftnet/weft/vswitch/frame"
)

// newRedirectSegment redirects packets to the dataplane's addresses on uplinkIndex to interface 3.
func newRedirectSegment(t *testing.T, f Family, udp bool) *segment {
	t.Helper()
	s := newTunnelSegment(t, f)
	s.set(3, Interface{Up: true, IP6Enabled: true, MAC: frame.MAC{2, 0, 0, 0, 0, 3}})
	next := tunnelEnds[f][1].Next()
	must(t, s.engine.SetNeighbour(3, next, host(33), true))
	uplink := Interface{Up: true, MAC: portMAC, IP6Enabled: true, Addresses: []netip.Addr{tunnelEnds[f][0]}}
	redirect := &Redirect{Interface: 3, NextHop: next, UDP: udp}
	if f == IP4 {
		uplink.Redirect4 = redirect
	} else {
		uplink.Redirect6 = redirect
	}
	s.set(uplinkIndex, uplink)
	s.engine.Publish()
	return s
}

func TestUnhandledLocalPacketsAreRedirected(t *testing.T) {
	const (
		vxlan = 4789
		other = 53
	)
	packet := func(protocol uint8, port int, change func(p []byte)) []byte {
		raw := tunnelPacket(make([]byte, 30))
		raw[14+9] = protocol
		raw[36] = byte(port >> 8)
		raw[37] = byte(port)
		change(raw[14:])
		fixIPv4Checksum(raw)
		return raw
	}
	none := func([]byte) {}
	vni := func(vni uint32) func(p []byte) {
		return func(p []byte) { copy(p[28:], binary.BigEndian.AppendUint32([]byte{8, 0, 0, 0}, vni<<8)) }
	}
	also := func(first, then func(p []byte)) func(p []byte) { return func(p []byte) { first(p); then(p) } }
	firstFragment := func(p []byte) { p[6] = 0x20 }
	for rule, c := range map[string]struct {
		udp, redirected bool
		raw             []byte
	}{
		"TCP": {false, true, packet(frame.ProtocolTCP, other, none)},
		"TCP at the end of its TTL": {
			false, true, packet(frame.ProtocolTCP, other, func(p []byte) { p[8] = 1 }),
		},
		"an unknown protocol":             {false, true, packet(253, other, none)},
		"UDP":                             {true, true, packet(frame.ProtocolUDP, other, none)},
		"UDP that is not punted":          {false, false, packet(frame.ProtocolUDP, other, none)},
		"a tunnel packet":                 {true, false, packet(frame.ProtocolUDP, vxlan, vni(testVNI))},
		"a packet with another VNI":       {true, true, packet(frame.ProtocolUDP, vxlan, vni(4096))},
		"a packet with a VNI of its bits": {true, true, packet(frame.ProtocolUDP, vxlan, vni(testVNI|1<<23))},
		"a tunnel packet of another host": {
			true, true, packet(frame.ProtocolUDP, vxlan, also(vni(testVNI), func(p []byte) { p[15]++ })),
		},
		"a packet without a VNI": {true, true, packet(frame.ProtocolUDP, vxlan, none)},
		"a short packet to the tunnels' port": {
			true, true, packet(frame.ProtocolUDP, vxlan, also(vni(testVNI), func(p []byte) { p[25] = 15 })),
		},
		"another VNI that is not punted": {false, false, packet(frame.ProtocolUDP, vxlan, vni(4096))},
		"an echo request": {
			true, false, packet(frame.ProtocolICMP, frame.ICMPEcho<<8, func(p []byte) { p[20] = frame.ICMPEcho }),
		},
		"an echo reply": {
			true, true, packet(frame.ProtocolICMP, other, func(p []byte) { p[20] = frame.ICMPEchoReply }),
		},
		"a first fragment of an echo request": {
			true, true, packet(frame.ProtocolICMP, frame.ICMPEcho<<8, func(p []byte) {
				p[6] = 0x20
				p[20] = frame.ICMPEcho
			}),
		},
		"a fragment of a tunnel packet": {
			true, false, packet(frame.ProtocolUDP, vxlan, also(vni(testVNI), firstFragment)),
		},
		"a fragment with another VNI": {true, true, packet(frame.ProtocolUDP, vxlan, also(vni(4096), firstFragment))},
		"a fragment of 8 bytes": {true, true, packet(frame.ProtocolUDP, vxlan, func(p []byte) {
			p[3] = 28
			p[6] = 0x20
		})[:14+28]},
		"a later fragment of an ICMP": {true, true, packet(frame.ProtocolICMP, other, func(p []byte) {
			p[7] = 1
			p[20] = frame.ICMPEcho
		})},
	} {
		t.Run(rule, func(t *testing.T) {
			s := newRedirectSegment(t, IP4, c.udp)
			seen := slices.DeleteFunc(s.receive(uplinkIndex, c.raw, frame.Virtio{}), func(d delivery) bool {
				return d.on != 3
			})
			if (len(seen) == 1) != c.redirected {
				t.Fatalf("%+v, drops %v", seen, s.engine.Drops())
			}
			if c.redirected && !slices.Equal(seen[0].raw[frame.EthernetLen:], c.raw[frame.EthernetLen:]) {
				t.Errorf("%x became %x", c.raw, seen[0].raw)
			}
		})
	}
	s := newRedirectSegment(t, IP4, true)
	s.set(3, Interface{MAC: frame.MAC{2, 0, 0, 0, 0, 3}})
	s.engine.Publish()
	if seen := s.receive(uplinkIndex, packet(frame.ProtocolTCP, other, none), frame.Virtio{}); len(seen) != 0 {
		t.Errorf("redirected to an interface that is down: %+v", seen)
	}
}

// The kernel gets packets of its own VXLAN devices over both families, whole and in fragments.
func TestPacketsWithOtherVNIsAreRedirectedInBothFamilies(t *testing.T) {
	for f := range tunnelEnds {
		packet, inner := longTunnelPacket(t, newTunnelSegment(t, f), 1400)
		other := slices.Clone(packet)
		binary.BigEndian.PutUint32(other[vxlanOf(f)+4:], 4096<<8)
		for rule, in := range map[string]struct{ own, foreign [][]byte }{
			"whole":        {[][]byte{packet}, [][]byte{other}},
			"in fragments": {piecesOf(t, packet, 1300), piecesOf(t, other, 1300)},
		} {
			s := newRedirectSegment(t, f, true)
			if seen := s.receiveAll(in.foreign...); len(seen) != len(in.foreign) || seen[0].on != 3 {
				t.Errorf("IPv%d, %s: %d packets of the kernel, want %d on interface 3, drops %v", f, rule, len(seen),
					len(in.foreign), s.engine.Drops())
			}
			s = newRedirectSegment(t, f, true)
			if seen := s.receiveAll(in.own...); len(seen) != 1 || seen[0].on != 1 ||
				!slices.Equal(seen[0].raw, inner) {
				t.Errorf("IPv%d, %s: %d packets of the tunnel, drops %v", f, rule, len(seen), s.engine.Drops())
			}
		}
	}
}
