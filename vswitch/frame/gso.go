package frame

// LongestIP returns the length of the longest IP packet on the wire: that of the packet, or of a GSO frame's segments, which have
// headers of the same length. It returns false if v does not describe the packet, so that it cannot be segmented. The packet
// follows an untagged Ethernet header; its L4 header is at offset header.
func (v *Virtio) LongestIP(packet []byte, header int, protocol uint8) (int, bool) {
	if !v.IsGSO() {
		return len(packet), true
	}
	if int(v.ChecksumStart) != EthernetLen+header {
		return 0, false
	}
	return v.longestIP(packet, header, protocol)
}

// longestIP is LongestIP for a GSO frame, at any offset of the packet.
func (v *Virtio) longestIP(packet []byte, header int, protocol uint8) (int, bool) {
	if header > len(packet) {
		return 0, false
	}
	switch v.GSOType &^ GSOECN {
	case GSOUDP:
		if _, err := ParseUDP(packet[header:]); err != nil || protocol != ProtocolUDP {
			return 0, false
		}
		return header + UDPLen + int(v.GSOSize), true
	case GSOTCP4:
		return v.tcpSegment(packet, header, protocol == ProtocolTCP && packet[0]>>4 == 4)
	case GSOTCP6:
		return v.tcpSegment(packet, header, protocol == ProtocolTCP && packet[0]>>4 == 6)
	}
	return 0, false
}

func (v *Virtio) tcpSegment(packet []byte, header int, agrees bool) (int, bool) {
	t, err := ParseTCP(packet[header:])
	if err != nil || !agrees {
		return 0, false
	}
	return header + t.HeaderLen() + int(v.GSOSize), true
}

// Shorten reduces the segment size of a TCP frame, which is invisible to the receiver; false if the frame is not TCP or no
// payload would remain.
func (v *Virtio) Shorten(by int) bool {
	kind := v.GSOType &^ GSOECN
	if kind != GSOTCP4 && kind != GSOTCP6 || by >= int(v.GSOSize) {
		return false
	}
	v.GSOSize -= uint16(by)
	return true
}
