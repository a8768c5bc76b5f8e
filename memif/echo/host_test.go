package echo

import (
	"bytes"
	"net"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/weftnet/weft/memif"
)

func TestPingOfIPv4IsAnswered(t *testing.T) {
	for mode, request := range map[memif.Mode][]byte{
		memif.Ethernet: ping4(t, us4, ethernet(ours, layers.EthernetTypeIPv4)),
		memif.IP:       ping4(t, us4),
	} {
		first := layers.LayerTypeEthernet
		if mode == memif.IP {
			first = layers.LayerTypeIPv4
		}
		p := decoded(t, testHost(mode).Answer(request), first)
		ip := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		icmp := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
		if !ip.SrcIP.Equal(us4) || !ip.DstIP.Equal(them4) || icmp.TypeCode.Type() != layers.ICMPv4TypeEchoReply ||
			icmp.Id != 4 || icmp.Seq != 5 || string(icmp.Payload) != "payload" {
			t.Errorf("%s: %v", mode, p)
		}
	}
}

func TestPingOfIPv6IsAnswered(t *testing.T) {
	request := icmp6(t, [2]net.IP{them6, us6}, layers.ICMPv6TypeEchoRequest, &layers.ICMPv6Echo{
		Identifier: 4,
		SeqNumber:  5,
	})
	p := decoded(t, testHost(memif.Ethernet).Answer(request), layers.LayerTypeEthernet)
	ip := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
	icmp := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
	if !ip.SrcIP.Equal(us6) || !ip.DstIP.Equal(them6) || icmp.TypeCode.Type() != layers.ICMPv6TypeEchoReply {
		t.Error(p)
	}
}

func TestARPIsAnswered(t *testing.T) {
	p := decoded(t, testHost(memif.Ethernet).Answer(arp(t, us4)), layers.LayerTypeEthernet)
	a := p.Layer(layers.LayerTypeARP).(*layers.ARP)
	link := p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	if a.Operation != layers.ARPReply || !bytes.Equal(a.SourceHwAddress, ours) || !us4.Equal(a.SourceProtAddress) ||
		!bytes.Equal(a.DstHwAddress, theirs) || !them4.Equal(a.DstProtAddress) || !bytes.Equal(link.DstMAC, theirs) {
		t.Error(p)
	}
}

func TestSolicitationIsAnswered(t *testing.T) {
	own := layers.ICMPv6Option{Type: layers.ICMPv6OptSourceAddress, Data: theirs}
	for name, c := range map[string]struct {
		request []byte
		to      net.IP
		flags   uint8
	}{
		"of a neighbour":                      {solicit(t, them6, own), them6, 0x60},
		"without a source link-layer address": {solicit(t, them6), them6, 0x60},
		"for duplicate address detection":     {solicit(t, net.IPv6zero), net.ParseIP("ff02::1"), 0x20},
	} {
		t.Run(name, func(t *testing.T) {
			p := decoded(t, testHost(memif.Ethernet).Answer(c.request), layers.LayerTypeEthernet)
			ip := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
			a := p.Layer(layers.LayerTypeICMPv6NeighborAdvertisement).(*layers.ICMPv6NeighborAdvertisement)
			if !ip.DstIP.Equal(c.to) || !ip.SrcIP.Equal(us6) || ip.HopLimit != 255 || !a.TargetAddress.Equal(us6) ||
				a.Flags != c.flags || len(a.Options) != 1 || !bytes.Equal(a.Options[0].Data, ours) {
				t.Error(p)
			}
		})
	}
}

func TestPacketsForOthersAndInvalidPacketsAreNotAnswered(t *testing.T) {
	broken := ping4(t, us4, ethernet(ours, layers.EthernetTypeIPv4))
	broken[ethernetSize+20+8]++ // the first byte of the payload
	for name, p := range map[string][]byte{
		"ARP for another":        arp(t, them4),
		"ping of another":        ping4(t, them4, ethernet(ours, layers.EthernetTypeIPv4)),
		"another MAC address":    ping4(t, us4, ethernet(theirs, layers.EthernetTypeIPv4)),
		"a wrong checksum":       broken,
		"a cut packet":           ping4(t, us4, ethernet(ours, layers.EthernetTypeIPv4))[:40],
		"half an Ethernet frame": make([]byte, 7),
	} {
		if reply := testHost(memif.Ethernet).Answer(p); reply != nil {
			t.Errorf("%s was answered", name)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte{}, true)
	f.Fuzz(func(_ *testing.T, p []byte, isIP bool) {
		mode := memif.Ethernet
		if isIP {
			mode = memif.IP
		}
		testHost(mode).Answer(append(make([]byte, 0, len(p)+64), p...))
	})
}
