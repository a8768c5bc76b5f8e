package frame_test

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"

	"github.com/weftnet/weft/vswitch/frame"
)

var (
	mac = frame.MAC{2, 0, 0, 0, 0, 1}
	a4  = netip.MustParseAddr("10.0.0.1")
	b4  = netip.MustParseAddr("10.0.0.2")
	a6  = netip.MustParseAddr("fd00::1")
)

// gso is a GSO frame with its parts.
type gso struct {
	raw     []byte
	virtio  frame.Virtio
	payload []byte
	tcp     *layers.TCP // nil: UDP
	id      uint16
	v6      bool
}

// drawGSO serialises a frame by gopacket, with a partial checksum.
func drawGSO(t *rapid.T) gso {
	g := gso{v6: rapid.Bool().Draw(t, "v6"), id: rapid.Uint16().Draw(t, "id"),
		payload: rapid.SliceOfN(rapid.Byte(), 1, 3000).Draw(t, "payload")}
	size := rapid.Uint16Range(1, 1500).Draw(t, "size")
	g.virtio = frame.Virtio{Flags: frame.VirtioNeedsChecksum, GSOSize: max(size, uint16(len(g.payload)/64))}
	var parts []gopacket.SerializableLayer
	kind := layers.EthernetTypeIPv4
	if g.v6 {
		kind = layers.EthernetTypeIPv6
	}
	outer := kind
	tags := rapid.IntRange(0, 2).Draw(t, "tags")
	if tags > 0 {
		outer = layers.EthernetTypeDot1Q
	}
	parts = append(parts, &layers.Ethernet{SrcMAC: mac[:], DstMAC: mac[:], EthernetType: outer})
	for n := range tags {
		inner := layers.EthernetTypeDot1Q
		if n == tags-1 {
			inner = kind
		}
		parts = append(parts, &layers.Dot1Q{VLANIdentifier: uint16(n + 1), Type: inner})
	}
	return g.build(t, parts)
}

func (g gso) build(t *rapid.T, parts []gopacket.SerializableLayer) gso {
	protocol := layers.IPProtocolUDP
	if rapid.Bool().Draw(t, "tcp") {
		protocol = layers.IPProtocolTCP
	}
	var network gopacket.NetworkLayer
	if g.v6 {
		p := &layers.IPv6{
			Version:    6,
			HopLimit:   64,
			NextHeader: protocol,
			SrcIP:      bytes.Repeat([]byte{1}, 16),
			DstIP:      bytes.Repeat([]byte{2}, 16),
		}
		network = p
		parts = append(parts, p)
	} else {
		p := &layers.IPv4{
			Version:  4,
			TTL:      64,
			Protocol: protocol,
			Id:       g.id,
			Flags:    layers.IPv4DontFragment,
			SrcIP:    []byte{10, 0, 0, 1},
			DstIP:    []byte{10, 0, 0, 2},
		}
		if rapid.Bool().Draw(t, "options") {
			p.Options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}}
		}
		network = p
		parts = append(parts, p)
	}
	if protocol == layers.IPProtocolUDP {
		g.virtio.GSOType = frame.GSOUDP
		g.virtio.ChecksumOffset = 6
		u := &layers.UDP{SrcPort: 40001, DstPort: 40002}
		_ = u.SetNetworkLayerForChecksum(network)
		parts = append(parts, u)
	} else {
		g.virtio.GSOType = frame.GSOTCP4
		g.virtio.ChecksumOffset = 16
		if g.v6 {
			g.virtio.GSOType = frame.GSOTCP6
		}
		flag := rapid.Bool()
		g.tcp = &layers.TCP{
			SrcPort: 40001,
			DstPort: 40002,
			Seq:     rapid.Uint32().Draw(t, "seq"),
			Ack:     77,
			Window:  5,
			ACK:     true,
			PSH:     flag.Draw(t, "psh"),
			FIN:     flag.Draw(t, "fin"),
			CWR:     flag.Draw(t, "cwr"),
			ECE:     flag.Draw(t, "ece"),
			URG:     false,
		}
		if g.tcp.CWR {
			g.virtio.GSOType |= frame.GSOECN
		}
		if flag.Draw(t, "timestamps") {
			g.tcp.Options = []layers.TCPOption{
				{OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: make([]byte, 8)},
			}
		}
		_ = g.tcp.SetNetworkLayerForChecksum(network)
		parts = append(parts, g.tcp)
	}
	b := gopacket.NewSerializeBuffer()
	o := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(b, o, append(parts, gopacket.Payload(g.payload))...); err != nil {
		t.Fatal(err)
	}
	g.raw = b.Bytes()
	for _, l := range gopacket.NewPacket(g.raw, layers.LayerTypeEthernet, gopacket.Default).Layers() {
		if _, ok := l.(gopacket.TransportLayer); ok {
			break
		}
		g.virtio.ChecksumStart += uint16(len(l.LayerContents()))
	}
	field := g.raw[g.virtio.ChecksumStart+g.virtio.ChecksumOffset:]
	field[0] = 0xba
	field[1] = 0xad // any value: segments have their own checksums
	return g
}

