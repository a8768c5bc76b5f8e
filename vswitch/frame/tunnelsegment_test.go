package frame_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/vswitch/frame"
)

// tunnelled is a tunnel's header between the outer IP header and the inner packet.
type tunnelled struct {
	name     string
	protocol uint8
	header   []byte
	ethernet bool // the inner packet has an Ethernet header
}

// udpTo is the header of a datagram without length, whose checksum the kernel leaves to the segments if it is set.
func udpTo(port uint16, checksum byte, rest ...byte) []byte {
	b := append([]byte{0xc3, 0x50, 0, 0, 0, 0, checksum, checksum}, rest...)
	binary.BigEndian.PutUint16(b[2:], port)
	return b
}

func vxlanHeader() []byte { return []byte{8, 0, 0, 0, 0, 0, 5, 0} }

func tunnels() []tunnelled {
	long := append([]byte{63, 0, 0x65, 0x58, 0, 0, 5, 0}, make([]byte, 252)...)
	return []tunnelled{
		{"VXLAN", frame.ProtocolUDP, udpTo(4789, 0, vxlanHeader()...), true},
		{"VXLAN with checksums", frame.ProtocolUDP, udpTo(4789, 0xa1, vxlanHeader()...), true},
		{"GENEVE", frame.ProtocolUDP, udpTo(6081, 0xa1, 0, 0, 0x65, 0x58, 0, 0, 5, 0), true},
		{"GENEVE with all options", frame.ProtocolUDP, udpTo(6081, 0, long...), true},
		{"FOU", frame.ProtocolUDP, udpTo(5555, 0xa1), false},
		{"GUE", frame.ProtocolUDP, udpTo(5556, 0, 0, 4, 0, 0), false},
		{"GRE", 47, []byte{0, 0, 8, 0}, false},
		{"GRE with a key", 47, []byte{0x20, 0, 8, 0, 0, 0, 0, 9}, false},
		{"GRE with checksums", 47, []byte{0x80, 0, 8, 0, 0xa1, 0xa1, 0, 0}, false},
		{"GRETAP", 47, []byte{0, 0, 0x65, 0x58}, true},
		{"IP in IP", 4, nil, false},
	}
}

// in puts a GSO frame into a tunnel.
func (g gso) in(tunnel tunnelled, v6 bool) gso {
	_, at := frame.Ethernet(g.raw).Network()
	end := len(g.raw)
	if p, err := frame.ParseIPv4(g.raw[at:]); err == nil {
		end = at + len(p) // without gopacket's padding
	} else if p, err := frame.ParseIPv6(g.raw[at:]); err == nil {
		end = at + len(p)
	}
	body := g.raw[:end]
	if !tunnel.ethernet {
		body = body[at:]
		if g.v6 && tunnel.protocol == 4 {
			tunnel.protocol = 41
		}
	}
	body = append(bytes.Clone(tunnel.header), body...)
	if tunnel.protocol == frame.ProtocolUDP {
		binary.BigEndian.PutUint16(body[4:], uint16(len(body)))
	}
	if v6 {
		g.raw = behind6(tunnel.protocol, body)
	} else {
		g.raw = behind4(tunnel.protocol, body)
		binary.BigEndian.PutUint16(g.raw[18:], 0xfffe)
		p := g.raw[frame.EthernetLen:]
		p[10] = 0
		p[11] = 0
		binary.BigEndian.PutUint16(p[10:], ^plain(p[:frame.IPv4Len]))
	}
	g.virtio.ChecksumStart += uint16(len(g.raw) - end)
	return g
}

// inner checks the outer headers of a segment and returns the frame in it, with an Ethernet header.
func (g gso) inner(t *rapid.T, tunnel tunnelled, raw []byte, count int) []byte {
	p := raw[frame.EthernetLen:]
	upper := frame.IPv6Len
	if p[0]>>4 == 4 {
		upper = frame.IPv4Len
		if plain(p[:upper]) != 0xffff || int(binary.BigEndian.Uint16(p[2:])) != len(p) {
			t.Fatalf("segment %d: outer header %x", count, p[:upper])
		}
		if id := binary.BigEndian.Uint16(p[4:]); id != 0xfffe+uint16(count) {
			t.Fatalf("segment %d: outer identification %04x", count, id)
		}
	} else if int(binary.BigEndian.Uint16(p[4:])) != len(p)-upper {
		t.Fatalf("segment %d: outer header %x", count, p[:upper])
	}
	body := p[upper:]
	switch checksummed := bytes.Contains(tunnel.header, []byte{0xa1, 0xa1}); {
	case tunnel.protocol == frame.ProtocolUDP && int(binary.BigEndian.Uint16(body[4:])) != len(body):
		t.Fatalf("segment %d: outer UDP header %x", count, body[:8])
	case tunnel.protocol == frame.ProtocolUDP && checksummed &&
		plain(append(pseudoBytes(p, len(body)), body...)) != 0xffff:
		t.Fatalf("segment %d: outer UDP checksum %x", count, body[6:8])
	case tunnel.protocol == frame.ProtocolUDP && !checksummed && (body[6] != 0 || body[7] != 0):
		t.Fatalf("segment %d: outer UDP checksum %x, there was none", count, body[6:8])
	case tunnel.protocol == 47 && checksummed && plain(body) != 0xffff:
		t.Fatalf("segment %d: checksum of GRE %x", count, body[4:6])
	}
	if tunnel.ethernet {
		return body[len(tunnel.header):]
	}
	kind := uint16(frame.TypeIPv4)
	if g.v6 {
		kind = frame.TypeIPv6
	}
	inner := body[len(tunnel.header):]
	b := make([]byte, frame.EthernetLen+len(inner))
	frame.PutEthernet(b, mac, mac, kind)
	copy(b[frame.EthernetLen:], inner)
	return b
}

