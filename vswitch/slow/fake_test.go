package slow_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/slow"
)

var (
	ourMAC   = frame.MAC{2, 0, 0, 0, 0, 1}
	theirMAC = frame.MAC{2, 0, 0, 0, 0, 9}
	evilMAC  = frame.MAC{2, 0, 0, 0, 0, 0x66}
	our4     = netip.MustParseAddr("10.0.0.1")
	our6     = netip.MustParseAddr("fd00::1")
	ourLink  = netip.MustParseAddr("fe80::1")
	their4   = netip.MustParseAddr("10.0.0.9")
	their6   = netip.MustParseAddr("fd00::9")
)

type neighbour struct {
	mac    frame.MAC
	static bool
}

type learned struct {
	index uint32
	addr  netip.Addr
	mac   frame.MAC
}

// dataplane is a slow path with a recorder instead of workers.
type dataplane struct {
	t          *testing.T
	path       *slow.Path
	ring       *slow.Ring[slow.Message]
	now        time.Time
	interfaces map[uint32]slow.Interface
	neighbours map[netip.Addr]neighbour
	learned    []learned
	message    slow.Message
	full       bool
	sent       []sent
}

// sent is an injected frame, decoded by gopacket.
type sent struct {
	reason slow.Reason
	out    uint32
	raw    []byte
	packet gopacket.Packet
}

func newDataplane(t *testing.T) *dataplane {
	d := &dataplane{
		t: t, ring: slow.NewRing[slow.Message](6), now: time.Unix(1e9, 0), neighbours: map[netip.Addr]neighbour{},
		interfaces: map[uint32]slow.Interface{
			1: {MAC: ourMAC, Addresses: []netip.Addr{our4, our6}, LinkLocal: ourLink, Up: true},
			2: {MAC: ourMAC, Up: true},
		},
	}
	d.path = slow.New(d, nil, []*slow.Ring[slow.Message]{d.ring})
	return d
}

func (d *dataplane) Interface(index uint32) (slow.Interface, bool) {
	i, ok := d.interfaces[index]
	return i, ok
}

func (d *dataplane) Neighbour(_ uint32, a netip.Addr) (frame.MAC, bool, bool) {
	n, ok := d.neighbours[a]
	return n.mac, n.static, ok
}

func (d *dataplane) Learned(index uint32, a netip.Addr, m frame.MAC) bool {
	d.learned = append(d.learned, learned{index, a, m})
	return true
}

func (d *dataplane) Inject() *slow.Message {
	if d.full {
		return nil
	}
	return &d.message
}

func (d *dataplane) Injected() {
	raw := append([]byte(nil), d.message.Bytes()...)
	p := gopacket.NewPacket(raw, layers.LayerTypeEthernet, gopacket.Default)
	if bad := p.ErrorLayer(); bad != nil {
		d.t.Errorf("malformed: %v\n%v", bad.Error(), p)
	}
	d.sent = append(d.sent, sent{d.message.Reason, d.message.Out, raw, p})
}

// give sends a frame to the slow path and returns the frames that it sent.
func (d *dataplane) give(m slow.Message, raw []byte) []sent {
	d.t.Helper()
	slot := d.ring.Reserve()
	if slot == nil {
		d.t.Fatal("ring is full")
	}
	slot.Fill(raw)
	slot.Reason = m.Reason
	slot.Interface = m.Interface
	slot.Out = m.Out
	slot.Target = m.Target
	slot.MTU = m.MTU
	slot.Virtio = m.Virtio
	slot.Sender = m.Sender
	d.ring.Commit()
	return d.step(0)
}

// step advances the time and returns the frames that the slow path sent.
func (d *dataplane) step(after time.Duration) []sent {
	d.now = d.now.Add(after)
	d.sent = nil
	d.path.Step(d.now)
	return d.sent
}

func (d *dataplane) drops(cause string) uint64 {
	sum := map[string]uint64{}
	d.path.Drops(sum)
	return sum[cause]
}

// build serialises a frame from the neighbour to the dataplane with gopacket.
func build(t *testing.T, parts ...gopacket.SerializableLayer) []byte {
	t.Helper()
	kind := layers.EthernetTypeIPv4
	switch parts[0].(type) {
	case *layers.IPv6:
		kind = layers.EthernetTypeIPv6
	case *layers.ARP:
		kind = layers.EthernetTypeARP
	}
	e := &layers.Ethernet{SrcMAC: theirMAC[:], DstMAC: ourMAC[:], EthernetType: kind}
	b := gopacket.NewSerializeBuffer()
	o := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(b, o, append([]gopacket.SerializableLayer{e}, parts...)...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func ip4(protocol layers.IPProtocol, to netip.Addr) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, Protocol: protocol, SrcIP: their4.AsSlice(), DstIP: to.AsSlice()}
}

func ip6(protocol layers.IPProtocol, from, to netip.Addr) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: protocol, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
}
