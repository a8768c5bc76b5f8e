package slow_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/weftnet/weft/vswitch/slow"
)

func echo4(t *testing.T, to netip.Addr) []byte {
	return build(t, ip4(layers.IPProtocolICMPv4, to),
		&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0), Id: 7, Seq: 3}, gopacket.Payload("abc"))
}

func echo6(t *testing.T, from, to netip.Addr) []byte {
	ip := ip6(layers.IPProtocolICMPv6, from, to)
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(128, 0)}
	_ = icmp.SetNetworkLayerForChecksum(ip)
	return build(t, ip, icmp, &layers.ICMPv6Echo{Identifier: 7, SeqNumber: 3}, gopacket.Payload("abc"))
}

func udp(t *testing.T, to netip.Addr, size int) []byte {
	u := &layers.UDP{SrcPort: 1, DstPort: 2}
	if to.Is4() {
		ip := ip4(layers.IPProtocolUDP, to)
		_ = u.SetNetworkLayerForChecksum(ip)
		return build(t, ip, u, gopacket.Payload(make([]byte, size)))
	}
	ip := ip6(layers.IPProtocolUDP, their6, to)
	_ = u.SetNetworkLayerForChecksum(ip)
	return build(t, ip, u, gopacket.Payload(make([]byte, size)))
}

func TestEchoIsAnswered(t *testing.T) {
	d := newDataplane(t)
	m := slow.Message{Reason: slow.Received, Interface: 1}
	out := d.give(m, echo4(t, our4))
	if len(out) != 1 || out[0].reason != slow.Route {
		t.Fatalf("sent %v", out)
	}
	l, ok := out[0].packet.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
	if !ok || l.TypeCode != 0 || l.Id != 7 || l.Seq != 3 || string(l.Payload) != "abc" ||
		plain(append(l.Contents, l.Payload...)) != 0xffff {
		t.Errorf("%v", out[0].packet)
	}
	out = d.give(m, echo6(t, their6, our6))
	if len(out) != 1 || out[0].reason != slow.Route {
		t.Fatalf("sent %v", out)
	}
	wantICMP6(t, out[0], 129, 0)
	out = d.give(m, echo6(t, netip.MustParseAddr("fe80::9"), ourLink))
	if len(out) != 1 || out[0].reason != slow.Output || out[0].out != 1 {
		t.Fatalf("link-local: sent %+v", out)
	}
	wantICMP6(t, out[0], 129, 0)
}

// wantICMP6 checks type, code, and the checksum by hand.
func wantICMP6(t *testing.T, s sent, kind, code uint8) {
	t.Helper()
	l, ok := s.packet.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
	if !ok || l.TypeCode != layers.CreateICMPv6TypeCode(kind, code) {
		t.Errorf("want %d/%d: %v", kind, code, s.packet)
		return
	}
	pseudo := append(append([]byte(nil), s.raw[22:54]...), 0, 0, s.raw[18], s.raw[19], 0, 0, 0, 58)
	if plain(append(pseudo, s.raw[54:]...)) != 0xffff {
		t.Errorf("checksum: %v", s.packet)
	}
}

func plain(b []byte) uint32 {
	var s uint32
	for i, x := range b {
		s += uint32(x) << (8 * (1 - i%2))
		s = s&0xffff + s>>16
	}
	return s
}

func TestICMPErrorMatchesReason(t *testing.T) {
	for _, c := range []struct {
		rule         string
		m            slow.Message
		to           netip.Addr
		kind, code   uint8
		kind6, code6 uint8
	}{
		{"time exceeded", slow.Message{Reason: slow.Expired}, netip.MustParseAddr("10.9.9.9"), 11, 0, 3, 0},
		{"no route", slow.Message{Reason: slow.NoRoute}, netip.MustParseAddr("10.9.9.9"), 3, 0, 1, 0},
		{"unreachable", slow.Message{Reason: slow.HostUnreached}, netip.MustParseAddr("10.9.9.9"), 3, 1, 1, 3},
		{"prohibited", slow.Message{Reason: slow.Prohibited}, netip.MustParseAddr("10.9.9.9"), 3, 13, 1, 1},
		{"too big", slow.Message{Reason: slow.TooBig, MTU: 1300}, netip.MustParseAddr("10.9.9.9"), 3, 4, 2, 0},
		{"no listener", slow.Message{Reason: slow.Received}, our4, 3, 3, 1, 4},
	} {
		t.Run(c.rule, func(t *testing.T) {
			d := newDataplane(t)
			c.m.Interface = 1
			out := d.give(c.m, udp(t, c.to, 2000))
			if len(out) != 1 || len(out[0].raw) > 14+576 {
				t.Fatalf("sent %v", out)
			}
			l, ok := out[0].packet.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
			if !ok || l.TypeCode != layers.CreateICMPv4TypeCode(c.kind, c.code) || int(l.Seq) != c.m.MTU ||
				plain(append(append([]byte(nil), l.Contents...), l.Payload...)) != 0xffff {
				t.Errorf("%v", out[0].packet)
			}
			to := netip.MustParseAddr("fd99::1")
			if c.to == our4 {
				to = our6
			}
			out = d.give(c.m, udp(t, to, 2000))
			if len(out) != 1 || len(out[0].raw) > 14+1280 {
				t.Fatalf("sent %v", out)
			}
			wantICMP6(t, out[0], c.kind6, c.code6)
		})
	}
}

