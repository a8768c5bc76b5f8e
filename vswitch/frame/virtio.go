package frame

import "encoding/binary"

// VirtioLen is the length of virtio_net_hdr_v1, the header before each frame of a tap (VIRTIO 1.2, 5.1.6).
const VirtioLen = 12

// Flags of a virtio header.
const (
	VirtioNeedsChecksum = 1 // the L4 checksum holds the pseudo header's sum only
	VirtioDataValid     = 2 // the L4 checksum was verified
)

// GSO types of a virtio header; GSOECN is or-ed to the TCP ones.
const (
	GSONone = 0
	GSOTCP4 = 1
	GSOTCP6 = 4
	GSOUDP  = 5
	GSOECN  = 0x80
)

// Virtio is a frame's unfinished work: a checksum to complete, segments to cut. Offsets count from the Ethernet header.
type Virtio struct {
	Flags          uint8
	GSOType        uint8
	HeaderLen      uint16
	GSOSize        uint16
	ChecksumStart  uint16
	ChecksumOffset uint16
	Buffers        uint16
}

// ReadVirtio decodes the first VirtioLen bytes of b (little endian, as modern virtio and TUNSETVNETLE have it).
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
	b[0], b[1] = v.Flags, v.GSOType
	binary.LittleEndian.PutUint16(b[2:], v.HeaderLen)
	binary.LittleEndian.PutUint16(b[4:], v.GSOSize)
	binary.LittleEndian.PutUint16(b[6:], v.ChecksumStart)
	binary.LittleEndian.PutUint16(b[8:], v.ChecksumOffset)
	binary.LittleEndian.PutUint16(b[10:], v.Buffers)
}

// IsGSO says that the frame stands for several.
func (v Virtio) IsGSO() bool { return v.GSOType != GSONone }

// NeedsChecksum says that the frame's L4 checksum is not complete.
func (v Virtio) NeedsChecksum() bool { return v.Flags&VirtioNeedsChecksum != 0 }

// Fits says that the header's offsets lie inside a frame of n bytes, and that a GSO frame says how to cut and sum it.
func (v *Virtio) Fits(n int) bool {
	if v.NeedsChecksum() && int(v.ChecksumStart)+int(v.ChecksumOffset)+2 > n {
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
