package ctl

import (
	"net"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// packetOf returns a packet with these headers.
func packetOf(t *testing.T, parts ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true}, parts...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestLineOfAPacket(t *testing.T) {
	hosts := []net.HardwareAddr{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}
	ethernet := func(next layers.EthernetType) *layers.Ethernet {
		return &layers.Ethernet{SrcMAC: hosts[0], DstMAC: hosts[1], EthernetType: next}
	}
	ip4 := func(next layers.IPProtocol) *layers.IPv4 {
		return &layers.IPv4{
			Version: 4, TTL: 64, Protocol: next, SrcIP: net.IP{10, 1, 0, 2}, DstIP: net.IP{10, 1, 0, 9},
		}
	}
	ip6 := &layers.IPv6{
		Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP,
		SrcIP: net.ParseIP("fd00::2"), DstIP: net.ParseIP("fd00::9"),
	}
	tcp := &layers.TCP{SrcPort: 4321, DstPort: 80, SYN: true, ACK: true}
	udp := &layers.UDP{SrcPort: 53, DstPort: 4321}
	for want, tt := range map[string]struct {
		data []byte
		link layers.LinkType
	}{
		"UDP 10.1.0.2:53 > 10.1.0.9:4321": {packetOf(t, ethernet(layers.EthernetTypeIPv4), ip4(layers.IPProtocolUDP), udp), layers.LinkTypeEthernet},
		"VLAN 5, TCP [fd00::2]:4321 > [fd00::9]:80, SYN ACK": {
			packetOf(t, ethernet(layers.EthernetTypeDot1Q),
				&layers.Dot1Q{VLANIdentifier: 5, Type: layers.EthernetTypeIPv6}, ip6, tcp), layers.LinkTypeEthernet,
		},
		"TCP 10.1.0.2:4321 > 10.1.0.9:80, SYN ACK": {packetOf(t, ip4(layers.IPProtocolTCP), tcp), layers.LinkTypeRaw},
		"IP OSPF 10.1.0.2 > 10.1.0.9":              {packetOf(t, ip4(layers.IPProtocolOSPF)), layers.LinkTypeRaw},
		"packet, cut or invalid":                   {[]byte{1, 2, 3}, layers.LinkTypeEthernet},
	} {
		if got := packetLine(tt.data, tt.link); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A pod chooses each byte of its packets.
func FuzzPacketLine(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x08\x06\x00\x01"), false)
	f.Add([]byte("\x45\x00\x00\x1c\x00\x00\x00\x00\x40\x01\x00\x00\x0a\x01\x00\x02\x0a\x01\x00\x09"), true)
	f.Fuzz(func(t *testing.T, data []byte, raw bool) {
		link := layers.LinkTypeEthernet
		if raw {
			link = layers.LinkTypeRaw
		}
		if got := packetLine(data, link); got == "" || printable(got) != got || strings.ContainsAny(got, "\n\t") {
			t.Errorf("%q", got)
		}
	})
}
