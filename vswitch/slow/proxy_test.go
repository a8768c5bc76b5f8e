package slow_test

import (
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/slow"
)

func TestInterfaceAnswersForProxiedAddresses(t *testing.T) {
	low := netip.MustParseAddr("10.0.0.100")
	high := netip.MustParseAddr("10.0.0.200")
	host := netip.MustParseAddr("fd00::77")
	own := netip.MustParseAddr("fd00::78")
	foreign := netip.MustParseAddr("fd00::79")
	ranges := slow.Proxied{
		Ranges: []slow.Range{
			{Low: netip.MustParseAddr("10.0.0.1"), High: netip.MustParseAddr("10.0.0.2")}, {Low: low, High: high},
		},
	}
	hosts := slow.Proxied{Hosts: map[netip.Addr]uint32{host: 2, own: 1}}
	ask4 := func(sender, target string) []byte {
		return arp(t, frame.ARPFields{
			Operation: 1,
			SenderMAC: theirMAC,
			Sender:    netip.MustParseAddr(sender),
			Target:    netip.MustParseAddr(target),
		})
	}
	ask6 := func(target netip.Addr) []byte {
		return nd(t, frame.NDFields{Type: frame.ICMP6Solicit, Target: target, Link: theirMAC})
	}
	for _, c := range []struct {
		rule      string
		proxied   slow.Proxied
		raw       []byte
		neighbour netip.Addr
		want      netip.Addr // the address in the answer
	}{
		{rule: "no ranges", raw: ask4("10.0.0.9", "10.0.0.100")},
		{rule: "first of a range", proxied: ranges, raw: ask4("10.0.0.9", "10.0.0.100"), want: low},
		{rule: "last of a range", proxied: ranges, raw: ask4("10.0.0.9", "10.0.0.200"), want: high},
		{rule: "address after the range", proxied: ranges, raw: ask4("10.0.0.9", "10.0.0.201")},
		{rule: "address before the range", proxied: ranges, raw: ask4("10.0.0.9", "10.0.0.99")},
		{rule: "probe", proxied: ranges, raw: ask4("0.0.0.0", "10.0.0.100"), want: low},
		{rule: "not for the sender itself", proxied: ranges, raw: ask4("10.0.0.100", "10.0.0.100")},
		{rule: "not for a neighbour on the link", proxied: ranges, raw: ask4("10.0.0.9", "10.0.0.100"), neighbour: low},
		{rule: "proxied host", proxied: hosts, raw: ask6(host), want: host},
		{rule: "not a host behind the same interface", proxied: hosts, raw: ask6(own)},
		{rule: "not a host on the link", proxied: hosts, raw: ask6(host), neighbour: host},
		{rule: "not an unknown host", proxied: hosts, raw: ask6(foreign)},
		{rule: "all addresses", proxied: slow.Proxied{All: true}, raw: ask6(foreign), want: foreign},
		{
			rule:    "all but link-local addresses",
			proxied: slow.Proxied{All: true},
			raw:     ask6(netip.MustParseAddr("fe80::77")),
		},
	} {
		t.Run(c.rule, func(t *testing.T) {
			d := newDataplane(t)
			i := d.interfaces[1]
			i.Proxied = c.proxied
			d.interfaces[1] = i
			if c.neighbour.IsValid() {
				d.neighbours[c.neighbour] = neighbour{mac: evilMAC}
			}
			reason := slow.Discovery
			if frame.Ethernet(c.raw).Type() == frame.TypeARP {
				reason = slow.ARP
			}
			out := d.give(slow.Message{Reason: reason, Interface: 1}, c.raw)
			if !c.want.IsValid() {
				if len(out) != 0 {
					t.Errorf("sent %v", out[0].packet)
				}
				return
			}
			if len(out) != 1 || out[0].out != 1 {
				t.Fatalf("sent %+v", out)
			}
			saysWeAre(t, out[0], c.want)
		})
	}
}

// saysWeAre checks that a frame announces our MAC for an address to the sender.
func saysWeAre(t *testing.T, s sent, a netip.Addr) {
	t.Helper()
	if r, ok := s.packet.Layer(layers.LayerTypeARP).(*layers.ARP); ok {
		if r.Operation != 2 || string(r.SourceHwAddress) != string(ourMAC[:]) ||
			string(r.SourceProtAddress) != string(a.AsSlice()) || string(r.DstHwAddress) != string(theirMAC[:]) {
			t.Errorf("%v", s.packet)
		}
		return
	}
	n, ok := s.packet.Layer(layers.LayerTypeICMPv6NeighborAdvertisement).(*layers.ICMPv6NeighborAdvertisement)
	if !ok || n.TargetAddress.String() != a.String() || string(n.Options[0].Data) != string(ourMAC[:]) {
		t.Errorf("%v", s.packet)
	}
}

// A gratuitous request needs no answer, so a missing answer is not a drop.
func TestGratuitousARPIsNoDrop(t *testing.T) {
	d := newDataplane(t)
	d.give(slow.Message{Reason: slow.ARP, Interface: 1},
		arp(t, frame.ARPFields{Operation: 1, SenderMAC: theirMAC, Sender: their4, Target: their4}))
	if n := d.drops("arp-reply/l3_dst_address_not_local"); n != 0 {
		t.Errorf("%d drops", n)
	}
}
