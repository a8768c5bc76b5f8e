package vpp

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/ethernet_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/l2"
	"golang.org/x/sys/unix"
)

// cable is an interface of the dataplane on a veth whose other end the test holds.
type cable struct {
	t      *testing.T
	client *Client
	index  interface_types.InterfaceIndex
	socket int
	link   int
}

var (
	cableMAC = net.HardwareAddr{2, 0, 0, 0, 9, 1} // the dataplane's end
	peerMAC  = net.HardwareAddr{2, 0, 0, 0, 9, 2}
	cable4   = netip.MustParsePrefix("10.9.0.1/24")
	peer4    = netip.MustParseAddr("10.9.0.2")
	cable6   = netip.MustParsePrefix("fd00:9::1/64")
	peer6    = netip.MustParseAddr("fd00:9::2")
)

func (c *cable) send(m, reply api.Message) {
	c.t.Helper()
	if err := c.client.exchangeAll(c.t.Context(), []*request{ask(m.GetMessageName(), m, reply)}); err != nil {
		c.t.Fatal(m.GetMessageName(), err)
	}
}

func newCable(t *testing.T, client *Client, name string) *cable {
	t.Helper()
	veth := &netlink.Veth{
		LinkAttrs:        netlink.LinkAttrs{Name: name, MTU: 1500},
		PeerName:         name + "p",
		PeerHardwareAddr: peerMAC,
	}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(veth) })
	for _, end := range []string{name, name + "p"} { // the kernel says nothing on them
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+end+"/disable_ipv6", []byte("1"), 0o644); err != nil {
			t.Fatal(err)
		}
		link, err := netlink.LinkByName(end)
		if err == nil {
			err = netlink.LinkSetUp(link)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	peer, err := net.InterfaceByName(name + "p")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{t: t, client: client, link: peer.Index}
	if c.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(c.socket) })
	created := &af_packet.AfPacketCreateV3Reply{}
	c.send(&af_packet.AfPacketCreateV3{
		Mode:       af_packet.AF_PACKET_API_MODE_ETHERNET,
		HwAddr:     ethernet_types.MacAddress(cableMAC),
		HostIfName: name, NumRxQueues: 1, NumTxQueues: 1,
	}, created)
	t.Cleanup(func() {
		r := ask("af_packet_delete", &af_packet.AfPacketDelete{HostIfName: name}, &af_packet.AfPacketDeleteReply{})
		client.exchange(context.Background(), r)
	})
	c.index = created.SwIfIndex
	c.send(&interfaces.SwInterfaceSetFlags{SwIfIndex: c.index, Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP},
		&interfaces.SwInterfaceSetFlagsReply{})
	return c
}

// route gives the dataplane's end addresses, neighbours and an MTU of 1300.
func (c *cable) route() {
	c.t.Helper()
	c.send(&interfaces.SwInterfaceSetMtu{SwIfIndex: c.index, Mtu: []uint32{1300, 0, 0, 0}},
		&interfaces.SwInterfaceSetMtuReply{})
	for own, peer := range map[netip.Prefix]netip.Addr{cable4: peer4, cable6: peer6} {
		prefix := ip_types.AddressWithPrefix{Address: ip_types.NewAddress(own.Addr().AsSlice()), Len: uint8(own.Bits())}
		c.send(&interfaces.SwInterfaceAddDelAddress{SwIfIndex: c.index, IsAdd: true, Prefix: prefix},
			&interfaces.SwInterfaceAddDelAddressReply{})
		c.send(&ip_neighbor.IPNeighborAddDel{
			IsAdd: true,
			Neighbor: ip_neighbor.IPNeighbor{SwIfIndex: c.index, Flags: ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC,
				MacAddress: ethernet_types.MacAddress(peerMAC),
				IPAddress:  ip_types.NewAddress(peer.AsSlice())},
		}, &ip_neighbor.IPNeighborAddDelReply{})
	}
}

// bridge puts the dataplane's end into a bridge domain.
func (c *cable) bridge() {
	c.t.Helper()
	c.send(&l2.BridgeDomainAddDelV2{IsAdd: true, BdID: 9, Flood: true, UuFlood: true, Forward: true, Learn: true},
		&l2.BridgeDomainAddDelV2Reply{})
	c.send(&l2.SwInterfaceSetL2Bridge{RxSwIfIndex: c.index, BdID: 9, Enable: true}, &l2.SwInterfaceSetL2BridgeReply{})
}

func (c *cable) put(frame []byte) {
	c.t.Helper()
	if err := unix.Sendto(c.socket, frame, 0, &unix.SockaddrLinklayer{Ifindex: c.link}); err != nil {
		c.t.Fatal(err)
	}
}

