package slow_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/slow"
)

// arp serialises f with gopacket.
func arp(t *testing.T, f frame.ARPFields) []byte {
	raw := build(t, &layers.ARP{
		AddrType:          layers.LinkTypeEthernet,
		Protocol:          layers.EthernetTypeIPv4,
		HwAddressSize:     6,
		ProtAddressSize:   4,
		Operation:         f.Operation,
		SourceHwAddress:   f.SenderMAC[:],
		SourceProtAddress: f.Sender.AsSlice(),
		DstHwAddress:      make([]byte, 6),
		DstProtAddress:    f.Target.AsSlice(),
	})
	copy(raw[6:], f.SenderMAC[:])
	return raw
}

// nd serialises f with gopacket, from the neighbour to the dataplane.
func nd(t *testing.T, f frame.NDFields) []byte {
	ip := ip6(layers.IPProtocolICMPv6, their6, our6)
	ip.HopLimit = 255
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(f.Type, 0)}
	_ = icmp.SetNetworkLayerForChecksum(ip)
	if f.Type == frame.ICMP6Solicit {
		return build(t, ip, icmp, &layers.ICMPv6NeighborSolicitation{
			TargetAddress: f.Target.AsSlice(),
			Options:       layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: f.Link[:]}},
		})
	}
	return build(t, ip, icmp, &layers.ICMPv6NeighborAdvertisement{
		Flags:         f.Flags,
		TargetAddress: f.Target.AsSlice(),
		Options:       layers.ICMPv6Options{{Type: layers.ICMPv6OptTargetAddress, Data: f.Link[:]}},
	})
}

func TestRequestsForOwnAddressesAreAnswered(t *testing.T) {
	d := newDataplane(t)
	out := d.give(slow.Message{Reason: slow.ARP, Interface: 1},
		arp(t, frame.ARPFields{Operation: 1, SenderMAC: theirMAC, Sender: their4, Target: our4}))
	if len(out) != 1 || out[0].reason != slow.Output || out[0].out != 1 {
		t.Fatalf("sent %+v", out)
	}
	a, ok := out[0].packet.Layer(layers.LayerTypeARP).(*layers.ARP)
	if !ok || a.Operation != 2 || string(a.SourceHwAddress) != string(ourMAC[:]) ||
		string(a.DstHwAddress) != string(theirMAC[:]) ||
		string(a.SourceProtAddress) != string(our4.AsSlice()) || string(a.DstProtAddress) != string(their4.AsSlice()) {
		t.Errorf("%v", out[0].packet)
	}
	if len(d.learned) != 0 {
		t.Errorf("learned %v from a foreign request", d.learned)
	}
	for _, target := range []netip.Addr{our6, ourLink} {
		out = d.give(slow.Message{Reason: slow.Discovery, Interface: 1},
			nd(t, frame.NDFields{Type: frame.ICMP6Solicit, Target: target, Link: theirMAC}))
		if len(out) != 1 {
			t.Fatalf("%v: sent %+v", target, out)
		}
		n, ok := out[0].packet.Layer(layers.LayerTypeICMPv6NeighborAdvertisement).(*layers.ICMPv6NeighborAdvertisement)
		if !ok || !n.TargetAddress.Equal(target.AsSlice()) || !n.Solicited() || !n.Override() ||
			string(n.Options[0].Data) != string(ourMAC[:]) {
			t.Errorf("%v", out[0].packet)
		}
	}
}

