package frame_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/weftnet/weft/vswitch/frame"
)

// castagnoli is the CRC32c of RFC 9260 appendix A, one bit at a time.
func castagnoli(b []byte) uint32 {
	crc := ^uint32(0)
	for _, x := range b {
		crc ^= uint32(x)
		for range 8 {
			if crc&1 != 0 {
				crc = crc>>1 ^ 0x82f63b78
			} else {
				crc >>= 1
			}
		}
	}
	return ^crc
}

// The check value of CRC-32C (RFC 3720 B.4 has it for other texts).
func TestTheJudgeComputesCRC32C(t *testing.T) {
	if got := castagnoli([]byte("123456789")); got != 0xe3069283 {
		t.Errorf("%08x", got)
	}
}

// sctp is an SCTP packet with one INIT chunk, and zeros for the checksum as the kernel leaves it.
func sctp() []byte {
	b := make([]byte, 32)
	binary.BigEndian.PutUint16(b, 40000)
	binary.BigEndian.PutUint16(b[2:], 38412)
	b[12] = 1
	b[15] = 20
	b[16] = 0x5a
	b[31] = 7
	return b
}

// behind4 puts an IPv4 header and an Ethernet header before an upper layer.
func behind4(protocol uint8, upper []byte) []byte {
	b := make([]byte, frame.EthernetLen+frame.IPv4Len, frame.EthernetLen+frame.IPv4Len+len(upper))
	frame.PutEthernet(b, mac, mac, frame.TypeIPv4)
	frame.PutIPv4(b[frame.EthernetLen:], frame.IPFields{
		TTL:         9,
		Protocol:    protocol,
		Source:      a4,
		Destination: b4,
		PayloadLen:  len(upper),
	})
	return append(b, upper...)
}

func behind6(protocol uint8, upper []byte) []byte {
	b := make([]byte, frame.EthernetLen+frame.IPv6Len, frame.EthernetLen+frame.IPv6Len+len(upper))
	frame.PutEthernet(b, mac, mac, frame.TypeIPv6)
	frame.PutIPv6(b[frame.EthernetLen:], frame.IPFields{
		TTL:         9,
		Protocol:    protocol,
		Source:      a6,
		Destination: a6,
		PayloadLen:  len(upper),
	})
	return append(b, upper...)
}

func tag(b []byte) []byte { return slices.Insert(slices.Clone(b), 12, 0x81, 0, 0, 5) }

func TestSCTPGetsItsCRC(t *testing.T) {
	plain := sctp()
	options := []byte{frame.ProtocolSCTP, 0, 1, 4, 0, 0, 0, 0}
	overlay := append(make([]byte, frame.UDPLen+frame.VXLANLen), behind4(frame.ProtocolSCTP, plain)...)
	binary.BigEndian.PutUint16(overlay[4:], uint16(len(overlay)))
	for _, c := range []struct {
		rule    string
		raw     []byte
		padding int
	}{
		{"IPv4", behind4(frame.ProtocolSCTP, plain), 0},
		{"IPv6", behind6(frame.ProtocolSCTP, plain), 0},
		{"a tag", tag(behind4(frame.ProtocolSCTP, plain)), 0},
		{"an extension header", behind6(60, append(options, plain...)), 0},
		{"padding of the frame", behind4(frame.ProtocolSCTP, plain), 9},
		{"padding of a frame with IPv6", behind6(frame.ProtocolSCTP, plain), 3},
		{"an inner packet", behind4(frame.ProtocolUDP, overlay), 0},
		{"IPv4 in IPv6", behind6(4, behind4(frame.ProtocolSCTP, plain)[frame.EthernetLen:]), 0},
	} {
		start := len(c.raw) - len(plain)
		v := frame.Virtio{Flags: frame.VirtioNeedsChecksum, ChecksumStart: uint16(start), ChecksumOffset: 8}
		binary.BigEndian.PutUint32(c.raw[start+8:], 0xbad0bad0) // whatever the field holds does not count
		raw := append(bytes.Clone(c.raw), bytes.Repeat([]byte{0xee}, c.padding)...)
		if !v.ChecksumIsSafe(raw) || !frame.Complete(raw, &v) || v.NeedsChecksum() {
			t.Errorf("%s: refused", c.rule)
			continue
		}
		want := bytes.Clone(c.raw)
		binary.LittleEndian.PutUint32(want[start+8:], castagnoli(plain))
		if !bytes.Equal(raw[:len(want)], want) {
			t.Errorf("%s:\n%x, want\n%x", c.rule, raw[start:], want[start:])
		}
	}
}

func TestCRCMustFitThePacket(t *testing.T) {
	raw := behind4(frame.ProtocolSCTP, sctp()[:11])
	for _, padding := range []int{0, 20} {
		v := frame.Virtio{Flags: frame.VirtioNeedsChecksum, ChecksumStart: 34, ChecksumOffset: 8}
		b := append(bytes.Clone(raw), make([]byte, padding)...)
		if frame.Complete(b, &v) || !v.NeedsChecksum() {
			t.Errorf("accepted with %d bytes of padding", padding)
		}
		if padding == 0 && v.Fits(len(b)) {
			t.Error("fits")
		}
	}
}