// frameOf makes a frame of layers, with lengths and checksums.
func frameOf(t *testing.T, parts ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		parts...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// packet4 is an IPv4 packet to the dataplane, changed by edit before its checksum is computed.
func packet4(t *testing.T, to string, edit func(*layers.Ethernet, *layers.IPv4)) []byte {
	t.Helper()
	e := &layers.Ethernet{SrcMAC: peerMAC, DstMAC: cableMAC, EthernetType: layers.EthernetTypeIPv4}
	p := &layers.IPv4{Version: 4, TTL: 64, Protocol: 253, SrcIP: peer4.AsSlice(), DstIP: net.ParseIP(to)}
	edit(e, p)
	return frameOf(t, e, p, gopacket.Payload(make([]byte, 64)))
}

// packet6 is an IPv6 packet to the neighbour by way of the dataplane.
func packet6(t *testing.T, hops uint8, size int) []byte {
	t.Helper()
	return frameOf(t, &layers.Ethernet{SrcMAC: peerMAC, DstMAC: cableMAC, EthernetType: layers.EthernetTypeIPv6},
		&layers.IPv6{
			Version:    6,
			HopLimit:   hops,
			NextHeader: 253,
			SrcIP:      netip.MustParseAddr("fd00:9::3").AsSlice(),
			DstIP:      peer6.AsSlice(),
		},
		gopacket.Payload(make([]byte, size)))
}

// arpOf is an ARP request.
func arpOf(t *testing.T, from net.HardwareAddr, sender, target netip.Addr) []byte {
	t.Helper()
	return frameOf(t, &layers.Ethernet{
		SrcMAC:       peerMAC,
		DstMAC:       layers.EthernetBroadcast,
		EthernetType: layers.EthernetTypeARP,
	},
		&layers.ARP{
			AddrType:          1,
			Protocol:          layers.EthernetTypeIPv4,
			HwAddressSize:     6,
			ProtAddressSize:   4,
			Operation:         layers.ARPRequest,
			SourceHwAddress:   from,
			SourceProtAddress: sender.AsSlice(),
			DstHwAddress:      make([]byte, 6),
			DstProtAddress:    target.AsSlice(),
		})
}

func as(edit func(*layers.Ethernet, *layers.IPv4)) func(*layers.Ethernet, *layers.IPv4) { return edit }

var unchanged = as(func(*layers.Ethernet, *layers.IPv4) {})

// droppedFrames are frames with the error that VPP counts for them, on a routed interface and on a bridged one.
func droppedFrames(t *testing.T) (routed, bridged map[ErrorCount][]byte) {
	spoil := func(b []byte, at int, value byte) []byte {
		b[at] = value
		return b
	}
	large := &layers.IPv4{
		Version:  4,
		TTL:      64,
		Flags:    layers.IPv4DontFragment,
		Protocol: 253,
		SrcIP:    net.IP{10, 9, 0, 3},
		DstIP:    peer4.AsSlice(),
	}
	tooLong := packet4(t, "10.9.0.2", unchanged)
	binary.BigEndian.PutUint16(tooLong[16:], 1400)
	binary.BigEndian.PutUint16(tooLong[24:], 0)
	binary.BigEndian.PutUint16(tooLong[24:], ^sum(tooLong[14:34]))
	routed = map[ErrorCount][]byte{
		{Node: "ethernet-input", Reason: "unknown ethernet type"}: spoil(
			spoil(packet4(t, "10.9.0.2", unchanged), 12, 0x88), 13, 0xb5),
		{Node: "ethernet-input", Reason: "l3 mac mismatch"}: packet4(t, "10.9.0.2",
			func(e *layers.Ethernet, _ *layers.IPv4) { e.DstMAC = net.HardwareAddr{2, 7, 7, 7, 7, 7} }),
		{Node: "ip4-input", Reason: "bad_checksum"}: spoil(packet4(t, "10.9.0.2", unchanged), 24, 0x55),
		{Node: "ip4-input", Reason: "version"}:      spoil(packet4(t, "10.9.0.2", unchanged), 14, 0x65),
		{Node: "ip4-input", Reason: "bad_length"}:   tooLong,
		{Node: "ip4-input", Reason: "time_expired"}: packet4(t, "10.9.0.2",
			func(_ *layers.Ethernet, p *layers.IPv4) { p.TTL = 1 }),
		{Node: "ethernet-input", Reason: "no error"}: packet4(t, "203.0.113.7", unchanged),
		{Node: "ip4-local", Reason: "spoofed_local_packets"}: packet4(t, "10.9.0.1",
			func(_ *layers.Ethernet, p *layers.IPv4) { p.SrcIP = cable4.Addr().AsSlice() }),
		{Node: "ip4-input", Reason: "mtu_exceeded"}: frameOf(t, &layers.Ethernet{
			SrcMAC:       peerMAC,
			DstMAC:       cableMAC,
			EthernetType: layers.EthernetTypeIPv4,
		},
			large, gopacket.Payload(make([]byte, 1400))),
		{Node: "ip6-input", Reason: "mtu_exceeded"}:            packet6(t, 64, 1400),
		{Node: "ip6-input", Reason: "time_expired"}:            packet6(t, 1, 64),
		{Node: "ip6-input", Reason: "version"}:                 spoil(packet6(t, 64, 64), 14, 0x50),
		{Node: "ip6-input", Reason: "too_short"}:               packet6(t, 64, 0)[:44],
		{Node: "arp-reply", Reason: "l3_src_address_is_local"}: arpOf(t, peerMAC, cable4.Addr(), cable4.Addr()),
		{Node: "arp-reply", Reason: "l3_dst_address_not_local"}: arpOf(t, peerMAC, peer4,
			netip.MustParseAddr("192.0.2.77")),
		{Node: "arp-reply", Reason: "l2_address_mismatch"}: arpOf(t, net.HardwareAddr{2, 7, 7, 7, 7, 7}, peer4,
			cable4.Addr()),
	}
	bridged = map[ErrorCount][]byte{
		{Node: "l2-learn", Reason: "L2 learn misses"}:         arpOf(t, peerMAC, peer4, cable4.Addr()),
		{Node: "l2-flood", Reason: "L2 replication complete"}: arpOf(t, peerMAC, peer4, cable4.Addr()),
		{Node: "l2-fwd", Reason: "Reflection Drop"}: packet4(t, "10.9.0.2",
			func(e *layers.Ethernet, _ *layers.IPv4) { e.DstMAC = peerMAC }),
	}
	return routed, bridged
}

// guardedCable is a routed interface with a MACIP ACL that admits nothing of what the test sends.
func guardedCable(t *testing.T, client *Client) *cable {
	t.Helper()
	c := newCable(t, client, "guarded")
	for _, own := range []string{"10.10.0.1/24", "fd00:10::1/64"} {
		prefix, err := ip_types.ParseAddressWithPrefix(own)
		if err != nil {
			t.Fatal(err)
		}
		c.send(&interfaces.SwInterfaceAddDelAddress{SwIfIndex: c.index, IsAdd: true, Prefix: prefix},
			&interfaces.SwInterfaceAddDelAddressReply{})
	}
	rules := []acl_types.MacipACLRule{}
	for _, admitted := range []string{"10.10.0.99/32", "fd00:10::99/128"} {
		prefix, err := ip_types.ParsePrefix(admitted)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, acl_types.MacipACLRule{
			IsPermit:   acl_types.ACL_ACTION_API_PERMIT,
			SrcMac:     ethernet_types.MacAddress(peerMAC),
			SrcMacMask: ethernet_types.MacAddress{255, 255, 255, 255, 255, 255}, SrcPrefix: prefix,
		})
	}
	added := &acl.MacipACLAddReply{}
	c.send(&acl.MacipACLAdd{Tag: "test", R: rules}, added)
	c.send(&acl.MacipACLInterfaceAddDel{IsAdd: true, SwIfIndex: c.index, ACLIndex: added.ACLIndex},
		&acl.MacipACLInterfaceAddDelReply{})
	return c
}