func TestInvalidAndForeignRequestsAreDropped(t *testing.T) {
	other6 := netip.MustParseAddr("fd00::77")
	hops := nd(t, frame.NDFields{Type: frame.ICMP6Solicit, Target: our6, Link: theirMAC})
	hops[21] = 64
	sum := nd(t, frame.NDFields{Type: frame.ICMP6Solicit, Target: our6, Link: theirMAC})
	sum[56]++
	spoofed := arp(t, frame.ARPFields{Operation: 1, SenderMAC: theirMAC, Sender: their4, Target: our4})
	spoofed[11]++
	for _, c := range []struct {
		rule   string
		reason slow.Reason
		raw    []byte
		cause  string
	}{
		{
			"foreign IPv4 address", slow.ARP,
			arp(t, frame.ARPFields{
				Operation: 1,
				SenderMAC: theirMAC,
				Sender:    their4,
				Target:    netip.MustParseAddr("10.0.0.77"),
			}),
			"arp-reply/l3_dst_address_not_local",
		},
		{
			"our own address claimed", slow.ARP,
			arp(t, frame.ARPFields{Operation: 1, SenderMAC: theirMAC, Sender: our4, Target: our4}),
			"arp-reply/l3_src_address_is_local",
		},
		{"sender's MAC is not the frame's", slow.ARP, spoofed, "arp-reply/l2_address_mismatch"},
		{
			"truncated", slow.ARP,
			arp(t, frame.ARPFields{Operation: 1, SenderMAC: theirMAC, Sender: their4, Target: our4})[:40],
			"arp-input/malformed",
		},
		{
			"foreign IPv6 address", slow.Discovery,
			nd(t, frame.NDFields{Type: frame.ICMP6Solicit, Target: other6, Link: theirMAC}),
			"ip6-icmp-input/neighbor_solicitation_source_unknown",
		},
		{"hop limit below 255", slow.Discovery, hops, "ip6-icmp-input/malformed neighbour message"},
		{"wrong checksum", slow.Discovery, sum, "ip6-icmp-input/malformed neighbour message"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			d := newDataplane(t)
			if out := d.give(slow.Message{Reason: c.reason, Interface: 1}, c.raw); len(out) != 0 ||
				d.drops(c.cause) != 1 {
				t.Errorf("sent %v, dropped %d", out, d.drops(c.cause))
			}
		})
	}
}

// packetTo returns a frame that needs the MAC of a neighbour.
func packetTo(t *testing.T, to netip.Addr) []byte {
	if to.Is4() {
		return build(t, ip4(layers.IPProtocolNoNextHeader, to), gopacket.Payload("x"))
	}
	return build(t, ip6(layers.IPProtocolNoNextHeader, netip.MustParseAddr("fd77::1"), to), gopacket.Payload("x"))
}

func TestUnresolvedFramesWaitForTheAnswer(t *testing.T) {
	for _, c := range []struct {
		rule   string
		target netip.Addr
		answer func(t *testing.T) (slow.Reason, []byte)
	}{
		{"IPv4", netip.MustParseAddr("10.0.0.50"), func(t *testing.T) (slow.Reason, []byte) {
			return slow.ARP, arp(t, frame.ARPFields{
				Operation: 2,
				SenderMAC: theirMAC,
				Sender:    netip.MustParseAddr("10.0.0.50"),
				Target:    our4,
			})
		}},
		{"IPv6", netip.MustParseAddr("fd00::50"), func(t *testing.T) (slow.Reason, []byte) {
			return slow.Discovery, nd(t, frame.NDFields{
				Type:   frame.ICMP6Advert,
				Target: netip.MustParseAddr("fd00::50"),
				Link:   theirMAC,
				Flags:  frame.NDFlagSolicited,
			})
		}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			d := newDataplane(t)
			m := slow.Message{
				Reason:    slow.Unresolved,
				Interface: 2,
				Out:       1,
				Target:    c.target,
				Virtio:    frame.Virtio{Flags: 2},
			}
			if out := d.give(m, packetTo(t, c.target)); len(out) != 1 {
				t.Fatalf("first frame: sent %v", out)
			}
			for range 20 {
				if out := d.give(m, packetTo(t, c.target)); len(out) != 0 {
					t.Fatalf("asked twice within a second: %v", out)
				}
			}
			if d.drops("slow-path/neighbour queue full") != 13 {
				t.Errorf("%d dropped", d.drops("slow-path/neighbour queue full"))
			}
			reason, raw := c.answer(t)
			out := d.give(slow.Message{Reason: reason, Interface: 1}, raw)
			if len(out) != 8 || frame.Ethernet(out[0].raw).Destination() != theirMAC ||
				frame.Ethernet(out[0].raw).Source() != ourMAC ||
				d.message.Virtio.Flags != 2 || out[0].out != 1 {
				t.Fatalf("after the answer: %v", out)
			}
			if len(d.learned) != 1 || d.learned[0] != (learned{1, c.target, theirMAC}) {
				t.Errorf("learned %v", d.learned)
			}
			if out := d.give(m, packetTo(t, c.target)); len(out) != 1 || len(d.learned) != 2 {
				t.Errorf("before control knows: sent %v, learned %v", out, d.learned)
			}
		})
	}
}

