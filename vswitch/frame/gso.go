package frame

// LongestIP returns the length of the longest IP packet a frame puts on a wire: that of the packet itself, or of a GSO
// frame's segments, whose headers are as long as the frame's own. False: v does not describe the packet, so that nobody
// could cut it. The frame's IP packet begins behind an untagged Ethernet header, at header bytes its L4 one.
func (v *Virtio) LongestIP(packet []byte, header int, protocol uint8) (int, bool) {
	if !v.IsGSO() {
		return len(packet), true
	}
	if int(v.ChecksumStart) != EthernetLen+header {
		return 0, false
	}
	return v.longestIP(packet, header, protocol)
}

// longestIP is LongestIP of a GSO frame, wherever in it the packet begins.
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

// Shorten makes the segments of a TCP frame shorter, which their receiver cannot tell from a sender that chose so; false:
// the frame is of another kind, or nothing would be left.
func (v *Virtio) Shorten(by int) bool {
	kind := v.GSOType &^ GSOECN
	if kind != GSOTCP4 && kind != GSOTCP6 || by >= int(v.GSOSize) {
		return false
	}
	v.GSOSize -= uint16(by)
	return true
}