// The payloads of all segments form the original, and gopacket finds no error in them.
func TestSegmentsReassembleToTheFrame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGSO(t)
		original := bytes.Clone(g.raw)
		s, ok := frame.NewSegmenter(g.raw, g.virtio)
		if !ok {
			t.Fatalf("refused: %+v", g.virtio)
		}
		var joined []byte
		room := make([]byte, s.Longest())
		for count := 0; ; count++ {
			n := s.Next(room)
			if n == 0 {
				break
			}
			joined = append(joined, g.check(t, bytes.Clone(room[:n]), count, len(joined))...)
		}
		if !bytes.Equal(joined, g.payload) || !bytes.Equal(g.raw, original) {
			t.Fatalf("%d of %d bytes, or others", len(joined), len(g.payload))
		}
	})
}

// check checks a segment and returns its payload.
func (g gso) check(t *rapid.T, raw []byte, count, before int) []byte {
	p := gopacket.NewPacket(raw, layers.LayerTypeEthernet, gopacket.Default)
	if bad := p.ErrorLayer(); bad != nil {
		t.Fatalf("segment %d: %v", count, bad.Error())
	}
	if u, ok := p.TransportLayer().(interface {
		SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
	}); ok {
		_ = u.SetNetworkLayerForChecksum(p.NetworkLayer())
	}
	if bad, wrong := p.VerifyChecksums(); bad != nil || len(wrong) > 0 {
		t.Fatalf("segment %d: checksums %v %v\n%v", count, bad, wrong, p)
	}
	payload := p.TransportLayer().LayerPayload()
	last := before+len(payload) == len(g.payload)
	if len(payload) > int(g.virtio.GSOSize) || !last && len(payload) < int(g.virtio.GSOSize) {
		t.Fatalf("segment %d has %d bytes", count, len(payload))
	}
	if n, ok := p.NetworkLayer().(*layers.IPv4); ok {
		if int(n.Length) != len(n.Contents)+len(n.Payload) || n.Id != g.id+uint16(count) ||
			n.Flags != layers.IPv4DontFragment {
			t.Fatalf("segment %d: %+v", count, n)
		}
	}
	switch u := p.TransportLayer().(type) {
	case *layers.UDP:
		if int(u.Length) != 8+len(payload) || u.Checksum == 0 || g.tcp != nil {
			t.Fatalf("segment %d: %+v", count, u)
		}
	case *layers.TCP:
		want := *g.tcp
		want.Seq += uint32(before)
		want.CWR = want.CWR && count == 0
		want.PSH = want.PSH && last
		want.FIN = want.FIN && last
		if u.Seq != want.Seq || u.CWR != want.CWR || u.PSH != want.PSH || u.FIN != want.FIN || u.ECE != want.ECE ||
			u.Ack != 77 || !u.ACK || u.Window != 5 {
			t.Fatalf("segment %d: %+v", count, u)
		}
	}
	return payload
}

func TestSegmenterRejectsInvalidFrames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGSO(t)
		rule := rapid.SampledFrom([]string{"start", "many", "type", "size", "plain", "short", "protocol"}).Draw(t,
			"rule")
		switch rule {
		case "start":
			g.virtio.ChecksumStart--
		case "many":
			g.virtio.GSOSize = uint16((len(g.payload) - 1) / 1024)
		case "type":
			g.virtio.GSOType = 3
		case "size":
			g.virtio.GSOSize = 0
		case "plain":
			g.virtio.GSOType = frame.GSONone
		case "short":
			g.raw = g.raw[:g.virtio.ChecksumStart]
		case "protocol":
			g.virtio.GSOType = frame.GSOUDP
			if g.tcp == nil {
				g.virtio.GSOType = frame.GSOTCP4
			}
		}
		if _, ok := frame.NewSegmenter(g.raw, g.virtio); ok {
			t.Fatalf("%s was not seen", rule)
		}
	})
}