func guardedFrames(t *testing.T) map[ErrorCount][]byte {
	return map[ErrorCount][]byte{
		{Node: "ip4-inacl", Reason: "input ACL misses"}: packet4(t, "10.9.0.2", unchanged),
		{Node: "ip6-inacl", Reason: "input ACL misses"}: packet6(t, 64, 64),
	}
}

// sum is the Internet checksum before its complement.
func sum(b []byte) uint16 {
	var s uint32
	for ; len(b) > 1; b = b[2:] {
		s += uint32(binary.BigEndian.Uint16(b))
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// awaitError waits until the dataplane has counted an error.
func awaitError(t *testing.T, client *Client, want ErrorCount) (others []ErrorCount, ok bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := client.Statistics().Counters(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range c.Errors {
			if e.Node == want.Node && e.Reason == want.Reason {
				return nil, true
			}
		}
		select {
		case <-tick.C:
		case <-deadline:
			return c.Errors, false
		}
	}
}

// mustNameErrorsAsVPP sends each frame and waits for its error.
func mustNameErrorsAsVPP(t *testing.T, client *Client) {
	routed, bridged := droppedFrames(t)
	r := newCable(t, client, "routed")
	b := newCable(t, client, "bridged")
	r.route()
	b.bridge()
	all := map[*cable]map[ErrorCount][]byte{r: routed, b: bridged, guardedCable(t, client): guardedFrames(t)}
	for c, frames := range all {
		for _, frame := range frames {
			c.put(frame)
		}
	}
	for _, frames := range all {
		for want := range frames {
			if others, ok := awaitError(t, client, want); !ok {
				t.Errorf("no %s/%s among %+v", want.Node, want.Reason, others)
			}
		}
	}
	c, err := client.stats.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for cable, frames := range all {
		i := Index(cable.index)
		bytes := 0
		for _, frame := range frames {
			bytes += len(frame)
		}
		if have := c.traffic(i, string(c.names[i])); have.RxPackets != uint64(len(frames)) ||
			have.RxBytes != uint64(bytes) || have.RxDrops == 0 {
			t.Errorf("%s: %+v, want %d packets of %d bytes, some dropped", c.names[i], have, len(frames), bytes)
		}
	}
}

func TestErrorsHaveTheNamesOfVPP(t *testing.T) {
	client := connect(t, newRuins(t).socket, Options{})
	mustNameErrorsAsVPP(t, client)
	t.Log(client.Version())
}