func TestSilentNeighbourIsAskedThreeTimesThenRefused(t *testing.T) {
	d := newDataplane(t)
	m := slow.Message{Reason: slow.Unresolved, Interface: 1, Out: 1, Target: netip.MustParseAddr("10.0.0.50")}
	asked := len(d.give(m, packetTo(t, m.Target)))
	for range 2 {
		asked += len(d.step(999 * time.Millisecond))
		asked += len(d.step(time.Millisecond))
	}
	if asked != 3 {
		t.Fatalf("asked %d times", asked)
	}
	out := d.step(time.Second)
	if len(out) != 1 {
		t.Fatalf("sent %v", out)
	}
	if l, ok := out[0].packet.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4); !ok ||
		l.TypeCode != layers.CreateICMPv4TypeCode(3, 1) {
		t.Errorf("%v", out[0].packet)
	}
	if due := d.path.Step(d.now); !due.IsZero() {
		t.Errorf("still due at %v", due)
	}
}

func TestResolutionsAreBounded(t *testing.T) {
	d := newDataplane(t)
	for i := range 1100 {
		a := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		d.give(slow.Message{Reason: slow.Unresolved, Interface: 1, Out: 1, Target: a}, packetTo(t, a))
	}
	if n := d.drops("slow-path/neighbour resolutions at limit"); n != 1100-1024 {
		t.Errorf("%d refused", n)
	}
}

func TestClaims(t *testing.T) {
	override := uint8(frame.NDFlagOverride)
	for _, c := range []struct {
		rule   string
		known  *neighbour
		reason slow.Reason
		raw    []byte
		learns bool
	}{
		{
			"gratuitous ARP does not change a static entry", &neighbour{theirMAC, true}, slow.ARP,
			arp(t, frame.ARPFields{Operation: 1, SenderMAC: evilMAC, Sender: their4, Target: their4}), false,
		},
		{
			"ARP reply does not change a static entry", &neighbour{theirMAC, true}, slow.ARP,
			arp(t, frame.ARPFields{Operation: 2, SenderMAC: evilMAC, Sender: their4, Target: our4}), false,
		},
		{
			"advertisement does not change a static entry", &neighbour{theirMAC, true}, slow.Discovery,
			nd(t, frame.NDFields{Type: frame.ICMP6Advert, Target: their4in6, Link: evilMAC, Flags: override}), false,
		},
		{
			"gratuitous ARP changes a dynamic entry", &neighbour{theirMAC, false}, slow.ARP,
			arp(t, frame.ARPFields{Operation: 1, SenderMAC: evilMAC, Sender: their4, Target: their4}), true,
		},
		{
			"unchanged dynamic entry is not reported", &neighbour{evilMAC, false}, slow.ARP,
			arp(t, frame.ARPFields{Operation: 1, SenderMAC: evilMAC, Sender: their4, Target: their4}), false,
		},
		{
			"advertisement without override changes nothing", &neighbour{theirMAC, false}, slow.Discovery,
			nd(t, frame.NDFields{Type: frame.ICMP6Advert, Target: their4in6, Link: evilMAC}), false,
		},
		{
			"advertisement with override changes a dynamic entry", &neighbour{theirMAC, false}, slow.Discovery,
			nd(t, frame.NDFields{Type: frame.ICMP6Advert, Target: their4in6, Link: evilMAC, Flags: override}), true,
		},
		{
			"ARP reply of an unknown neighbour adds no entry", nil, slow.ARP,
			arp(t, frame.ARPFields{Operation: 2, SenderMAC: evilMAC, Sender: their4, Target: our4}), false,
		},
		{
			"advertisement of an unknown neighbour adds no entry", nil, slow.Discovery,
			nd(t, frame.NDFields{Type: frame.ICMP6Advert, Target: their4in6, Link: evilMAC, Flags: override}), false,
		},
	} {
		t.Run(c.rule, func(t *testing.T) {
			d := newDataplane(t)
			if c.known != nil {
				d.neighbours[their4] = *c.known
				d.neighbours[their4in6] = *c.known
			}
			d.give(slow.Message{Reason: c.reason, Interface: 1}, c.raw)
			if learns := len(d.learned) > 0; learns != c.learns || learns && d.learned[0].mac != evilMAC {
				t.Errorf("learned %v", d.learned)
			}
		})
	}
}

var their4in6 = netip.MustParseAddr("fd00::77")
