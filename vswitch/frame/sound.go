package frame

// icmp6ChecksumOffset is where an ICMPv6 message has its checksum.
const icmp6ChecksumOffset = 2

// Sound says that completing the frame's checksum changes nothing that a frame is validated by: a pod that may send raw frames
// chooses where it goes, and could have an address, a protocol or a neighbour message's target written behind our back, here
// or at the receiver of the frame. The frame has a whole Ethernet header.
func (v Virtio) Sound(b []byte) bool {
	if !v.NeedsChecksum() {
		return true
	}
	kind, at := Ethernet(b).Network()
	start := int(v.ChecksumStart)
	switch kind {
	case TypeIPv4:
		p, err := ParseIPv4(b[at:])
		return err == nil && start >= at+p.HeaderLen()
	case TypeIPv6:
		p, err := ParseIPv6(b[at:])
		if err != nil {
			return false
		}
		u, ok := p.Upper()
		if u.Protocol == ProtocolICMPv6 {
			return ok && start == at+u.Offset && v.ChecksumOffset == icmp6ChecksumOffset
		}
		return ok && start >= at+u.Offset
	case TypeARP:
		return false
	}
	return start >= at
}