func TestTruncatedFrameGetsICMPError(t *testing.T) {
	d := newDataplane(t)
	m := slow.Message{Reason: slow.TooBig, Interface: 1, MTU: 1300}
	out := d.give(m, udp(t, netip.MustParseAddr("10.9.9.9"), 40000))
	if len(out) != 1 {
		t.Fatalf("sent %v", out)
	}
	if l, ok := out[0].packet.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4); !ok ||
		l.TypeCode != layers.CreateICMPv4TypeCode(3, 4) || l.Seq != 1300 {
		t.Errorf("%v", out[0].packet)
	}
	out = d.give(m, udp(t, netip.MustParseAddr("fd99::1"), 40000))
	if len(out) != 1 {
		t.Fatalf("sent %v", out)
	}
	wantICMP6(t, out[0], 2, 0)
	m = slow.Message{Reason: slow.Unresolved, Interface: 1, Out: 1, Target: their4}
	if d.give(m, udp(t, their4, 40000)); d.drops("slow-path/packet too long") != 1 {
		t.Error("it was kept for its neighbour")
	}
}

func TestICMPErrorIsNotSentWhenForbidden(t *testing.T) {
	source := func(raw []byte, first byte) []byte { raw[26] = first; return raw }
	fragment := udp(t, netip.MustParseAddr("10.9.9.9"), 10)
	fragment[21] = 9
	group := udp(t, netip.MustParseAddr("10.9.9.9"), 10)
	group[0] = 1
	nested := build(t, ip4(layers.IPProtocolICMPv4, netip.MustParseAddr("10.9.9.9")),
		&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 1)}, gopacket.Payload("abc"))
	for _, c := range []struct {
		rule string
		raw  []byte
	}{
		{"about an ICMP error", nested},
		{"about a later fragment", fragment},
		{"about a frame to a group", group},
		{"to a multicast source", source(udp(t, netip.MustParseAddr("10.9.9.9"), 10), 224)},
		{"to a loopback source", source(udp(t, netip.MustParseAddr("10.9.9.9"), 10), 127)},
	} {
		t.Run(c.rule, func(t *testing.T) {
			d := newDataplane(t)
			if out := d.give(slow.Message{Reason: slow.NoRoute, Interface: 1}, c.raw); len(out) != 0 ||
				d.drops("slow-path/icmp error not owed") != 1 {
				t.Errorf("sent %v", out)
			}
		})
	}
}

func TestICMPErrorsAreRateLimited(t *testing.T) {
	d := newDataplane(t)
	raw := udp(t, netip.MustParseAddr("10.9.9.9"), 10)
	burst := func() (n int) {
		for range 200 {
			n += len(d.give(slow.Message{Reason: slow.NoRoute, Interface: 1}, raw))
		}
		return n
	}
	if n := burst(); n != 50 {
		t.Errorf("%d at once", n)
	}
	d.step(20 * time.Millisecond)
	if n := burst(); n != 20 {
		t.Errorf("%d after 20 ms", n)
	}
	if out := d.give(slow.Message{Reason: slow.Received, Interface: 1}, echo4(t, our4)); len(out) != 1 {
		t.Error("echo is limited with the errors")
	}
}

func TestFullWorkerOrMissingSourceIsCounted(t *testing.T) {
	d := newDataplane(t)
	d.full = true
	d.give(slow.Message{Reason: slow.Received, Interface: 1}, echo4(t, our4))
	d.full = false
	d.give(slow.Message{Reason: slow.NoRoute, Interface: 2}, udp(t, netip.MustParseAddr("10.9.9.9"), 10))
	if d.drops("slow-path/output full") != 1 || d.drops("slow-path/no source address for icmp error") != 1 {
		t.Errorf("drops: %d, %d", d.drops("slow-path/output full"),
			d.drops("slow-path/no source address for icmp error"))
	}
}
