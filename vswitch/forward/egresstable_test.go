package forward

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// The table "Checksums and segmentation" of docs/networking.md: what the dataplane does by what the sender leaves to it
// and by where the packet goes.
const (
	left     = "left to the kernel"
	complete = "complete"
	cut      = "cut"
	dropped  = "dropped"
)

// egress is a column of the table.
type egress struct {
	name   string
	takes  port.Offload
	mtu    int
	tunnel Family // 0: none
}

var (
	everything = port.Offload{Checksum: true, TCP: true, UDP: true}
	oldKernel  = port.Offload{Checksum: true, TCP: true}
	egresses   = []egress{
		{"tap or veth", everything, 1500, 0},
		{"tap or veth before Linux 6.2", oldKernel, 1500, 0},
		{"memif", port.Offload{}, 1500, 0},
		{"tunnel over IPv4", everything, 1500, IP4},
		{"tunnel over IPv6", everything, 1500, IP6},
		{"tap or veth with a small MTU", everything, 600, 0},
		{"memif with a small MTU", port.Offload{}, 600, 0},
	}
)

// leftover is a row of the table: what a sender leaves of a packet.
type leftover struct {
	name     string
	protocol uint8
	partial  bool
	segment  uint16 // size; 0: the packet has its length on the wire
	inGRE    bool
	want     [7]string // by egress
}

var leftovers = []leftover{
	{
		"nothing of UDP", frame.ProtocolUDP, false, 0, false,
		[7]string{complete, complete, complete, complete, complete, complete, complete},
	},
	{
		"nothing of SCTP", frame.ProtocolSCTP, false, 0, false,
		[7]string{complete, complete, complete, complete, complete, complete, complete},
	},
	{
		"the checksum of TCP", frame.ProtocolTCP, true, 0, false,
		[7]string{left, left, complete, complete, complete, complete, complete},
	},
	{
		"the checksum of UDP", frame.ProtocolUDP, true, 0, false,
		[7]string{left, left, complete, complete, complete, complete, complete},
	},
	{
		"the checksum of SCTP", frame.ProtocolSCTP, true, 0, false,
		[7]string{complete, complete, complete, complete, complete, complete, complete},
	},
	{"segments of TCP", frame.ProtocolTCP, true, 1000, false, [7]string{left, left, cut, cut, cut, left, cut}},
	{"segments of UDP", frame.ProtocolUDP, true, 1000, false, [7]string{left, cut, cut, cut, cut, dropped, dropped}},
	{"segments of TCP in GRE", frame.ProtocolTCP, true, 1000, true, [7]string{cut, cut, cut, cut, cut, cut, cut}},
	{
		"segments of UDP in GRE", frame.ProtocolUDP, true, 1000, true,
		[7]string{cut, cut, cut, cut, cut, dropped, dropped},
	},
}

// transports have the lengths of headers (of SCTP with a chunk), and the places of checksums in them.
var transports = map[uint8]struct{ length, checksum int }{
	frame.ProtocolTCP: {20, 16}, frame.ProtocolUDP: {8, 6}, frame.ProtocolSCTP: {28, 8},
}

const greHeader = "\x00\x00\x08\x00"

func TestEgressTable(t *testing.T) {
	for _, l := range leftovers {
		for n, e := range egresses {
			for _, f := range []Family{IP4, IP6} {
				t.Run(fmt.Sprintf("%s/%s/IPv%d", l.name, e.name, f), func(t *testing.T) {
					want := l.want[n]
					if f == IP6 && e.mtu == 600 {
						want = dropped // with an ICMP error: routers do not fragment IPv6
					}
					l.cross(t, e, f, want)
				})
			}
		}
	}
}

// cross sends the packet to an egress and judges what arrives there.
func (l leftover) cross(t *testing.T, e egress, f Family, want string) {
	payload := 900
	if l.segment > 0 {
		payload = 4500
	}
	raw, v := l.build(f, payload)
	s := newTunnelSegment(t, max(e.tunnel, IP4))
	out := uint32(3)
	if e.tunnel != 0 {
		out = uplinkIndex
		copy(raw, host(9).HardwareAddr()) // is flooded into the tunnel
	} else {
		s.change(plain(1, 5, 6)) // interface 1 routes
		s.routeTo(e)
	}
	seen := s.receive(1, slices.Clone(raw), v)
	if want == dropped {
		if len(seen) != 0 || len(s.engine.Drops()) == 0 {
			t.Errorf("%d sent, drops %v", len(seen), s.engine.Drops())
		}
		return
	}
	got := judged{t: t, l: l}
	for _, d := range seen {
		if d.on != out {
			t.Fatalf("sent on %d", d.on)
		}
		if e.tunnel != 0 {
			d.raw = d.raw[vxlanOf(e.tunnel)+frame.VXLANLen:]
		}
		got.take(d, want, e.mtu)
	}
	if !bytes.Equal(got.payload, raw[len(raw)-payload:]) {
		t.Errorf("%d frames with %d of %d bytes, or others; drops %v", len(seen), len(got.payload), payload,
			s.engine.Drops())
	}
}

