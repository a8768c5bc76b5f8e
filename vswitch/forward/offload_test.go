package forward

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// usoOf describes a frame of udp4 or udp6 as a GSO frame.
func usoOf(raw []byte, size uint16) frame.Virtio {
	start := uint16(frame.EthernetLen + frame.IPv4Len)
	if raw[14]>>4 == 6 {
		start = frame.EthernetLen + frame.IPv6Len
	}
	return frame.Virtio{
		Flags:          frame.VirtioNeedsChecksum,
		GSOType:        frame.GSOUDP,
		GSOSize:        size,
		ChecksumStart:  start,
		ChecksumOffset: 6,
	}
}

// decode decodes a transmitted frame with gopacket, which must find no error.
func decode(t *testing.T, raw []byte) gopacket.Packet {
	t.Helper()
	p := gopacket.NewPacket(bytes.Clone(raw), layers.LayerTypeEthernet, gopacket.Default)
	if u, ok := p.TransportLayer().(*layers.UDP); ok {
		_ = u.SetNetworkLayerForChecksum(p.NetworkLayer())
	}
	if bad, wrong := p.VerifyChecksums(); bad != nil || len(wrong) > 0 {
		t.Errorf("checksums: %v %v\n%v", bad, wrong, p)
	}
	return p
}

// A port without offloads gets segments and complete checksums, also of the longest possible frame.
func TestPortGetsOnlyWhatItsOffloadsSupport(t *testing.T) {
	for _, c := range []struct {
		rule  string
		raw   []byte
		size  uint16
		takes port.Offload
		want  int
	}{
		{"segments for a port without offloads", udp4("10.2.7.7", 40000), 1000, port.Offload{}, 40},
		{"segments in IPv6", udp6("fd02::7", 40000), 1000, port.Offload{Checksum: true, TCP: true}, 40},
		{"more segments than a queue holds", udp4("10.2.7.7", 60000), 60, port.Offload{}, 1000},
		{
			"GSO frame for a port with UDP offload", udp4("10.2.7.7", 40000), 1000,
			port.Offload{Checksum: true, UDP: true}, 1,
		},
	} {
		t.Run(c.rule, func(t *testing.T) {
			b := newBench(t)
			b.engine.ports.Load().at(2).offload = c.takes
			payload := 0
			b.out.show = func(raw []byte, v frame.Virtio) {
				if c.takes.UDP {
					return
				}
				payload += len(decode(t, raw).TransportLayer().LayerPayload())
				if v != (frame.Virtio{}) {
					t.Errorf("incomplete: %+v", v)
				}
			}
			b.run(c.raw, usoOf(c.raw, c.size), 5)
			if b.out.sent != 5*c.want || !c.takes.UDP && payload != 5*c.want*int(c.size) {
				t.Errorf("%d sent with %d bytes; drops %v", b.out.sent, payload, b.engine.Drops())
			}
			if free := b.worker.countFree(); free != poolSize {
				t.Errorf("%d of %d buffers left", free, poolSize)
			}
		})
	}
}

func TestChecksumIsCompletedWithoutOffload(t *testing.T) {
	b := newBench(t)
	b.engine.ports.Load().at(2).offload = port.Offload{}
	raw := udp4("10.2.7.7", 30)
	binary.BigEndian.PutUint16(raw[40:], partial(raw))
	b.out.show = func(raw []byte, _ frame.Virtio) {
		if decode(t, raw).TransportLayer().(*layers.UDP).Checksum == 0 {
			t.Error("no checksum")
		}
	}
	b.run(raw, frame.Virtio{Flags: frame.VirtioNeedsChecksum, ChecksumStart: 34, ChecksumOffset: 6}, 1)
	if b.out.sent != 1 {
		t.Errorf("drops %v", b.engine.Drops())
	}
}

// partial returns the checksum field of a sender with checksum offload.
func partial(raw []byte) uint16 {
	p := frame.IPv4(raw[14:])
	return frame.PseudoHeader(p.Source(), p.Destination(), p.Protocol(), len(p.Payload()))
}

