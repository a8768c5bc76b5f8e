package frame_test

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"

	"github.com/weftnet/weft/vswitch/frame"
)

// written serialises a packet by gopacket, with lengths and checksums.
func written(t testing.TB, parts ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	o := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(b, o, parts...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func sample4(t testing.TB) []byte {
	ip := &layers.IPv4{
		Version:  4,
		TTL:      9,
		Protocol: layers.IPProtocolUDP,
		SrcIP:    net.IP{10, 0, 0, 1},
		DstIP:    net.IP{10, 0, 0, 2},
		Flags:    layers.IPv4DontFragment,
	}
	udp := &layers.UDP{SrcPort: 7, DstPort: 8}
	_ = udp.SetNetworkLayerForChecksum(ip)
	return written(t, ip, udp, gopacket.Payload("hello"))
}

func sample6(t testing.TB) []byte {
	ip := &layers.IPv6{
		Version:    6,
		HopLimit:   9,
		NextHeader: layers.IPProtocolTCP,
		SrcIP:      net.ParseIP("fd00::1"),
		DstIP:      net.ParseIP("fd00::2"),
	}
	tcp := &layers.TCP{
		SrcPort: 7,
		DstPort: 8,
		SYN:     true,
		Options: []layers.TCPOption{{OptionType: 2, OptionLength: 4, OptionData: []byte{5, 0xb4}}},
	}
	_ = tcp.SetNetworkLayerForChecksum(ip)
	return written(t, ip, tcp, gopacket.Payload("hello"))
}

func TestIPv4ViewAgreesWithGopacket(t *testing.T) {
	raw := append(sample4(t), 0, 0, 0) // padding
	p, err := frame.ParseIPv4(raw)
	if err != nil || len(p) != len(raw)-3 {
		t.Fatalf("%d bytes, %v", len(p), err)
	}
	if !p.ChecksumValid() || p.TTL() != 9 || !p.DontFragment() || p.IsFragment() || p.Protocol() != frame.ProtocolUDP ||
		p.Source() != netip.MustParseAddr("10.0.0.1") || p.Destination() != netip.MustParseAddr("10.0.0.2") {
		t.Errorf("%x", p)
	}
	u, err := frame.ParseUDP(p.Payload())
	if err != nil || u.SourcePort() != 7 || u.DestinationPort() != 8 {
		t.Errorf("udp %x %v", u, err)
	}
	p[10]++
	if p.ChecksumValid() {
		t.Error("a wrong checksum is valid")
	}
}

func TestIPv6ViewAgreesWithGopacket(t *testing.T) {
	p, err := frame.ParseIPv6(append(sample6(t), 0))
	if err != nil || p.HopLimit() != 9 || p.Source() != netip.MustParseAddr("fd00::1") ||
		p.Destination() != netip.MustParseAddr("fd00::2") {
		t.Fatalf("%x %v", p, err)
	}
	u, ok := p.Upper()
	if !ok || u != (frame.Upper{Protocol: frame.ProtocolTCP, Offset: frame.IPv6Len}) {
		t.Errorf("upper %+v", u)
	}
	s, err := frame.ParseTCP(p[u.Offset:])
	if err != nil || s.HeaderLen() != 24 || s.SourcePort() != 7 || s.DestinationPort() != 8 {
		t.Errorf("tcp %x %v", s, err)
	}
}

// behind returns n headers of destination options, and one in front of UDP.
func behind(n int) []byte {
	return append(bytes.Repeat([]byte{60, 0, 0, 0, 0, 0, 0, 0}, n), 17, 0, 0, 0, 0, 0, 0, 0)
}

func TestUpperSkipsExtensionHeaders(t *testing.T) {
	for _, c := range []struct {
		rule  string
		chain []byte // next header, then the headers
		want  frame.Upper
		ok    bool
	}{
		{"none", []byte{17, 0, 0}, frame.Upper{Protocol: 17, Offset: 40}, true},
		{"hop by hop", []byte{0, 17, 0, 0, 0, 0, 0, 0, 0}, frame.Upper{Protocol: 17, Offset: 48}, true},
		{
			"options of 16 bytes", append([]byte{60, 6, 1}, make([]byte, 14)...), frame.Upper{Protocol: 6, Offset: 56},
			true,
		},
		{
			"first fragment", []byte{44, 17, 0, 0, 1, 0, 0, 0, 0},
			frame.Upper{Protocol: 17, Offset: 48, Fragment: true}, true,
		},
		{
			"later fragment", []byte{44, 17, 0, 0, 8, 0, 0, 0, 0},
			frame.Upper{Protocol: 17, Offset: 48, Later: true, Fragment: true}, true,
		},
		{
			"two fragment headers", []byte{44, 44, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 8, 0, 0, 0, 0},
			frame.Upper{Protocol: 44, Offset: 48}, false,
		},
		{"cut off", []byte{0, 17, 0, 0}, frame.Upper{Protocol: 0, Offset: 40}, false},
		{"longer than the packet", []byte{0, 17, 9, 0, 0, 0, 0, 0, 0}, frame.Upper{Protocol: 17, Offset: 120}, false},
		{"eight", append([]byte{60}, behind(7)...), frame.Upper{Protocol: 17, Offset: 104}, true},
		{"nine", append([]byte{60}, behind(8)...), frame.Upper{Protocol: 17, Offset: 112}, false},
		{"endless", append([]byte{0}, make([]byte, 80)...), frame.Upper{Protocol: 0, Offset: 112}, false},
	} {
		t.Run(c.rule, func(t *testing.T) {
			raw := make([]byte, frame.IPv6Len, 200)
			raw[0] = 0x60
			raw[5] = byte(len(c.chain) - 1)
			raw[6] = c.chain[0]
			p, err := frame.ParseIPv6(append(raw, c.chain[1:]...))
			if err != nil {
				t.Fatal(err)
			}
			if got, ok := p.Upper(); got != c.want || ok != c.ok {
				t.Errorf("got %+v %v", got, ok)
			}
		})
	}
}

func TestWrittenHeadersAgreeWithGopacket(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		a4 := func(name string) netip.Addr {
			return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(r, name)))
		}
		a6 := func(name string) netip.Addr {
			return netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(r, name)))
		}
		f := frame.IPFields{
			TOS:         4,
			TTL:         rapid.Byte().Draw(r, "ttl"),
			Protocol:    253,
			Source:      a4("s4"),
			Destination: a4("d4"),
			PayloadLen:  3,
		}
		b := make([]byte, frame.IPv4Len+3)
		frame.PutIPv4(b, f)
		want := written(t, &layers.IPv4{
			Version: 4, TOS: 4, TTL: f.TTL, Protocol: 253,
			SrcIP: f.Source.AsSlice(), DstIP: f.Destination.AsSlice(),
		}, gopacket.Payload{0, 0, 0})
		if string(b) != string(want) {
			r.Fatalf("IPv4\n%x\n%x", b, want)
		}
		f.Source, f.Destination = a6("s6"), a6("d6")
		b = make([]byte, frame.IPv6Len+3)
		frame.PutIPv6(b, f)
		want = written(t, &layers.IPv6{
			Version:      6,
			TrafficClass: 4,
			HopLimit:     f.TTL,
			NextHeader:   253,
			SrcIP:        f.Source.AsSlice(),
			DstIP:        f.Destination.AsSlice(),
		}, gopacket.Payload{0, 0, 0})
		if string(b) != string(want) {
			r.Fatalf("IPv6\n%x\n%x", b, want)
		}
	})
}

