package forward

import (
	"encoding/binary"
	"testing"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// hostileFlows are flows of all protocols whose headers ACLs compare.
var hostileFlows = map[string]flow{
	"TCP":          {"10.1.0.5", "10.2.0.9", frame.ProtocolTCP, 40000, 53, tcpSYN, 0},
	"UDP":          {"10.1.0.5", "10.2.0.9", frame.ProtocolUDP, 40000, 53, 0, 0},
	"SCTP":         {"10.1.0.5", "10.2.0.9", frame.ProtocolSCTP, 40000, 53, 0, 0},
	"ICMP":         {"10.1.0.5", "10.2.0.9", frame.ProtocolICMP, frame.ICMPEcho, 7, 0, 0},
	"TCP in IPv6":  {"fd01::5", "fd02::9", frame.ProtocolTCP, 40000, 53, tcpSYN, 0},
	"UDP in IPv6":  {"fd01::5", "fd02::9", frame.ProtocolUDP, 40000, 53, 0, 0},
	"SCTP in IPv6": {"fd01::5", "fd02::9", frame.ProtocolSCTP, 40000, 53, 0, 0},
	"ICMPv6":       {"fd01::5", "fd02::9", frame.ProtocolICMPv6, frame.ICMP6Echo, 7, 0, 0},
}

// A pod that sends raw frames chooses where its virtio header has the checksum written. Whatever it chooses, a port
// without checksum offload sends the packet that the ACLs have permitted.
func TestCompletedChecksumsLeaveWhatACLsCompare(t *testing.T) {
	for name, f := range hostileFlows {
		t.Run(name, func(t *testing.T) {
			s := newSegment(t)
			s.routeHosts()
			s.engine.ports.Load().at(2).offload = port.Offload{}
			var want aclPacket
			want.parse(f.frame())
			passed := 0
			for start := range len(f.frame()) {
				for offset := range len(f.frame()) - start {
					raw := f.frame()
					copy(raw, portMAC[:])
					for _, d := range s.receive(1, raw, frame.Virtio{
						Flags:          frame.VirtioNeedsChecksum,
						ChecksumStart:  uint16(start),
						ChecksumOffset: uint16(offset),
					}) {
						passed++
						var got aclPacket
						got.parse(d.raw)
						if got != want {
							t.Fatalf("checksum from %d at %d: %+v became %+v", start, offset, want, got)
						}
					}
				}
			}
			if passed == 0 {
				t.Error("no frame passes")
			}
		})
	}
}

// The checksum of this packet to port 53 is 22, and its offset is that of the destination port.
func TestPodCannotReachAnotherPortByAChecksum(t *testing.T) {
	s := newSegment(t)
	s.routeHosts()
	s.engine.ports.Load().at(2).offload = port.Offload{}
	s.setACLs([]ACLRule{allow(true, acl4, "", "", frame.ProtocolUDP, 53, 53), denyAll(acl4)}, nil)
	raw := flow{"10.1.0.5", "10.2.0.9", frame.ProtocolUDP, 40000, 53, 0, 0}.frame()
	copy(raw, portMAC[:])
	const upper = frame.EthernetLen + frame.IPv4Len
	word := raw[upper+frame.UDPLen:]
	binary.BigEndian.PutUint16(word, 0)
	rest := frame.Sum(raw[upper:], 0)
	binary.BigEndian.PutUint16(word, frame.Sum([]byte{0xff, 0xff - 22}, ^rest))
	for _, d := range s.receive(1, raw, frame.Virtio{
		Flags:          frame.VirtioNeedsChecksum,
		ChecksumStart:  upper,
		ChecksumOffset: 2,
	}) {
		t.Errorf("sent to port %d", binary.BigEndian.Uint16(d.raw[upper+2:]))
	}
	if len(s.receive(1, raw, frame.Virtio{})) != 1 {
		t.Error("the packet does not pass without an offset")
	}
}
