package frame

import "encoding/binary"

// VLANLen is the length of a tag, between the source address and the Ethernet type.
const VLANLen = 4

// Ethernet types of tags: IEEE 802.1Q's, and 802.1ad's outer one.
const (
	TypeVLAN = 0x8100
	TypeQinQ = 0x88a8
)

// maxTags is how many tags Network walks over.
const maxTags = 2

// addressesLen is the length of both addresses of an Ethernet header.
const addressesLen = 12

// Network returns the Ethernet type of what is carried and where it begins, behind up to two tags. A frame whose tags do
// not end within it carries the type of the last one.
func (e Ethernet) Network() (ethernetType uint16, offset int) {
	ethernetType, offset = e.Type(), EthernetLen
	for range maxTags {
		if ethernetType != TypeVLAN && ethernetType != TypeQinQ || len(e) < offset+VLANLen {
			break
		}
		ethernetType = binary.BigEndian.Uint16(e[offset+2:])
		offset += VLANLen
	}
	return ethernetType, offset
}

// PushVLAN puts a tag before the frame's Ethernet type and lets Virtio's offsets follow. The frame must have a whole
// Ethernet header, and VLANLen bytes of head room are used up.
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
