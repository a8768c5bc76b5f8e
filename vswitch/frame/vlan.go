package frame

import "encoding/binary"

// VLANLen is the length of a tag, which is between source address and Ethernet type.
const VLANLen = 4

// Ethernet types of tags: IEEE 802.1Q, and the outer one of 802.1ad.
const (
	TypeVLAN = 0x8100
	TypeQinQ = 0x88a8
)

// VLANMask selects the VLAN of a tag's control field. The other bits are the priority.
const VLANMask = 1<<12 - 1

// Tag is a tag of a frame.
type Tag struct {
	Type    uint16 // TypeVLAN or TypeQinQ
	Control uint16
}

// VLAN returns the tag's VLAN; 0: the tag has a priority only.
func (t Tag) VLAN() uint16 { return t.Control & VLANMask }

// Tag returns the nth tag of a frame, from 0; false if it has fewer, or ends in the tag.
func (e Ethernet) Tag(n int) (Tag, bool) {
	at := addressesLen
	for range n + 1 {
		if len(e) < at+VLANLen+2 {
			return Tag{}, false
		}
		kind := binary.BigEndian.Uint16(e[at:])
		if kind != TypeVLAN && kind != TypeQinQ {
			return Tag{}, false
		}
		at += VLANLen
	}
	return Tag{binary.BigEndian.Uint16(e[at-VLANLen:]), binary.BigEndian.Uint16(e[at-VLANLen+2:])}, true
}

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

// PopVLAN removes the first tag, which the frame must have, and adjusts the offsets in Virtio.
func (b *Buffer) PopVLAN() {
	e := b.Bytes()
	copy(e[VLANLen:VLANLen+addressesLen], e[:addressesLen])
	b.Pull(VLANLen)
	if b.Virtio.NeedsChecksum() {
		b.Virtio.ChecksumStart -= min(b.Virtio.ChecksumStart, VLANLen)
	}
	b.Virtio.HeaderLen -= min(b.Virtio.HeaderLen, VLANLen)
}
