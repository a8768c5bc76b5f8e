package vswitch

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"go.fd.io/govpp/binapi/af_packet"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/tapv2"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vxlan"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
)

// meshVNI is the VNI of the tests' network.
const meshVNI = 77

// tunnel adds a tunnel to another node, in bridge domain 1 and split-horizon group 1.
func (n *node) tunnel(t testing.TB, to *node, six bool) interface_types.InterfaceIndex {
	t.Helper()
	src, err := ip_types.ParseAddress(n.source(six).String())
	must(t, err)
	dst, err := ip_types.ParseAddress(to.source(six).String())
	must(t, err)
	reply, err := vxlan.NewServiceClient(n.conn).VxlanAddDelTunnelV3(t.Context(), &vxlan.VxlanAddDelTunnelV3{
		IsAdd:    true,
		Instance: ^uint32(0), SrcAddress: src, DstAddress: dst, Vni: meshVNI, DecapNextIndex: ^uint32(0),
	})
	must(t, err)
	_, err = interfaces.NewServiceClient(n.conn).SwInterfaceSetMtu(t.Context(), &interfaces.SwInterfaceSetMtu{
		SwIfIndex: reply.SwIfIndex, Mtu: []uint32{1430, 0, 0, 0}})
	must(t, err)
	join(t, n.conn, l2.SwInterfaceSetL2Bridge{RxSwIfIndex: reply.SwIfIndex, BdID: 1, Shg: 1})
	return reply.SwIfIndex
}

// mesh connects all nodes with each other.
func mesh(t testing.TB, six bool, nodes ...*node) {
	t.Helper()
	for _, n := range nodes {
		n.attachUplink(t, six)
		addBridge(t, n.conn, 1)
		for _, other := range nodes {
			if other != n {
				n.tunnel(t, other, six)
			}
		}
	}
}

// meshPod adds a pod to a node's bridge domain; its MTU leaves room for the outer headers.
func (n *node) meshPod(t testing.TB, host int) pod {
	t.Helper()
	p := addBridgedPod(t, n.conn, bridged{bridge: 1, host: host, flags: tapv2.TAP_API_FLAG_GSO})
	p.setMTU(t, 1430)
	return p
}

// reachEachOther pings in both directions and transfers over TCP; the pods' addresses end in 11 and 12.
func reachEachOther(t *testing.T, p, q pod) {
	t.Helper()
	ping(t, p, q.prefix4(12))
	ping(t, q, p.prefix6(11))
	transferTo(t, p, q, 12)
}

func TestPodsOfTwoNodesReachEachOther(t *testing.T) {
	netnstest.RequireTap(t)
	for _, six := range []bool{false, true} {
		t.Run(fmt.Sprintf("IPv6 outside %t", six), func(t *testing.T) {
			u := newUnderlay(t, 1500)
			a := u.node(t, 1)
			b := u.node(t, 2)
			mesh(t, six, a, b)
			reachEachOther(t, a.meshPod(t, 11), b.meshPod(t, 12))
		})
	}
}

// attachUplink moves the node's uplink with its address to the dataplane.
func (n *node) attachUplink(t testing.TB, six bool) {
	t.Helper()
	netnstest.Do(t, n.netns, func() {
		uplink, err := netlink.LinkByName("uplink")
		must(t, err)
		for _, p := range []netip.Prefix{netip.PrefixFrom(n.v4(), 24), netip.PrefixFrom(n.v6(), 64)} {
			// attached before
			if err := netlink.AddrDel(uplink, uplinkAddress(p)); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
				t.Fatal(err)
			}
		}
	})
	reply, err := af_packet.NewServiceClient(n.conn).AfPacketCreateV3(t.Context(), &af_packet.AfPacketCreateV3{
		Mode:            af_packet.AF_PACKET_API_MODE_ETHERNET,
		UseRandomHwAddr: true,
		HostIfName:      "uplink",
		NumRxQueues:     1,
		NumTxQueues:     1,
		Flags:           af_packet.AF_PACKET_API_FLAG_CKSUM_GSO})
	must(t, err)
	_, err = interfaces.NewServiceClient(n.conn).SwInterfaceSetMtu(t.Context(), &interfaces.SwInterfaceSetMtu{
		SwIfIndex: reply.SwIfIndex, Mtu: []uint32{uint32(n.mtu), 0, 0, 0}})
	must(t, err)
	setUp(t, n.conn, reply.SwIfIndex)
	own := netip.PrefixFrom(n.v4(), 24).String()
	if six {
		own = netip.PrefixFrom(n.v6(), 64).String()
	}
	_, err = interfaces.NewServiceClient(n.conn).SwInterfaceAddDelAddress(t.Context(),
		&interfaces.SwInterfaceAddDelAddress{
			SwIfIndex: reply.SwIfIndex, IsAdd: true, Prefix: addressWithPrefix(t, own)})
	must(t, err)
}