// routeTo makes interface 1 route to interface 3, the egress.
func (s *segment) routeTo(e egress) {
	s.set(1, Interface{
		Up:         true,
		MAC:        portMAC,
		IP6Enabled: true,
		Addresses:  []netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd01::1")},
	})
	s.set(3, Interface{
		Up:         true,
		MAC:        portMAC,
		IP6Enabled: true,
		MTU:        e.mtu,
		Addresses:  []netip.Addr{netip.MustParseAddr("10.2.0.1"), netip.MustParseAddr("fd02::1")},
	})
	for _, to := range []string{"10.2.0.9", "fd02::9"} {
		a := netip.MustParseAddr(to)
		must(s.tb,
			s.engine.SetRoute(TableKey{Family: FamilyOf(a)}, netaddr.Single(a), Route{
				Paths: []Path{{Interface: 3}},
			}))
		must(s.tb, s.engine.SetNeighbour(3, a, podMAC, true))
	}
	s.engine.Publish()
	s.engine.ports.Load().at(3).offload = e.takes
}

// build makes the packet as the sender's kernel leaves it. It may be fragmented.
func (l leftover) build(f Family, payload int) ([]byte, frame.Virtio) {
	t := transports[l.protocol]
	body := make([]byte, t.length+payload)
	for i := range body[t.length:] {
		body[t.length+i] = byte(i * i >> 3)
	}
	binary.BigEndian.PutUint16(body, 40000)
	binary.BigEndian.PutUint16(body[2:], 38412)
	switch l.protocol {
	case frame.ProtocolTCP:
		body[12] = 0x50
		body[13] = 0x10
	case frame.ProtocolUDP:
		binary.BigEndian.PutUint16(body[4:], uint16(len(body)))
	}
	packet := ipBefore(f, l.protocol, body)
	start := len(packet) - len(body)
	if l.protocol != frame.ProtocolSCTP {
		binary.BigEndian.PutUint16(packet[start+t.checksum:], plainSum(pseudoOf(packet, l.protocol, len(body))))
	}
	v := frame.Virtio{
		Flags:          frame.VirtioNeedsChecksum,
		GSOSize:        l.segment,
		ChecksumStart:  uint16(start),
		ChecksumOffset: uint16(t.checksum),
	}
	if l.segment > 0 {
		v.GSOType = frame.GSOUDP
		if l.protocol == frame.ProtocolTCP {
			v.GSOType = map[Family]uint8{IP4: frame.GSOTCP4, IP6: frame.GSOTCP6}[f]
		}
	}
	if l.inGRE {
		packet = ipBefore(f, 47, append([]byte(greHeader), packet...))
		v.ChecksumStart = uint16(len(packet) - len(body))
	}
	if !l.partial {
		putChecksum(packet[len(packet)-len(body):], pseudoOf(packet, l.protocol, len(body)), l.protocol)
		v = frame.Virtio{}
	} else {
		v.ChecksumStart += frame.EthernetLen
	}
	raw := make([]byte, frame.EthernetLen, frame.EthernetLen+len(packet))
	frame.PutEthernet(raw, portMAC, podMAC, map[Family]uint16{IP4: frame.TypeIPv4, IP6: frame.TypeIPv6}[f])
	return append(raw, packet...), v
}

func ipBefore(f Family, protocol uint8, body []byte) []byte {
	fields := frame.IPFields{TTL: 9, Protocol: protocol, PayloadLen: len(body)}
	if f == IP4 {
		fields.Source = netip.MustParseAddr("10.1.0.5")
		fields.Destination = netip.MustParseAddr("10.2.0.9")
		b := make([]byte, frame.IPv4Len, frame.IPv4Len+len(body))
		frame.PutIPv4(b, fields)
		return append(b, body...)
	}
	fields.Source = netip.MustParseAddr("fd01::5")
	fields.Destination = netip.MustParseAddr("fd02::9")
	b := make([]byte, frame.IPv6Len, frame.IPv6Len+len(body))
	frame.PutIPv6(b, fields)
	return append(b, body...)
}
