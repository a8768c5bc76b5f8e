package forward

import (
	"encoding/binary"
	"testing"

	"github.com/weftnet/weft/vswitch/frame"
)

// judged are the frames at an egress, with checksums computed here by the texts of RFC 1071 and RFC 9260.
type judged struct {
	t       *testing.T
	l       leftover
	payload []byte // of all frames
	joined  []byte // fragments so far
}

// take judges a frame, and does for it what the kernel behind a virtio header does.
func (j *judged) take(d delivery, want string, mtu int) {
	j.t.Helper()
	packet := d.raw[frame.EthernetLen:]
	switch {
	case want == left && !d.virtio.NeedsChecksum(), want != left && (d.virtio.NeedsChecksum() || d.virtio.IsGSO()):
		j.t.Errorf("%s: %+v", want, d.virtio)
		return
	case !d.virtio.IsGSO() && len(packet) > mtu:
		j.t.Errorf("%d bytes, the MTU is %d", len(packet), mtu)
	case d.virtio.IsGSO() && int(d.virtio.GSOSize) > mtu-40:
		j.t.Errorf("segments of %d, the MTU is %d", d.virtio.GSOSize, mtu)
	}
	if d.virtio.IsGSO() {
		at := int(d.virtio.ChecksumStart) + transports[j.l.protocol].length
		j.payload = append(j.payload, d.raw[at:]...)
		return
	}
	if d.virtio.NeedsChecksum() {
		body := d.raw[d.virtio.ChecksumStart:]
		binary.BigEndian.PutUint16(body[d.virtio.ChecksumOffset:], ^plainSum(body))
	}
	j.join(packet)
}

// join reassembles fragments and judges whole packets.
func (j *judged) join(packet []byte) {
	j.t.Helper()
	header := frame.IPv6Len
	if packet[0]>>4 == 4 {
		header = frame.IPv4Len
		if plainSum(packet[:header]) != 0xffff {
			j.t.Errorf("header checksum of %x", packet[:header])
		}
		place := binary.BigEndian.Uint16(packet[6:])
		if int(place&0x1fff)*8 != len(j.joined) {
			j.t.Errorf("a fragment at %d after %d bytes", place&0x1fff*8, len(j.joined))
		}
		body := packet[header:]
		if place&0x2000 != 0 {
			j.joined = append(j.joined, body...)
			return
		}
		if len(j.joined) > 0 {
			packet = append(append([]byte(nil), packet[:header]...), append(j.joined, body...)...)
			j.joined = nil
		}
	}
	j.whole(packet, header)
}

func (j *judged) whole(packet []byte, header int) {
	j.t.Helper()
	if j.l.inGRE {
		packet = packet[header+len(greHeader):]
		if packet[0]>>4 == 4 && plainSum(packet[:header]) != 0xffff {
			j.t.Errorf("inner header checksum of %x", packet[:header])
		}
	}
	body := packet[header:]
	tr := transports[j.l.protocol]
	if !checksumRight(body, pseudoOf(packet, j.l.protocol, len(body)), j.l.protocol) {
		j.t.Errorf("checksum %x of %d bytes", body[tr.checksum:][:4], len(body))
	}
	j.payload = append(j.payload, body[tr.length:]...)
}

// plainSum is the algorithm in the text of RFC 1071.
func plainSum(b []byte) uint16 {
	var s uint32
	for i, x := range b {
		s += uint32(x) << (8 * (1 - i%2))
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

// plainCRC is the CRC32c of RFC 9260 appendix A, one bit at a time.
func plainCRC(b []byte) uint32 {
	crc := ^uint32(0)
	for _, x := range b {
		crc ^= uint32(x)
		for range 8 {
			crc = crc>>1 ^ 0x82f63b78&-(crc&1)
		}
	}
	return ^crc
}

// pseudoOf is the pseudo header of a packet.
func pseudoOf(packet []byte, protocol uint8, length int) []byte {
	addresses := packet[8:frame.IPv6Len]
	if packet[0]>>4 == 4 {
		addresses = packet[12:frame.IPv4Len]
	}
	b := append(append([]byte(nil), addresses...), 0, 0, 0, 0, 0, 0, 0, protocol)
	binary.BigEndian.PutUint32(b[len(b)-8:], uint32(length))
	return b
}

func putChecksum(body, pseudo []byte, protocol uint8) {
	field := body[transports[protocol].checksum:]
	field[0] = 0
	field[1] = 0
	if protocol == frame.ProtocolSCTP {
		clear(field[:4])
		binary.LittleEndian.PutUint32(field, plainCRC(body))
		return
	}
	binary.BigEndian.PutUint16(field, ^plainSum(append(pseudo, body...)))
}

func checksumRight(body, pseudo []byte, protocol uint8) bool {
	if protocol != frame.ProtocolSCTP {
		return plainSum(append(pseudo, body...)) == 0xffff
	}
	was := binary.LittleEndian.Uint32(body[8:])
	zeroed := append([]byte(nil), body...)
	clear(zeroed[8:12])
	return was == plainCRC(zeroed)
}