func FuzzSegmenter(f *testing.F) {
	f.Add(make([]byte, 100), uint8(1), uint8(1), uint16(34), uint16(16), uint16(100))
	f.Add([]byte(
		"\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x08\x00\x45\x00\x00\x2e\x00\x00\x40\x00\x40\x11\x00\x00\x0a\x00\x00\x01\x0a\x00\x00\x02\x00\x01\x00\x02\x00\x1a\x00\x00abcdefghijklmnopqr"),
		uint8(1), uint8(frame.GSOUDP), uint16(34), uint16(6), uint16(5))
	inner := behind4(frame.ProtocolUDP, append([]byte{0, 1, 0, 2, 0, 28, 0, 0}, make([]byte, 20)...))
	f.Add(behind4(47, append([]byte{0x80, 0, 8, 0, 0, 0, 0, 0}, inner[frame.EthernetLen:]...)), uint8(1),
		uint8(frame.GSOUDP), uint16(62), uint16(6), uint16(5))
	f.Fuzz(func(t *testing.T, raw []byte, flags, kind uint8, start, offset, size uint16) {
		v := frame.Virtio{Flags: flags, GSOType: kind, GSOSize: size, ChecksumStart: start, ChecksumOffset: offset}
		s, ok := frame.NewSegmenter(raw, v)
		if !ok {
			return
		}
		room := make([]byte, s.Longest())
		total := 0
		for n := s.Next(room); n > 0; n = s.Next(room) {
			if total += n; n > len(room) || total > len(raw)*(len(raw)+1) {
				t.Fatalf("%d bytes of segments", total)
			}
		}
		if total < 1 {
			t.Fatal("no segment")
		}
	})
}

func TestSegmentationAllocatesNothing(t *testing.T) {
	raw := make([]byte, frame.EthernetLen+frame.IPv4Len+frame.UDPLen+4000)
	frame.PutEthernet(raw, mac, mac, frame.TypeIPv4)
	frame.PutIPv4(raw[14:], frame.IPFields{
		TTL:         9,
		Protocol:    frame.ProtocolUDP,
		Source:      a4,
		Destination: b4,
		PayloadLen:  frame.UDPLen + 4000,
	})
	raw[14+6] = 0
	raw[38] = byte(4008 >> 8)
	raw[39] = byte(4008 & 0xff)
	v := frame.Virtio{Flags: 1, GSOType: frame.GSOUDP, GSOSize: 1000, ChecksumStart: 34, ChecksumOffset: 6}
	room := make([]byte, 2000)
	cut := 0
	if n := testing.AllocsPerRun(10, func() {
		s, _ := frame.NewSegmenter(raw, v)
		for s.Next(room) > 0 {
			cut++
		}
		f, _ := frame.NewFragmenter(raw, 1500)
		for f.Next(room) > 0 {
			cut++
		}
	}); n != 0 || cut != 11*(4+3) {
		t.Errorf("%v allocations, %d pieces", n, cut)
	}
}

func BenchmarkSegmenter(b *testing.B) {
	raw := make([]byte, frame.EthernetLen+frame.IPv4Len+frame.UDPLen+60000)
	frame.PutEthernet(raw, mac, mac, frame.TypeIPv4)
	frame.PutIPv4(raw[14:], frame.IPFields{
		TTL:         9,
		Protocol:    frame.ProtocolUDP,
		Source:      a4,
		Destination: b4,
		PayloadLen:  frame.UDPLen + 60000,
	})
	raw[38] = byte(60008 >> 8)
	raw[39] = byte(60008 & 0xff)
	v := frame.Virtio{Flags: 1, GSOType: frame.GSOUDP, GSOSize: 1448, ChecksumStart: 34, ChecksumOffset: 6}
	room := make([]byte, 2000)
	b.SetBytes(60000)
	for b.Loop() {
		s, _ := frame.NewSegmenter(raw, v)
		for s.Next(room) > 0 {
		}
	}
}
