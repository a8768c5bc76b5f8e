package frame_test

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"

	"github.com/weftnet/weft/vswitch/frame"
)

// plain is the algorithm in the text of RFC 1071.
func plain(b []byte) uint16 {
	var s uint32
	for i, x := range b {
		s += uint32(x) << (8 * (1 - i%2))
	}
	for s > 0xffff {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

func TestSumMatchesRFC1071(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(r, "b")
		if got, want := frame.Sum(b, 0), plain(b); got != want {
			r.Fatalf("%04x, want %04x", got, want)
		}
		cut := len(b) / 4 * 2
		if got, want := frame.Sum(b[cut:], frame.Sum(b[:cut], 0)), plain(b); got != want {
			r.Fatalf("continued: %04x, want %04x", got, want)
		}
	})
}

func TestDecrementedHeadersStayValid(t *testing.T) {
	for ttl := 1; ttl <= 255; ttl++ {
		b := make([]byte, frame.IPv4Len)
		frame.PutIPv4(b, frame.IPFields{
			TTL:         uint8(ttl),
			Protocol:    uint8(ttl),
			Source:      netip.MustParseAddr("10.0.0.1"),
			Destination: netip.MustParseAddr("10.0.0.2"),
		})
		p := frame.IPv4(b)
		p.DecrementTTL()
		if !p.ChecksumValid() || int(p.TTL()) != ttl-1 {
			t.Fatalf("TTL %d became %d, valid %v", ttl, p.TTL(), p.ChecksumValid())
		}
	}
}

func TestPartialChecksumIsCompleted(t *testing.T) {
	for _, c := range []struct {
		rule          string
		packet        []byte
		start, offset uint16
	}{
		{"UDP over IPv4", sample4(t), 20, 6},
		{"TCP over IPv6", sample6(t), 40, 16},
	} {
		t.Run(c.rule, func(t *testing.T) {
			b := append(make([]byte, frame.EthernetLen), c.packet...)
			v := frame.Virtio{
				Flags:          frame.VirtioNeedsChecksum,
				ChecksumStart:  c.start + frame.EthernetLen,
				ChecksumOffset: c.offset,
			}
			field := v.ChecksumStart + v.ChecksumOffset
			want := binary.BigEndian.Uint16(b[field:])
			binary.BigEndian.PutUint16(b[field:], pseudo(c.packet))
			if !frame.Complete(b, &v) || v.NeedsChecksum() {
				t.Fatal("rejected")
			}
			if got := binary.BigEndian.Uint16(b[field:]); got != want {
				t.Errorf("%04x, gopacket computes %04x", got, want)
			}
		})
	}
}

// pseudo returns the sum of the pseudo header, which the kernel leaves in the checksum field.
func pseudo(packet []byte) uint16 {
	if packet[0]>>4 == 4 {
		ip := gopacket.NewPacket(packet, layers.LayerTypeIPv4, gopacket.Default).NetworkLayer().(*layers.IPv4)
		a, _ := netip.AddrFromSlice(ip.SrcIP.To4())
		b, _ := netip.AddrFromSlice(ip.DstIP.To4())
		return frame.PseudoHeader(a, b, uint8(ip.Protocol), len(ip.Payload))
	}
	ip := gopacket.NewPacket(packet, layers.LayerTypeIPv6, gopacket.Default).NetworkLayer().(*layers.IPv6)
	a, _ := netip.AddrFromSlice(ip.SrcIP)
	b, _ := netip.AddrFromSlice(ip.DstIP)
	return frame.PseudoHeader(a, b, uint8(ip.NextHeader), len(ip.Payload))
}

func TestCompleteRejectsOffsetsOutsideTheFrame(t *testing.T) {
	for _, v := range []frame.Virtio{
		{Flags: 1, ChecksumStart: 60}, {Flags: 1, ChecksumStart: 50, ChecksumOffset: 9}, {Flags: 1, ChecksumStart: 2}, {
			Flags:          1,
			ChecksumOffset: 0xffff,
			ChecksumStart:  0xffff,
		},
	} {
		if frame.Complete(make([]byte, 60), &v) {
			t.Errorf("%+v fits 60 bytes", v)
		}
	}
}

func BenchmarkSum(b *testing.B) {
	raw := make([]byte, 1500)
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		frame.Sum(raw, 0)
	}
}
