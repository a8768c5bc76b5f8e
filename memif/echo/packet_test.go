package echo

import (
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/weftnet/weft/memif"
)

var (
	ours   = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	theirs = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	all    = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	us4    = net.IP{10, 5, 0, 7}
	them4  = net.IP{10, 5, 0, 1}
	us6    = net.ParseIP("fd00::7")
	them6  = net.ParseIP("fd00::1")
)

func testHost(mode memif.Mode) *Host {
	return NewHost(memif.Description{
		Mode: mode, MAC: ours,
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.5.0.7/24"), netip.MustParsePrefix("fd00::7/64")},
	})
}

func packet(t *testing.T, parts ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		parts...); err != nil {
		t.Fatal(err)
	}
	return append(make([]byte, 0, 2048), b.Bytes()...)
}

func ethernet(to net.HardwareAddr, kind layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: theirs, DstMAC: to, EthernetType: kind}
}

func ping4(t *testing.T, to net.IP, link ...gopacket.SerializableLayer) []byte {
	t.Helper()
	ip := &layers.IPv4{Version: 4, TTL: 9, Protocol: layers.IPProtocolICMPv4, SrcIP: them4, DstIP: to}
	icmp := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0), Id: 4, Seq: 5}
	return packet(t, append(link, ip, icmp, gopacket.Payload("payload"))...)
}

// icmp6 returns a packet from ends[0] to ends[1].
func icmp6(t *testing.T, ends [2]net.IP, kind uint8, body ...gopacket.SerializableLayer) []byte {
	t.Helper()
	ip := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: ends[0], DstIP: ends[1]}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, 0)}
	if err := icmp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	parts := []gopacket.SerializableLayer{ethernet(ours, layers.EthernetTypeIPv6), ip, icmp}
	return packet(t, append(parts, body...)...)
}

func arp(t *testing.T, wanted net.IP) []byte {
	t.Helper()
	return packet(t, ethernet(all, layers.EthernetTypeARP), &layers.ARP{
		AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
		Operation: layers.ARPRequest, SourceHwAddress: theirs, SourceProtAddress: them4,
		DstHwAddress: make([]byte, 6), DstProtAddress: wanted.To4(),
	})
}

func solicit(t *testing.T, from net.IP, options ...layers.ICMPv6Option) []byte {
	t.Helper()
	return icmp6(t, [2]net.IP{from, net.ParseIP("ff02::1:ff00:7")}, layers.ICMPv6TypeNeighborSolicitation,
		&layers.ICMPv6NeighborSolicitation{TargetAddress: us6, Options: options})
}

// decoded fails the test if a length or a checksum is wrong.
func decoded(t *testing.T, reply []byte, first gopacket.LayerType) gopacket.Packet {
	t.Helper()
	p := gopacket.NewPacket(reply, first, gopacket.Default)
	if e := p.ErrorLayer(); e != nil {
		t.Fatal(e.Error())
	}
	if icmp, ok := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6); ok {
		if err := icmp.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
			t.Fatal(err)
		}
	}
	wrong, mismatches := p.VerifyChecksums()
	if wrong != nil || len(mismatches) != 0 {
		t.Fatalf("checksums: %v %v", wrong, mismatches)
	}
	return p
}
