package frame

import "encoding/binary"

// VirtioLen is the length of virtio_net_hdr_v1, which precedes each frame of a tap (VIRTIO 1.2, 5.1.6).
const VirtioLen = 12

// Flags of a virtio header.
const (
	VirtioNeedsChecksum = 1 // the L4 checksum field holds the sum of the pseudo header
	VirtioDataValid     = 2 // the L4 checksum was verified
)

// GSO types of a virtio header; GSOECN is a flag of the TCP types.
const (
	GSONone = 0
	GSOTCP4 = 1
	GSOTCP6 = 4
	GSOUDP  = 5
	GSOECN  = 0x80
)

// Virtio describes the offloads that a frame still needs: checksum and segmentation. Offsets start at the Ethernet
// header.
type Virtio struct {
	Flags          uint8
	GSOType        uint8
	HeaderLen      uint16
	GSOSize        uint16
	ChecksumStart  uint16
	ChecksumOffset uint16
	Buffers        uint16
}

// ReadVirtio decodes the first VirtioLen bytes of b in little endian, as for modern virtio and TUNSETVNETLE.
func ReadVirtio(b []byte) Virtio {
	_ = b[VirtioLen-1]
	return Virtio{
		Flags: b[0], GSOType: b[1],
		HeaderLen: binary.LittleEndian.Uint16(b[2:]), GSOSize: binary.LittleEndian.Uint16(b[4:]),
		ChecksumStart: binary.LittleEndian.Uint16(b[6:]), ChecksumOffset: binary.LittleEndian.Uint16(b[8:]),
		Buffers: binary.LittleEndian.Uint16(b[10:]),
	}
}

// Put encodes v into the first VirtioLen bytes of b.
func (v Virtio) Put(b []byte) {
	_ = b[VirtioLen-1]
	b[0] = v.Flags
	b[1] = v.GSOType
	binary.LittleEndian.PutUint16(b[2:], v.HeaderLen)
	binary.LittleEndian.PutUint16(b[4:], v.GSOSize)
	binary.LittleEndian.PutUint16(b[6:], v.ChecksumStart)
	binary.LittleEndian.PutUint16(b[8:], v.ChecksumOffset)
	binary.LittleEndian.PutUint16(b[10:], v.Buffers)
}

// IsGSO reports whether the frame must be segmented.
func (v Virtio) IsGSO() bool { return v.GSOType != GSONone }

// NeedsChecksum reports whether the L4 checksum is partial.
func (v Virtio) NeedsChecksum() bool { return v.Flags&VirtioNeedsChecksum != 0 }

// NeedsCRC reports whether the partial checksum is the CRC of SCTP. A virtio header cannot say so: the offset of the
// field, which no other transport has, distinguishes it, also behind the headers of a tunnel. A kernel that forwards
// such a frame would write an Internet checksum there, so no port takes it.
func (v *Virtio) NeedsCRC() bool { return v.NeedsChecksum() && v.ChecksumOffset == sctpChecksumOffset }

// checksumLen is the length of the field that Complete writes.
func (v *Virtio) checksumLen() int {
	if v.NeedsCRC() {
		return SCTPLen - sctpChecksumOffset
	}
	return 2
}

// Fits reports whether the offsets are inside a frame of n bytes, and the fields of a GSO frame are complete.
func (v *Virtio) Fits(n int) bool {
	if v.NeedsChecksum() && int(v.ChecksumStart)+int(v.ChecksumOffset)+v.checksumLen() > n {
		return false
	}
	if !v.IsGSO() {
		return true
	}
	switch v.GSOType &^ GSOECN {
	case GSOTCP4, GSOTCP6, GSOUDP:
	default:
		return false
	}
	return v.NeedsChecksum() && v.GSOSize > 0 && int(v.HeaderLen) <= n
}

// ChecksumIsSafe reports whether completing the checksum leaves everything unchanged that a frame is validated by. A
// pod that sends raw frames chooses the offset, and could change an address, a protocol, a port or the target of a
// neighbour message after the validation, here or at the receiver. The frame must have a whole Ethernet header.
func (v Virtio) ChecksumIsSafe(b []byte) bool {
	if !v.NeedsChecksum() {
		return true
	}
	kind, at := Ethernet(b).Network()
	switch kind {
	case TypeIPv4:
		p, err := ParseIPv4(b[at:])
		return err == nil && v.checksumSpares(p.Protocol(), at+p.HeaderLen())
	case TypeIPv6:
		p, err := ParseIPv6(b[at:])
		if err != nil {
			return false
		}
		u, ok := p.Upper()
		return ok && v.checksumSpares(u.Protocol, at+u.Offset)
	case TypeARP:
		return false
	}
	return int(v.ChecksumStart) >= at
}

// checksumSpares reports whether the checksum is written to the field that the protocol of the header at upper has for
// it, or behind all fields that filters compare. The latter is the case for the transports that other protocols
// encapsulate, such as VXLAN in UDP.
func (v Virtio) checksumSpares(protocol uint8, upper int) bool {
	start := int(v.ChecksumStart)
	if start < upper {
		return false
	}
	field := start + int(v.ChecksumOffset) - upper
	switch protocol {
	case ProtocolTCP:
		return start == upper && field == tcpChecksumOffset
	case ProtocolICMP, ProtocolICMPv6:
		return start == upper && field == icmpChecksumOffset
	case ProtocolSCTP:
		return start == upper && field == sctpChecksumOffset
	case ProtocolUDP:
		return start == upper && field == udpChecksumOffset || start >= upper+UDPLen
	}
	return field >= portsLen
}

// Offsets of checksums in the headers of transports, and the length of the ports, with which UDP-Lite, DCCP and others
// begin.
const (
	icmpChecksumOffset = 2
	udpChecksumOffset  = 6
	sctpChecksumOffset = 8
	tcpChecksumOffset  = 16
	portsLen           = 4
)