func TestPacketWithoutDFIsSentInFragments(t *testing.T) {
	for _, c := range []struct {
		rule   string
		mtu    int
		size   int
		offset uint16 // of the packet, if it is a fragment itself, with more to follow
		want   int
	}{
		{"one byte too long", 1500, 1473, 0, 2},
		{"in many", 600, 5000, 0, 9},
		{"a later fragment is fragmented again", 600, 1000, 100, 2},
		{"a packet that fits is not fragmented", 1500, 1472, 0, 1},
	} {
		t.Run(c.rule, func(t *testing.T) {
			b := newBench(t)
			b.setMTU(t, c.mtu)
			raw := udp4("10.2.7.7", c.size)
			binary.BigEndian.PutUint16(raw[20:], c.offset)
			if c.offset > 0 {
				raw[20] |= 0x20
			}
			fixIPv4Checksum(raw)
			var joined []byte
			b.out.show = func(out []byte, _ frame.Virtio) {
				p := gopacket.NewPacket(bytes.Clone(out), layers.LayerTypeEthernet, gopacket.Default)
				ip, ok := p.NetworkLayer().(*layers.IPv4)
				if !ok || int(ip.Length) > c.mtu || sum(ip.Contents) != 0xffff || ip.TTL != 63 ||
					int(ip.FragOffset) != int(c.offset)+len(joined)/8 {
					t.Errorf("after %d bytes: %v", len(joined), p)
					return
				}
				joined = append(joined, ip.Payload...)
			}
			b.run(raw, frame.Virtio{}, 1)
			if b.out.sent != c.want || !bytes.Equal(joined, raw[34:]) {
				t.Errorf("%d sent with %d of %d bytes; drops %v", b.out.sent, len(joined), len(raw)-34,
					b.engine.Drops())
			}
		})
	}
}

// A partial checksum cannot be completed after fragmentation.
func TestChecksumIsCompletedBeforeFragmentation(t *testing.T) {
	b := newBench(t)
	b.setMTU(t, 600)
	raw := udp4("10.2.7.7", 1000)
	raw[20] = 0
	fixIPv4Checksum(raw)
	binary.BigEndian.PutUint16(raw[40:], partial(raw))
	var joined []byte
	b.out.show = func(out []byte, v frame.Virtio) {
		if v.NeedsChecksum() {
			t.Error("fragment with a partial checksum")
		}
		if joined == nil {
			joined = append(joined, out[:34]...)
		}
		joined = append(joined, out[34:]...)
	}
	b.run(raw, frame.Virtio{Flags: frame.VirtioNeedsChecksum, ChecksumStart: 34, ChecksumOffset: 6}, 1)
	copy(joined[16:], raw[16:18])
	joined[20] = 0
	joined[21] = 0
	fixIPv4Checksum(joined)
	decode(t, joined)
}

func (b *bench) setMTU(t *testing.T, mtu int) {
	t.Helper()
	i := b.engine.live.Load().iface(2)
	if err := b.engine.SetInterface(2, Interface{
		Up:         true,
		MAC:        portMAC,
		Addresses:  i.addresses,
		IP6Enabled: true,
		MTU:        mtu,
	}); err != nil {
		t.Fatal(err)
	}
	b.engine.Publish()
}

// A TCP sender that allows fragments gets shorter segments instead.
func TestTCPWithoutDFGetsShorterSegments(t *testing.T) {
	b := newBench(t)
	b.setMTU(t, 600)
	raw := udp4("10.2.7.7", 4000)
	raw[20] = 0
	raw[23] = frame.ProtocolTCP
	raw[46] = 0x50
	fixIPv4Checksum(raw)
	var size uint16
	b.out.show = func(_ []byte, v frame.Virtio) { size = v.GSOSize }
	b.run(raw, frame.Virtio{Flags: 1, GSOType: frame.GSOTCP4, GSOSize: 1460, ChecksumStart: 34, ChecksumOffset: 16}, 1)
	if b.out.sent != 1 || size != 560 {
		t.Errorf("%d sent, segments of %d; drops %v", b.out.sent, size, b.engine.Drops())
	}
}

func TestSegmentationAllocatesNothing(t *testing.T) {
	b := newBench(t)
	b.engine.ports.Load().at(2).offload = port.Offload{}
	gso := udp4("10.2.7.7", 40000)
	long := change(udp4("10.2.7.7", 4000), func(b []byte) { b[20] = 0; fixIPv4Checksum(b) })
	for name, f := range map[string]func(){
		"segments":  func() { b.run(gso, usoOf(gso, 1000), frame.VectorSize) },
		"fragments": func() { b.run(long, frame.Virtio{}, frame.VectorSize) },
	} {
		if n := allocations(20, f); n != 0 {
			t.Errorf("%s: %v allocations a vector", name, n)
		}
	}
	if b.out.sent < 21*frame.VectorSize*(40+3) {
		t.Errorf("%d sent; drops %v", b.out.sent, b.engine.Drops())
	}
}