// pseudoBytes is the pseudo header of a UDP datagram.
func pseudoBytes(packet []byte, length int) []byte {
	addresses := packet[8:frame.IPv6Len]
	if packet[0]>>4 == 4 {
		addresses = packet[12:frame.IPv4Len]
	}
	b := append(bytes.Clone(addresses), 0, 0, 0, 0, 0, 0, 0, frame.ProtocolUDP)
	binary.BigEndian.PutUint32(b[len(b)-8:], uint32(length))
	return b
}

// The kernel leaves the segmentation of a pod's own tunnels to its veth, too.
func TestSegmentsOfATunnelReassembleToTheFrame(t *testing.T) {
	for _, tunnel := range tunnels() {
		t.Run(tunnel.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				g := drawGSO(t).in(tunnel, rapid.Bool().Draw(t, "outer v6"))
				if !g.virtio.IsEncapsulated(g.raw) {
					t.Fatal("not recognised")
				}
				s, ok := frame.NewSegmenter(g.raw, g.virtio)
				if !ok {
					t.Fatalf("refused: %+v", g.virtio)
				}
				first := frame.EthernetLen + frame.IPv4Len
				if g.raw[frame.EthernetLen]>>4 == 6 {
					first += frame.IPv6Len - frame.IPv4Len
				}
				longest, ok := g.virtio.LongestIP(g.raw[frame.EthernetLen:], first-frame.EthernetLen,
					outerProtocol(g.raw))
				var joined []byte
				room := make([]byte, s.Longest())
				for count := 0; ; count++ {
					n := s.Next(room)
					if n == 0 {
						break
					}
					if ok = ok && n <= frame.EthernetLen+longest; !ok {
						t.Fatalf("segment of %d, the longest packet is %d", n, longest)
					}
					joined = append(joined,
						g.check(t, g.inner(t, tunnel, bytes.Clone(room[:n]), count), count, len(joined))...)
				}
				if !bytes.Equal(joined, g.payload) {
					t.Fatalf("%d of %d bytes, or others", len(joined), len(g.payload))
				}
			})
		})
	}
}

func outerProtocol(raw []byte) uint8 {
	if raw[frame.EthernetLen]>>4 == 6 {
		return raw[frame.EthernetLen+6]
	}
	return raw[frame.EthernetLen+9]
}

func TestSegmenterRejectsWhatIsNotATunnel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tunnel := rapid.SampledFrom(tunnels()).Draw(t, "tunnel")
		g := drawGSO(t).in(tunnel, false)
		rule := rapid.SampledFrom([]string{"start", "protocol", "fragment", "length", "short"}).Draw(t, "rule")
		upper := frame.EthernetLen + frame.IPv4Len
		switch rule {
		case "start":
			g.virtio.ChecksumStart++
		case "protocol":
			g.raw[upper-frame.IPv4Len+9] = frame.ProtocolSCTP
		case "fragment":
			g.raw[upper-frame.IPv4Len+6] |= 0x20
		case "length": // of the outer packet, so that the inner one exceeds it
			binary.BigEndian.PutUint16(g.raw[upper-frame.IPv4Len+2:], uint16(len(g.raw)-frame.EthernetLen-1))
		case "short":
			binary.BigEndian.PutUint16(g.raw[upper-frame.IPv4Len+2:], frame.IPv4Len+3)
		}
		if _, ok := frame.NewSegmenter(g.raw, g.virtio); ok {
			t.Fatalf("%s was not seen", rule)
		}
	})
}

// A wrong checksum of the header before the payload means that it is no header.
func TestInnerHeaderOfIPv4IsValid(t *testing.T) {
	inner := behind4(frame.ProtocolUDP, append(udpTo(9, 0xa1), make([]byte, 100)...))[frame.EthernetLen:]
	binary.BigEndian.PutUint16(inner[frame.IPv4Len+4:], 108)
	g := gso{
		raw:    behind4(4, inner),
		virtio: frame.Virtio{Flags: 1, GSOType: frame.GSOUDP, GSOSize: 10, ChecksumStart: 54, ChecksumOffset: 6},
	}
	if _, ok := frame.NewSegmenter(g.raw, g.virtio); !ok {
		t.Fatal("refused a valid one")
	}
	g.raw[44]++
	if _, ok := frame.NewSegmenter(g.raw, g.virtio); ok {
		t.Error("accepted a checksum that is wrong")
	}
}