func TestNeighbourMessagesAgreeWithGopacket(t *testing.T) {
	mac := frame.MAC{2, 0, 0, 0, 0, 1}
	arp := make([]byte, frame.ARPLen)
	frame.PutARP(arp, frame.ARPFields{
		Operation: frame.ARPReply, SenderMAC: mac, TargetMAC: frame.MAC{4},
		Sender: netip.MustParseAddr("10.0.0.1"), Target: netip.MustParseAddr("10.0.0.2"),
	})
	want := written(t, &layers.ARP{
		AddrType:          layers.LinkTypeEthernet,
		Protocol:          layers.EthernetTypeIPv4,
		HwAddressSize:     6,
		ProtAddressSize:   4,
		Operation:         2,
		SourceHwAddress:   mac[:],
		SourceProtAddress: []byte{10, 0, 0, 1},
		DstHwAddress:      []byte{4, 0, 0, 0, 0, 0},
		DstProtAddress:    []byte{10, 0, 0, 2},
	})
	if string(arp) != string(want) {
		t.Errorf("ARP\n%x\n%x", arp, want)
	}
	target := netip.MustParseAddr("fd00::1:2")
	nd := make([]byte, frame.NDLinkLen)
	frame.PutND(nd, frame.NDFields{
		Type:   frame.ICMP6Advert,
		Flags:  frame.NDFlagSolicited,
		Target: target,
		Option: frame.NDTargetLink,
		Link:   mac,
	})
	p := gopacket.NewPacket(nd, layers.LayerTypeICMPv6, gopacket.Default)
	a, ok := p.Layer(layers.LayerTypeICMPv6NeighborAdvertisement).(*layers.ICMPv6NeighborAdvertisement)
	if !ok || !a.TargetAddress.Equal(target.AsSlice()) || !a.Solicited() || a.Router() || len(a.Options) != 1 ||
		string(a.Options[0].Data) != string(mac[:]) {
		t.Errorf("ND %v", p)
	}
	group, groupMAC := frame.SolicitedNode(target)
	if group != netip.MustParseAddr("ff02::1:ff01:2") || groupMAC != (frame.MAC{0x33, 0x33, 0xff, 1, 0, 2}) {
		t.Errorf("solicited-node %v %v", group, groupMAC)
	}
}
