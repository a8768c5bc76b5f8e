package neighbour_test

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"

	"github.com/weftnet/weft/internal/neighbour"
	"github.com/weftnet/weft/internal/netaddr"
)

// The judge is gopacket, which writes the same frame from its fields and computes the checksum.
func TestFramesAreThoseOfGopacket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mac := netaddr.MAC(rapid.SliceOfN(rapid.Byte(), 6, 6).Draw(t, "MAC"))
		v4 := netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "IPv4")))
		v6 := netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "IPv6")))
		hardware := net.HardwareAddr(mac[:])

		request := layers.ARP{
			AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, Operation: layers.ARPRequest,
			HwAddressSize: 6, SourceHwAddress: hardware, DstHwAddress: make([]byte, 6),
			ProtAddressSize: 4, SourceProtAddress: v4.AsSlice(), DstProtAddress: v4.AsSlice(),
		}
		broadcast := layers.Ethernet{
			SrcMAC: hardware, DstMAC: layers.EthernetBroadcast, EthernetType: layers.EthernetTypeARP,
		}
		isAs(t, neighbour.Frame(mac, v4), &broadcast, &request)

		allNodes := net.ParseIP("ff02::1")
		packet := layers.IPv6{
			Version: 6, NextHeader: layers.IPProtocolICMPv6, HopLimit: 255, SrcIP: v6.AsSlice(), DstIP: allNodes,
		}
		message := layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborAdvertisement, 0)}
		if err := message.SetNetworkLayerForChecksum(&packet); err != nil {
			t.Fatal(err)
		}
		advertisement := layers.ICMPv6NeighborAdvertisement{
			Flags: 0x20, TargetAddress: v6.AsSlice(),
			Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptTargetAddress, Data: hardware}},
		}
		multicast := layers.Ethernet{
			SrcMAC: hardware, DstMAC: net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, EthernetType: layers.EthernetTypeIPv6,
		}
		isAs(t, neighbour.Frame(mac, v6), &multicast, &packet, &message, &advertisement)
	})
}

// isAs compares a frame with the one of its layers. The smallest frame of Ethernet is the interface's matter: gopacket
// appends zeros to it, which are not compared.
func isAs(t *rapid.T, frame []byte, of ...gopacket.SerializableLayer) {
	t.Helper()
	buffer := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buffer, options, of...); err != nil {
		t.Fatal(err)
	}
	want := buffer.Bytes()
	if len(frame) > len(want) || !bytes.Equal(frame, want[:len(frame)]) {
		t.Fatalf("% x, want % x", frame, want)
	}
	if rest := want[len(frame):]; len(bytes.Trim(rest, "\x00")) > 0 {
		t.Fatalf("% x is missing", rest)
	}
}
