package forward

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/weftnet/weft/vswitch/frame"
)

const (
	tunnelIndex = 8
	uplinkIndex = 2
	testVNI     = 0x123456
)

// tunnelEnds are the addresses of the test's tunnel, by family.
var tunnelEnds = map[Family][2]netip.Addr{
	IP4: {netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")},
	IP6: {netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")},
}

// tunnelTo is a tunnel with the test's VNI and standard ports.
func tunnelTo(f Family) *Tunnel {
	ends := tunnelEnds[f]
	return &Tunnel{
		Source:      netip.AddrPortFrom(ends[0], 4789),
		Destination: netip.AddrPortFrom(ends[1], 4789),
		VNI:         testVNI,
	}
}

// newTunnelSegment has interface 1 and a tunnel in a bridge domain; tunnel packets leave by interface 2, with the other
// end as its neighbour.
func newTunnelSegment(tb testing.TB, f Family) *segment {
	tb.Helper()
	s := newSegment(tb)
	s.set(tunnelIndex, Interface{Up: true, MTU: 1400, MAC: frame.MAC{2, 0, 0, 0, 0, 8}, Tunnel: tunnelTo(f)})
	b := plain(1, 1)
	b.Members = append(b.Members, BridgeMember{Interface: tunnelIndex, SplitHorizon: 1})
	if err := s.engine.SetBridge(b); err != nil {
		tb.Fatal(err)
	}
	s.set(uplinkIndex, Interface{
		Up:         true,
		MAC:        portMAC,
		IP6Enabled: true,
		Addresses:  []netip.Addr{tunnelEnds[IP4][0], tunnelEnds[IP6][0]},
	})
	for _, ends := range tunnelEnds {
		k := TableKey{Family: FamilyOf(ends[0])}
		bits := ends[0].BitLen()
		near := netip.PrefixFrom(ends[0], bits-8).Masked()
		must(tb, s.engine.SetRoute(k, near, Route{Paths: []Path{{Interface: uplinkIndex}}}))
		must(tb, s.engine.SetRoute(k, netip.PrefixFrom(ends[0], bits), Route{Action: Local}))
		must(tb, s.engine.SetNeighbour(uplinkIndex, ends[1], podMAC, true))
	}
	s.engine.Publish()
	return s
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// reflected is a sent tunnel packet as the other end would return it.
func reflected(raw []byte) []byte {
	raw = slices.Clone(raw)
	frame.Ethernet(raw).Rewrite(portMAC, podMAC)
	if p := raw[frame.EthernetLen:]; p[0]>>4 == 4 {
		swap(p[12:16], p[16:20])
	} else {
		swap(p[8:24], p[24:40])
	}
	return raw
}

func swap(a, b []byte) {
	was := slices.Clone(a)
	copy(a, b)
	copy(b, was)
}

// vxlanOf is the offset of the VXLAN header in a family.
func vxlanOf(f Family) int {
	if f == IP4 {
		return frame.EthernetLen + frame.IPv4Len + frame.UDPLen
	}
	return frame.EthernetLen + frame.IPv6Len + frame.UDPLen
}

func TestTunnelPacketsFollowRFC7348AndVPP(t *testing.T) {
	for f, ends := range tunnelEnds {
		t.Run(fmt.Sprint("IPv", f), func(t *testing.T) {
			s := newTunnelSegment(t, f)
			inner := between(host(1), host(9))
			seen := s.receive(1, inner, frame.Virtio{})
			if len(seen) != 1 || seen[0].on != uplinkIndex {
				t.Fatalf("%+v, drops %v", seen, s.engine.Drops())
			}
			wantChecksum(t, f, seen[0])
			p := gopacket.NewPacket(seen[0].raw, layers.LayerTypeEthernet, gopacket.Default)
			wantOuter(t, p, ends)
			udp, _ := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
			if udp == nil || udp.DstPort != 4789 || udp.SrcPort < 49152 || int(udp.Length) != len(inner)+16 {
				t.Fatalf("UDP %+v", udp)
			}
			v, _ := p.Layer(layers.LayerTypeVXLAN).(*layers.VXLAN)
			if v == nil || v.VNI != testVNI || !v.ValidIDFlag || v.GBPExtension ||
				!bytes.Equal(v.LayerPayload(), inner) {
				t.Fatalf("VXLAN %+v", v)
			}
			back := reflected(seen[0].raw)
			if seen = s.receive(uplinkIndex, back, frame.Virtio{}); len(seen) != 1 || seen[0].on != 1 ||
				!bytes.Equal(seen[0].raw, inner) {
				t.Fatalf("%+v, drops %v", seen, s.engine.Drops())
			}
			if c := s.engine.Counters(tunnelIndex); c.RxPackets != 1 || c.TxPackets != 1 || c.RxBytes != 60 ||
				c.TxBytes != 60 {
				t.Errorf("counters of the tunnel: %+v", c)
			}
		})
	}
}

// wantChecksum checks the UDP checksum, which tunnel packets have over IPv6 only.
func wantChecksum(t *testing.T, f Family, d delivery) {
	t.Helper()
	udp := d.raw[vxlanOf(f)-frame.UDPLen:]
	if d.virtio != (frame.Virtio{}) {
		t.Errorf("%+v", d.virtio)
	}
	if f == IP4 {
		if udp[6] != 0 || udp[7] != 0 {
			t.Errorf("checksum %x", udp[6:8])
		}
		return
	}
	if frame.Sum(udp, frame.PseudoHeader(tunnelEnds[f][0], tunnelEnds[f][1], frame.ProtocolUDP, len(udp))) != 0xffff {
		t.Errorf("%+v, checksum %x", d.virtio, udp[6:8])
	}
}

func wantOuter(t *testing.T, p gopacket.Packet, ends [2]netip.Addr) {
	t.Helper()
	switch n := p.NetworkLayer().(type) {
	case *layers.IPv4:
		if n.TTL != 253 || n.Flags != 0 || sum(n.Contents) != 0xffff || n.SrcIP.String() != ends[0].String() ||
			n.DstIP.String() != ends[1].String() {
			t.Errorf("%+v", n)
		}
	case *layers.IPv6:
		if n.HopLimit != 254 || n.SrcIP.String() != ends[0].String() || n.DstIP.String() != ends[1].String() {
			t.Errorf("%+v", n)
		}
	default:
		t.Errorf("%v", p)
	}
}

func TestTunnelSourcePortsAndIdentificationsVary(t *testing.T) {
	s := newTunnelSegment(t, IP4)
	ports := map[string]bool{}
	numbers := map[string]bool{}
	for n := range 64 {
		raw := udp4(fmt.Sprintf("10.2.7.%d", n%32), 18)
		copy(raw, host(9).HardwareAddr())
		out := s.receive(1, raw, frame.Virtio{})[0].raw
		ports[string(out[34:36])] = true
		numbers[string(out[18:20])] = true
	}
	if len(ports) < 28 || len(ports) > 32 || len(numbers) != 64 {
		t.Errorf("32 flows of 2 packets have %d ports; %d numbers", len(ports), len(numbers))
	}
}

func TestTunnelSegmentsGSOFrames(t *testing.T) {
	s := newTunnelSegment(t, IP4)
	raw := udp4("10.2.7.7", 3000)
	copy(raw, host(9).HardwareAddr())
	v := frame.Virtio{
		Flags:          1,
		GSOType:        frame.GSOUDP,
		HeaderLen:      42,
		GSOSize:        1000,
		ChecksumStart:  34,
		ChecksumOffset: 6,
	}
	seen := s.receive(1, raw, v)
	if len(seen) != 3 {
		t.Fatalf("%d sent, drops %v", len(seen), s.engine.Drops())
	}
	for _, d := range seen {
		udp := d.raw[vxlanOf(IP4)+8+34:]
		source := netip.MustParseAddr("10.9.0.1")
		destination := netip.MustParseAddr("10.2.7.7")
		if len(udp) != 1008 || frame.Sum(udp, frame.PseudoHeader(source, destination, 17, len(udp))) != 0xffff ||
			!bytes.Equal(d.raw[34:36], seen[0].raw[34:36]) {
			t.Errorf("a segment of %d bytes", len(udp))
		}
	}
	// They return as one frame if the link supports GRO.
	at := vxlanOf(IP4)
	whole := reflected(seen[0].raw)
	for _, d := range seen[1:] {
		whole = append(whole, d.raw[at:]...)
	}
	n := len(whole) - 34
	whole[16] = byte((n + 20) >> 8)
	whole[17] = byte(n + 20)
	whole[38] = byte(n >> 8)
	whole[39] = byte(n)
	fixIPv4Checksum(whole)
	size := uint16(len(seen[0].raw) - at)
	back := s.receive(uplinkIndex, whole, frame.Virtio{
		Flags:          1,
		GSOType:        frame.GSOUDP,
		HeaderLen:      42,
		GSOSize:        size,
		ChecksumStart:  34,
		ChecksumOffset: 6,
	})
	if len(back) != 3 || !bytes.Equal(back[2].raw, seen[2].raw[at+8:]) {
		t.Errorf("%d decapsulated, drops %v", len(back), s.engine.Drops())
	}
}

// A vxlan device of the kernel may send packets through a veth with a partial inner checksum.
func TestDecapsulationKeepsInnerOffloads(t *testing.T) {
	s := newTunnelSegment(t, IP6)
	out := s.receive(1, between(host(1), host(9)), frame.Virtio{})[0].raw
	at := uint16(vxlanOf(IP6) + 8)
	inner := udp4("10.2.7.7", 500)
	raw := append(slices.Clone(out[:at]), inner...)
	n := len(raw) - 54
	raw[18] = byte(n >> 8)
	raw[19] = byte(n)
	raw[58] = byte(n >> 8)
	raw[59] = byte(n)
	back := s.receive(uplinkIndex, reflected(raw), frame.Virtio{Flags: 1, ChecksumStart: at + 34, ChecksumOffset: 6})
	want := frame.Virtio{Flags: 1, ChecksumStart: 34, ChecksumOffset: 6}
	if len(back) != 1 || back[0].virtio != want || !bytes.Equal(back[0].raw, inner) {
		t.Fatalf("%+v, drops %v", back, s.engine.Drops())
	}
	if back = s.receive(uplinkIndex, reflected(raw), frame.Virtio{
		Flags:          1,
		ChecksumStart:  at + 20,
		ChecksumOffset: 6,
	}); len(back) != 0 {
		t.Error("checksum over the inner addresses was accepted")
	}
}

func TestInvalidTunnelPacketsAreCountedByReason(t *testing.T) {
	modified := func(change func(raw []byte)) func(*segment) {
		return func(s *segment) {
			raw := reflected(s.receive(1, between(host(1), host(9)), frame.Virtio{})[0].raw)
			change(raw)
			s.receive(uplinkIndex, raw, frame.Virtio{})
		}
	}
	at := vxlanOf(IP4)
	for _, c := range []struct {
		rule, reason string
		do           func(*segment)
	}{
		{"another VNI", "vxlan4-input/no such tunnel packets", modified(func(b []byte) { b[at+6]++ })},
		{
			"another sender", "vxlan4-input/no such tunnel packets",
			modified(func(b []byte) { b[29]++; fixIPv4Checksum(b) }),
		},
		{
			"no I flag", "vxlan4-input/packets with bad flags field in vxlan header",
			modified(func(b []byte) { b[at] = 0 }),
		},
		{
			"another flag", "vxlan4-input/packets with bad flags field in vxlan header",
			modified(func(b []byte) { b[at] |= 1 }),
		},
		{
			"truncated header", "vxlan4-input/packets with bad flags field in vxlan header",
			modified(func(b []byte) { b[39] = 8 + 7 }),
		},
		{"a wrong checksum", "ip4-local/udp_checksum", modified(func(b []byte) { b[40] = 1 })},
		{"truncated frame", "ethernet-input/frame too short", modified(func(b []byte) {
			b[38] = 0
			b[39] = 8 + 8 + 13
		})},
		{"a tunnel that is down", "ethernet-input/subinterface down", func(s *segment) {
			raw := reflected(s.receive(1, between(host(1), host(9)), frame.Virtio{})[0].raw)
			s.set(tunnelIndex, Interface{Tunnel: tunnelTo(IP4)})
			s.engine.Publish()
			s.receive(uplinkIndex, raw, frame.Virtio{})
		}},
		{
			"a tunnel outside of all bridge domains", "feature-bitmap-drop/L2 feature forwarding disabled",
			func(s *segment) {
				raw := reflected(s.receive(1, between(host(1), host(9)), frame.Virtio{})[0].raw)
				s.change(plain(1, 1))
				s.receive(uplinkIndex, raw, frame.Virtio{})
			},
		},
		{"too long for the tunnel", "vxlan4-encap/packet exceeds the tunnel's MTU", func(s *segment) {
			s.receive(1, append(between(host(1), host(9)), make([]byte, 1400-45)...), frame.Virtio{})
		}},
		{"no route to the other end", "vxlan4-encap/no route to the other end", func(s *segment) {
			s.engine.DelRoute(TableKey{Family: IP4}, netip.MustParsePrefix("192.0.2.0/24"))
			s.engine.Publish()
			s.receive(1, between(host(1), host(9)), frame.Virtio{})
		}},
		{"a route into the tunnel itself", "vxlan4-encap/tunnel in a tunnel", routeTunnelIntoItself},
	} {
		t.Run(c.rule, func(t *testing.T) {
			s := newTunnelSegment(t, IP4)
			c.do(s)
			if n := s.engine.Drops()[c.reason]; n != 1 {
				t.Errorf("drops %v", s.engine.Drops())
			}
		})
	}
}

// routeTunnelIntoItself routes tunnel packets into the bridge domain of their tunnel.
func routeTunnelIntoItself(s *segment) {
	b := routed(1, 1)
	b.Members = append(b.Members, BridgeMember{Interface: tunnelIndex, SplitHorizon: 1})
	must(s.tb, s.engine.SetBridge(b))
	must(s.tb,
		s.engine.SetRoute(TableKey{Family: IP4}, netip.MustParsePrefix("192.0.2.0/24"), Route{
			Paths: []Path{{Interface: bviIndex}},
		}))
	must(s.tb, s.engine.SetNeighbour(bviIndex, tunnelEnds[IP4][1], host(77), true))
	s.engine.Publish()
	s.receive(1, between(host(1), host(9)), frame.Virtio{})
}

func TestLongTunnelPacketsAreFragmentedInIPv4AndDroppedInIPv6(t *testing.T) {
	long := append(between(host(1), host(9)), make([]byte, 1300)...)
	for f, want := range map[Family]int{IP4: 2, IP6: 0} {
		s := newTunnelSegment(t, f)
		s.set(uplinkIndex, Interface{
			Up:         true,
			MTU:        1300,
			MAC:        portMAC,
			IP6Enabled: true,
			Addresses:  []netip.Addr{tunnelEnds[f][0]},
		})
		s.engine.Publish()
		if got := len(s.receive(1, long, frame.Virtio{})); got != want {
			t.Errorf("IPv%d: %d packets, drops %v", f, got, s.engine.Drops())
		}
	}
}

func TestTunnelsFollowTheirInterfacesAndTables(t *testing.T) {
	s := newTunnelSegment(t, IP4)
	elsewhere := tunnelTo(IP4)
	elsewhere.Table = 7
	s.set(tunnelIndex, Interface{Up: true, MTU: 1400, Tunnel: elsewhere})
	s.engine.Publish()
	if got := s.receive(1, between(host(1), host(9)), frame.Virtio{}); len(got) != 0 {
		t.Error("sent by a missing table")
	}
	k := TableKey{Family: IP4, ID: 7}
	s.engine.AddTable(k)
	must(t, s.engine.SetRoute(k, netip.MustParsePrefix("192.0.2.0/24"), Route{Paths: []Path{{Interface: uplinkIndex}}}))
	s.engine.Publish()
	sent := s.receive(1, between(host(1), host(9)), frame.Virtio{})
	if len(sent) != 1 {
		t.Fatalf("%d sent by the table, drops %v", len(sent), s.engine.Drops())
	}
	s.receive(uplinkIndex, reflected(sent[0].raw), frame.Virtio{})
	if s.engine.Drops()["vxlan4-input/no such tunnel packets"] != 1 {
		t.Errorf("accepted a packet from another table: %v", s.engine.Drops())
	}
	s.serve(func() { s.engine.DelBridge(1) })
	s.engine.DelInterface(tunnelIndex)
	s.engine.Publish()
	if left := s.engine.live.Load().tunnels; len(left.byKey) != 0 || len(left.ports) != 0 || len(left.portUsers) != 0 {
		t.Errorf("tunnels after deletion: %+v", left)
	}
}

func TestTunnelsAllocateNothing(t *testing.T) {
	for f := range tunnelEnds {
		s := newTunnelSegment(t, f)
		raw := between(host(1), host(9))
		back := reflected(s.receive(1, raw, frame.Virtio{})[0].raw)
		for _, p := range s.ports {
			p.show = nil
		}
		for on, raw := range map[uint32][]byte{1: raw, uplinkIndex: back} {
			p := s.ports[on]
			p.frame = raw
			if n := allocations(100, func() {
				for p.waiting = frame.VectorSize; p.waiting > 0; {
					s.worker.round()
				}
			}); n != 0 {
				t.Errorf("IPv%d, received on %d: %v allocations a vector", f, on, n)
			}
		}
	}
}

// FuzzTunnelPacket sends random packets to a tunnel's port. Inner frames come out complete, and no buffer is lost.
func FuzzTunnelPacket(f *testing.F) {
	good := append([]byte{8, 0, 0, 0, 0x12, 0x34, 0x56, 0}, between(host(1), host(9))...)
	f.Add(good, uint8(0), uint16(0), uint16(0), uint16(0))
	f.Add(slices.Concat(good, good, good), uint8(frame.GSOUDP), uint16(34), uint16(6), uint16(len(good)))
	f.Add(append(good[:8:8], udp4("10.2.7.7", 1000)...), uint8(frame.GSOUDP), uint16(84), uint16(6), uint16(100))
	f.Add(append(good[:8:8], udp4("192.0.2.1", 1000)...), uint8(0), uint16(84), uint16(6), uint16(100))
	s := newTunnelSegment(f, IP4)
	f.Fuzz(func(t *testing.T, payload []byte, gso uint8, start, offset, gsoSize uint16) {
		if len(payload) > 60000 {
			return
		}
		v := frame.Virtio{GSOType: gso, GSOSize: gsoSize, ChecksumStart: start, ChecksumOffset: offset}
		if gso != 0 || offset != 0 {
			v.Flags = frame.VirtioNeedsChecksum
		}
		for _, d := range s.receive(uplinkIndex, tunnelPacket(payload), v) {
			if d.on == 1 && gso == 0 && !bytes.Contains(payload, d.raw) || len(d.raw) < frame.EthernetLen ||
				!d.virtio.Fits(len(d.raw)) {
				t.Errorf("on %d: %x %+v", d.on, d.raw, d.virtio)
			}
		}
		if s.worker.vtep.decapsulating || s.worker.vtep.encapsulating {
			t.Error("the worker is still in a tunnel")
		}
	})
}

// tunnelPacket is a packet from the other end to the tunnel's port.
func tunnelPacket(payload []byte) []byte {
	raw := make([]byte, frame.EthernetLen+frame.IPv4Len+frame.UDPLen, 64<<10)
	frame.PutEthernet(raw, portMAC, podMAC, frame.TypeIPv4)
	frame.PutIPv4(raw[14:], frame.IPFields{
		TTL:         9,
		Protocol:    frame.ProtocolUDP,
		Source:      tunnelEnds[IP4][1],
		Destination: tunnelEnds[IP4][0],
		PayloadLen:  frame.UDPLen + len(payload),
	})
	raw[36] = 0x12
	raw[37] = 0xb5
	raw[38] = byte((len(payload) + 8) >> 8)
	raw[39] = byte(len(payload) + 8)
	return append(raw, payload...)
}