func TestTunnelsInteroperateWithKernelVXLAN(t *testing.T) {
	netnstest.RequireTap(t)
	u := newUnderlay(t, 1500)
	a := u.node(t, 1)
	b := u.addNode(t, 2)
	addBridge(t, a.conn, 1)
	a.tunnel(t, b, false)
	a.attachUplink(t, false)
	p := a.meshPod(t, 11)
	q := b.kernelPod(t, a, 12)
	reachEachOther(t, p, q)
	transferTo(t, q, p, 11)
}

func TestFullMeshHasNoLoops(t *testing.T) {
	netnstest.RequireTap(t)
	u := newUnderlay(t, 1500)
	nodes := []*node{u.node(t, 1), u.node(t, 2), u.node(t, 3)}
	mesh(t, false, nodes...)
	pods := []pod{nodes[0].meshPod(t, 11), nodes[1].meshPod(t, 12), nodes[2].meshPod(t, 13)}
	for i, p := range pods {
		ping(t, p, p.prefix4(11+(i+1)%3))
		ping(t, p, p.prefix6(11+(i+2)%3))
	}
	wantSilence(t, pods[0], pods[0].prefix4(99)) // solicited by broadcast
	for _, n := range nodes {
		own := n.count(t, "tap", "rx packets")
		if sent := n.count(t, "vxlan_tunnel", "tx packets"); own == 0 || sent > 2*own {
			t.Errorf("node %d sent %d tunnel packets for %d frames of its pod", n.n, sent, own)
		}
	}
	nodes[1].end(t)
	nodes[1].begin(t)
	nodes[1].attachUplink(t, false)
	addBridge(t, nodes[1].conn, 1)
	nodes[1].tunnel(t, nodes[0], false)
	nodes[1].tunnel(t, nodes[2], false)
	again := nodes[1].meshPod(t, 14)
	ping(t, again, again.prefix4(11))
	ping(t, pods[2], again.prefix4(14))
}

// count sums a counter of the interfaces with a name prefix.
func (n *node) count(t *testing.T, name, counter string) (sum uint64) {
	t.Helper()
	reply, err := vlib.NewServiceClient(n.conn).CliInband(t.Context(), &vlib.CliInband{Cmd: "show interface"})
	must(t, err)
	ours := false
	for line := range strings.Lines(reply.Reply) {
		if line[0] != ' ' {
			ours = strings.HasPrefix(line, name)
		}
		if _, count, is := strings.Cut(line, counter); is && ours {
			k, err := strconv.ParseUint(strings.TrimSpace(count), 10, 64)
			must(t, err)
			sum += k
		}
	}
	return sum
}

// Packets of a pod that exceed the tunnel's MTU are dropped and counted.
func TestPacketsTooLongForTheTunnelAreCounted(t *testing.T) {
	netnstest.RequireTap(t)
	u := newUnderlay(t, 1500)
	a := u.node(t, 1)
	b := u.node(t, 2)
	mesh(t, false, a, b)
	p := a.meshPod(t, 11)
	q := b.meshPod(t, 12)
	ping(t, p, q.prefix4(12))
	p.setMTU(t, 1500)
	if p.pingOf(t, q.prefix4(12), 1460) {
		t.Error("a ping longer than the tunnel's MTU is answered")
	}
	reply, err := vlib.NewServiceClient(a.conn).CliInband(t.Context(), &vlib.CliInband{Cmd: "show errors"})
	must(t, err)
	if !strings.Contains(reply.Reply, "exceeds the tunnel's MTU") {
		t.Error(reply.Reply)
	}
}

// pingOf sends one echo request of a size with DF set, like ping -M do, and reports whether it was answered.
func (p pod) pingOf(t *testing.T, to string, size int) bool {
	t.Helper()
	dst := netip.MustParsePrefix(to).Addr()
	conn := listen(t, p, func() (*icmp.PacketConn, error) { return icmp.ListenPacket("ip4:icmp", "0.0.0.0") })
	defer conn.Close()
	echo := &icmp.Echo{ID: 9, Data: make([]byte, size-28)}
	b, err := (&icmp.Message{Type: ipv4.ICMPTypeEcho, Body: echo}).Marshal(nil)
	must(t, err)
	if _, err := conn.WriteTo(b, &net.IPAddr{IP: dst.AsSlice()}); err != nil {
		t.Fatal("send echo request:", err)
	}
	return answered(t, conn, expected{dst, ipv4.ICMPTypeEchoReply, 1, echo})
}

func (p pod) setMTU(t testing.TB, mtu int) {
	t.Helper()
	netnstest.Do(t, p.netns, func() {
		link, err := netlink.LinkByName("eth0")
		must(t, err)
		must(t, netlink.LinkSetMTU(link, mtu))
	})
}
