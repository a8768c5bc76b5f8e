package forward

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/weftnet/weft/vswitch/frame"
)

// hiddenHeaders are packets to UDP port 22 whose header a filter cannot see, although some receivers can: Linux reads
// any number of destination options, and stacks may reassemble a chain of headers that continues in the next fragment
// (RFC 7112 forbids it).
func hiddenHeaders() map[string][]byte {
	options := slices.Repeat(extension(60, 1), 8)
	return map[string][]byte{
		"behind nine headers": packet6(60, append(options, extension(17, 1)...), udpTo(4000, 22)),
		"behind nine headers of several kinds": packet6(0, extension(43, 1),
			append(options[:56], extension(17, 1)...), udpTo(4000, 22)),
		"behind two fragment headers": packet6(44, fragmentHeader(44, 0, false),
			fragmentHeader(17, 0, false), udpTo(4000, 22)),
		"in the next fragment": packet6(44, fragmentHeader(60, 0, true), extension(17, 1)),
		"partly in the next fragment": packet6(44, fragmentHeader(60, 0, true), extension(17, 1),
			udpTo(4000, 22)[:4]),
		"in the next fragment, without a header": packet6(44, fragmentHeader(17, 0, true)),
		"behind a header that exceeds the frame": packet6(60, extension(17, 3)[:8]),
		"in the next fragment of IPv4":           packet4(17, nil, 0x2000, nil),
		"partly in the next fragment of IPv4":    packet4(17, nil, 0x2000, udpTo(4000, 22)[:4]),
	}
}

// A rule that denies a port cannot match a packet without a port, so the rule behind it that permits everything must
// not match either.
func TestHiddenHeaderDoesNotPassADeniedPort(t *testing.T) {
	var rules []ACLRule
	for _, family := range []int{acl4, acl6} {
		denied := allow(false, family, "", "", frame.ProtocolUDP, 22, 22)
		denied.Permit = false
		rules = append(rules, denied, allow(false, family, "", "", 0))
	}
	f := filterOf(rules)
	for name, raw := range hiddenHeaders() {
		if f.dropReason(raw) == noDrop {
			t.Errorf("the header %s: the packet passes", name)
		}
		if f.permitsPlain(raw, len(raw)) {
			t.Errorf("the header %s: the packet passes on the fast path", name)
		}
	}
	for name, raw := range map[string][]byte{
		"eight headers": packet6(60, append(slices.Repeat(extension(60, 1), 7), extension(17, 1)...),
			udpTo(4000, 53)),
		"an atomic fragment":           packet6(44, fragmentHeader(17, 0, false), udpTo(4000, 53)),
		"a first fragment":             packet6(44, fragmentHeader(17, 0, true), udpTo(4000, 53)),
		"no next header":               packet6(59),
		"a short packet of a protocol": packet6(253, []byte{1, 2}),
		"a first fragment of IPv4":     packet4(17, nil, 0x2000, udpTo(4000, 53)),
		"a short packet of IPv4":       packet4(253, nil, 0, []byte{1, 2}),
	} {
		if f.dropReason(raw) != noDrop {
			t.Errorf("%s: the packet is dropped", name)
		}
	}
}

func TestHiddenHeaderPassesAnInterfaceWithoutRules(t *testing.T) {
	s := newSegment(t, plain(1, 1, 2))
	s.learnHosts()
	s.setACLs(nil, []ACLRule{allow(true, acl6, "", "", 0)})
	raw := hiddenHeaders()["behind nine headers"]
	to := host(2)
	copy(raw, to[:])
	if len(s.receive(1, raw, frame.Virtio{})) != 1 {
		t.Error("the direction without rules drops the packet")
	}
}

// A receiver ignores the bytes behind the length of the IP header, so ports there are none: this first fragment ends
// before UDP, whose header follows in the next fragment.
func TestBytesBehindThePacketAreNotPorts(t *testing.T) {
	f := filterOf([]ACLRule{
		allow(false, acl4, "", "", frame.ProtocolUDP, 53, 53), allow(false, acl6, "", "", frame.ProtocolUDP, 53, 53),
	})
	six := packet6(44, fragmentHeader(60, 0, true), extension(17, 1), udpTo(4000, 53))
	four := packet4(17, nil, 0, udpTo(4000, 53))
	for _, raw := range [][]byte{six, four} {
		if f.dropReason(raw) != noDrop {
			t.Error("a whole packet is dropped")
		}
	}
	binary.BigEndian.PutUint16(six[frame.EthernetLen+4:], 16)
	binary.BigEndian.PutUint16(four[frame.EthernetLen+2:], frame.IPv4Len)
	for name, raw := range map[string][]byte{"IPv6": six, "IPv4": four} {
		if f.dropReason(raw) == noDrop {
			t.Errorf("%s: ports behind the packet pass", name)
		}
		if f.permitsPlain(raw, len(raw)) {
			t.Errorf("%s: ports behind the packet pass on the fast path", name)
		}
	}
	binary.BigEndian.PutUint16(four[frame.EthernetLen+2:], frame.IPv4Len-1)
	if f.dropReason(four) == noDrop {
		t.Error("a packet shorter than its header passes")
	}
}
