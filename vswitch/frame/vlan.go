package frame

import "encoding/binary"

// VLANLen is the length of a tag, which is between source address and Ethernet type.
const VLANLen = 4

// Ethernet types of tags: IEEE 802.1Q, and the outer one of 802.1ad.
const (
	TypeVLAN = 0x8100
	TypeQinQ = 0x88a8
)

// maxTags is the number of tags that Network skips.
const maxTags = 2

// addressesLen is the length of both addresses of an Ethernet header.
const addressesLen = 12

// Network returns the Ethernet type and the offset of the payload after up to two tags. If the tags exceed the frame,
// the type is the last tag's.
func (e Ethernet) Network() (ethernetType uint16, offset int) {
	ethernetType = e.Type()
	offset = EthernetLen
	for range maxTags {
		if ethernetType != TypeVLAN && ethernetType != TypeQinQ || len(e) < offset+VLANLen {
			break
		}
		ethernetType = binary.BigEndian.Uint16(e[offset+2:])
		offset += VLANLen
	}
	return ethernetType, offset
}

// PushVLAN inserts a tag before the Ethernet type and adjusts the offsets in Virtio. The frame must have a whole
// Ethernet header. The tag takes VLANLen bytes of head room.
func (b *Buffer) PushVLAN(tagType, control uint16) {
	b.start -= VLANLen
	e := b.Bytes()
	copy(e, e[VLANLen:VLANLen+addressesLen])
	binary.BigEndian.PutUint16(e[addressesLen:], tagType)
	binary.BigEndian.PutUint16(e[addressesLen+2:], control)
	if b.Virtio.NeedsChecksum() {
		b.Virtio.ChecksumStart += VLANLen
	}
	if b.Virtio.HeaderLen > 0 {
		b.Virtio.HeaderLen += VLANLen
	}
}
