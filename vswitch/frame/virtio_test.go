package frame_test

import (
	"testing"

	"github.com/weftnet/weft/vswitch/frame"
)

// ip4With returns a frame with an IPv4 packet of a protocol.
func ip4With(protocol uint8) []byte {
	b := make([]byte, 80)
	frame.PutEthernet(b, mac, mac, frame.TypeIPv4)
	frame.PutIPv4(b[14:], frame.IPFields{Protocol: protocol, Source: a4, Destination: b4, PayloadLen: 46})
	return b
}

// ip6With returns a frame with an IPv6 packet of a protocol.
func ip6With(protocol uint8) []byte {
	b := make([]byte, 110)
	frame.PutEthernet(b, mac, mac, frame.TypeIPv6)
	frame.PutIPv6(b[14:], frame.IPFields{Protocol: protocol, Source: a6, Destination: a6, PayloadLen: 56})
	return b
}

func TestChecksumMustNotChangeHeaders(t *testing.T) {
	ip4 := ip4With(frame.ProtocolTCP)
	tagged := append(append(append([]byte(nil), ip4[:12]...), 0x81, 0, 0, 5), ip4[12:]...)
	arp := make([]byte, 60)
	frame.PutEthernet(arp, mac, mac, frame.TypeARP)
	other := make([]byte, 60)
	frame.PutEthernet(other, mac, mac, 0x88b5)
	extended := ip6With(60)
	extended[54] = frame.ProtocolTCP
	extended[55] = 0
	for _, c := range []struct {
		rule          string
		raw           []byte
		start, offset uint16
		want          bool
	}{
		{"TCP in IPv4", ip4, 34, 16, true},
		{"an inner header in UDP", ip4With(frame.ProtocolUDP), 42, 6, true},
		{"an inner header in another protocol", ip4With(4), 54, 6, true},
		{"an inner header in TCP", ip4, 54, 6, false},
		{"the flags of TCP", ip4, 34, 13, false},
		{"the target port of TCP", ip4, 34, 2, false},
		{"the target port of TCP by a later start", ip4, 36, 0, false},
		{"UDP in IPv4", ip4With(frame.ProtocolUDP), 34, 6, true},
		{"the checksum of UDP from behind its beginning", ip4With(frame.ProtocolUDP), 36, 4, false},
		{"the target port of UDP", ip4With(frame.ProtocolUDP), 34, 2, false},
		{"SCTP in IPv4", ip4With(frame.ProtocolSCTP), 34, 8, true},
		{"SCTP in IPv6", ip6With(frame.ProtocolSCTP), 54, 8, true},
		{"a chunk of SCTP", ip4With(frame.ProtocolSCTP), 34, 12, false},
		{"the checksum of SCTP from behind its beginning", ip4With(frame.ProtocolSCTP), 38, 4, false},
		{"the target port of SCTP", ip4With(frame.ProtocolSCTP), 34, 2, false},
		{"the checksum of GRE", ip4With(47), 34, 4, true},
		{"the type of ICMP", ip4With(frame.ProtocolICMP), 34, 0, false},
		{"the identifier of ICMP", ip4With(frame.ProtocolICMP), 34, 4, false},
		{"the source of IPv4", ip4, 24, 2, false},
		{"the destination of IPv4 by the offset", ip4, 14, 16, false},
		{"TCP in IPv6", ip6With(frame.ProtocolTCP), 54, 16, true},
		{"the source of IPv6", ip6With(frame.ProtocolTCP), 14, 8, false},
		{"ICMPv6", ip6With(frame.ProtocolICMPv6), 54, 2, true},
		{"the type of ICMPv6", ip6With(frame.ProtocolICMPv6), 54, 0, false},
		{"the target of an advertisement", ip6With(frame.ProtocolICMPv6), 54, 8, false},
		{"ICMPv6 from behind its beginning", ip6With(frame.ProtocolICMPv6), 56, 2, false},
		{"TCP behind an extension", extended, 62, 16, true},
		{"an extension", extended, 54, 0, false},
		{"TCP in IPv4 with a tag", tagged, 38, 16, true},
		{"the header of IPv4 with a tag", tagged, 34, 0, false},
		{"ARP", arp, 14, 14, false},
		{"another protocol", other, 14, 0, true},
		{"the Ethernet header", other, 6, 0, false},
		{"a packet longer than its frame", ip4[:60], 34, 16, false},
	} {
		v := frame.Virtio{Flags: frame.VirtioNeedsChecksum, ChecksumStart: c.start, ChecksumOffset: c.offset}
		if got := v.ChecksumIsSafe(c.raw); got != c.want {
			t.Errorf("%s: %v", c.rule, got)
		}
	}
	if !(frame.Virtio{ChecksumStart: 6}).ChecksumIsSafe(arp) {
		t.Error("rejected a complete checksum")
	}
}
