package forward

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// FuzzFrame sends frames through worker and slow path. All transmitted frames are well formed according to gopacket,
// and no buffer is lost.
func FuzzFrame(f *testing.F) {
	for _, raw := range seeds() {
		f.Add(raw, false, uint8(0), uint8(0), uint16(0), uint16(0), uint16(0))
		f.Add(raw, true, uint8(1), uint8(frame.GSOUDP), uint16(34), uint16(6), uint16(1000))
		f.Add(raw, true, uint8(1), uint8(frame.GSOTCP6), uint16(54), uint16(16), uint16(1000))
		f.Add(raw, true, uint8(1|4|8), uint8(frame.GSOUDP), uint16(34), uint16(6), uint16(9))
		f.Add(raw, true, uint8(1|4), uint8(0), uint16(34), uint16(6), uint16(0))
	}
	b := newBench(f)
	b.route(f, "10.61.0.0/16", Route{Paths: []Path{{Interface: 2}}})
	b.route(f, "fd61::/16", Route{Paths: []Path{{Interface: 2}}})
	b.route(f, "10.9.0.0/16", Route{Paths: []Path{{Interface: 1, NextHop: netip.MustParseAddr("10.9.0.1")}}})
	b.route(f, "fd09::/16", Route{Paths: []Path{{Interface: 1, NextHop: netip.MustParseAddr("10.9.0.1")}}})
	if err := b.engine.SetNeighbour(1, netip.MustParseAddr("10.9.0.1"), podMAC, true); err != nil {
		f.Fatal(err)
	}
	b.engine.Publish()
	now := time.Unix(1e9, 0)
	f.Fuzz(func(t *testing.T, raw []byte, mend bool, flags, gso uint8, start, offset, size uint16) {
		if len(raw) > frame.BufferSize {
			return
		}
		if mend {
			raw = withValidHeaders(raw)
		}
		for _, p := range []*memoryPort{b.in, b.out} {
			p.show = func(out []byte, v frame.Virtio) { checkSent(t, raw, out, v) }
		}
		b.engine.ports.Load().at(2).offload = port.Offload{Checksum: flags&4 == 0, TCP: flags&8 == 0, UDP: flags&8 == 0}
		b.run(raw,
			frame.Virtio{Flags: flags, GSOType: gso, GSOSize: size, ChecksumStart: start, ChecksumOffset: offset}, 1)
		now = now.Add(10 * time.Millisecond)
		b.engine.slow.Step(now)
		b.worker.round()
		if free := b.worker.countFree(); free != poolSize {
			t.Fatalf("%d of %d buffers left", free, poolSize)
		}
		for len(b.engine.events) > 0 {
			<-b.engine.events
		}
	})
}

// withValidHeaders fixes length and checksum fields, so that the fuzzer passes the first checks.
func withValidHeaders(raw []byte) []byte {
	raw = append([]byte(nil), raw...)
	if len(raw) >= 34 {
		copy(raw, portMAC[:])
		if raw[12] == 8 && raw[13] == 0 {
			raw[14] = 0x45
			raw[16], raw[17] = byte((len(raw)-14)>>8), byte(len(raw)-14)
			fixIPv4Checksum(raw)
		}
	}
	return raw
}

// checkSent checks a transmitted frame with gopacket. It must not end the test in the middle of a vector.
func checkSent(t *testing.T, in, out []byte, v frame.Virtio) {
	t.Helper()
	p := gopacket.NewPacket(out, layers.LayerTypeEthernet, gopacket.Default)
	e, ok := p.LinkLayer().(*layers.Ethernet)
	if !ok || !bytes.Equal(e.SrcMAC, portMAC[:]) || !v.Fits(len(out)) {
		t.Errorf("from %x:\n%v virtio %+v", in, p, v)
		return
	}
	var own bool
	switch n := p.NetworkLayer().(type) {
	case *layers.IPv4:
		if int(n.Length) != len(out)-14 || sum(out[14:14+4*int(n.IHL)]) != 0xffff || n.TTL == 0 {
			t.Errorf("from %x:\n%v", in, p)
		}
		own = n.SrcIP.String() == "10.1.0.1"
	case *layers.IPv6:
		if int(n.Length) != len(out)-54 || n.HopLimit == 0 {
			t.Errorf("from %x:\n%v", in, p)
		}
		own = n.SrcIP.String() == "fd01::1"
	default:
		own = p.Layer(layers.LayerTypeARP) != nil
		if !own {
			t.Errorf("from %x:\n%v", in, p)
		}
	}
	if own {
		checkOwnPacket(t, in, out, p)
	}
}

// checkOwnPacket checks a packet that the dataplane originated: gopacket finds no error and computes the same
// checksums.
func checkOwnPacket(t *testing.T, in, out []byte, p gopacket.Packet) {
	t.Helper()
	if bad := p.ErrorLayer(); bad != nil {
		t.Errorf("from %x:\n%v: %v", in, p, bad.Error())
	}
	if l := p.Layer(layers.LayerTypeICMPv4); l != nil {
		if sum(append(l.LayerContents(), l.LayerPayload()...)) != 0xffff {
			t.Errorf("from %x:\n%v", in, p)
		}
	}
	if p.Layer(layers.LayerTypeICMPv6) != nil {
		pseudo := append(append([]byte(nil), out[22:54]...), 0, 0, out[18], out[19], 0, 0, 0, 58)
		if sum(append(pseudo, out[54:]...)) != 0xffff {
			t.Errorf("from %x:\n%v", in, p)
		}
	}
}

// sum is the simplest form of RFC 1071.
func sum(b []byte) uint32 {
	var s uint32
	for i, x := range b {
		if i%2 == 0 {
			s += uint32(x) << 8
		} else {
			s += uint32(x)
		}
		s = s&0xffff + s>>16
	}
	return s
}

// seeds are frames of each kind that the dataplane distinguishes.
func seeds() [][]byte {
	echo := append(udp4("10.1.0.1", 0), 1, 2, 3, 4)
	echo[17] += 4
	echo[23] = frame.ProtocolICMP
	echo[34] = frame.ICMPEcho
	echo[35] = 0
	frame.ICMP(echo[34:]).PutChecksum(0)
	fixIPv4Checksum(echo)
	arp := make([]byte, frame.EthernetLen+frame.ARPLen)
	frame.PutEthernet(arp, frame.Broadcast, podMAC, frame.TypeARP)
	frame.PutARP(arp[14:], frame.ARPFields{
		Operation: frame.ARPRequest,
		SenderMAC: podMAC,
		Sender:    netip.MustParseAddr("10.61.0.1"),
		Target:    netip.MustParseAddr("10.1.0.1"),
	})
	return [][]byte{
		udp4("10.2.7.7", 18), udp6("fd02::7", 18), udp4("10.1.0.1", 18), udp6("fd01::1", 18), udp4("10.61.0.1", 18),
		udp6("fd61::1", 18), udp4("10.99.0.1", 18), udp6("fd99::1", 18), udp4("10.2.7.7", 1600), udp6("fd02::7", 1600),
		change(udp4("10.2.7.7", 18), func(b []byte) { b[22] = 1; fixIPv4Checksum(b) }), echo, arp, echo6("fd01::1"),
		solicit6(),
	}
}

func echo6(to string) []byte {
	b := udp6(to, 8)
	b[20] = frame.ProtocolICMPv6
	b[54] = frame.ICMP6Echo
	b[55] = 0
	body := frame.ICMP(b[54:])
	body.PutChecksum(frame.PseudoHeader(netip.MustParseAddr("fd09::1"), netip.MustParseAddr(to), 58, len(body)))
	return b
}

func solicit6() []byte {
	target := netip.MustParseAddr("fd01::1")
	group, mac := frame.SolicitedNode(target)
	b := udp6(group.String(), frame.NDLinkLen-frame.UDPLen)
	frame.PutEthernet(b, mac, podMAC, frame.TypeIPv6)
	b[20] = frame.ProtocolICMPv6
	b[21] = 255
	frame.PutND(b[54:], frame.NDFields{
		Type:   frame.ICMP6Solicit,
		Target: target,
		Option: frame.NDSourceLink,
		Link:   podMAC,
	})
	frame.ICMP(b[54:]).PutChecksum(frame.PseudoHeader(netip.MustParseAddr("fd09::1"), group, 58, frame.NDLinkLen))
	return b
}

// TestFuzzSeedsAreForwarded checks that the seeds of FuzzFrame pass the worker and the slow path.
func TestFuzzSeedsAreForwarded(t *testing.T) {
	b := newBench(t)
	b.route(t, "10.61.0.0/16", Route{Paths: []Path{{Interface: 2}}})
	b.route(t, "fd61::/16", Route{Paths: []Path{{Interface: 2}}})
	b.route(t, "10.9.0.0/16", Route{Paths: []Path{{Interface: 2, NextHop: netip.MustParseAddr("10.2.0.1")}}})
	b.route(t, "fd09::/16", Route{Paths: []Path{{Interface: 2, NextHop: netip.MustParseAddr("10.2.0.1")}}})
	b.engine.Publish()
	for i, raw := range seeds() {
		before := b.in.sent + b.out.sent
		b.run(raw, frame.Virtio{}, 1)
		b.engine.slow.Step(time.Unix(int64(1e9+i), 0))
		b.worker.round()
		if b.in.sent+b.out.sent == before {
			t.Errorf("seed %d: nothing sent; drops %v", i, b.engine.Drops())
		}
	}
}
