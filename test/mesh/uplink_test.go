package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"go.fd.io/govpp/adapter/socketclient"
	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/fib_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/punt"
	"go.fd.io/govpp/binapi/vxlan"
	"go.fd.io/govpp/core"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/ping"
)

// The messages by which a dataplane serves a node whose network card it owns, on weft-vswitch and on VPP, without an
// agent.

// uplinkFamily has the addresses of one family: of the node, of a peer on the same network, and the kernel's end of the
// link between dataplane and kernel, which has the node's address.
type uplinkFamily struct{ node, peer, kernelEnd netip.Addr }

var uplinkFamilies = []uplinkFamily{
	{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("169.254.43.1")},
	{
		netip.MustParseAddr("2001:db8:ff::1"), netip.MustParseAddr("2001:db8:ff::2"),
		netip.MustParseAddr("fd77:6566:7400::1"),
	},
}

// uplinkLab is a dataplane that owns the card up0 of the test's namespace; a peer in another namespace is behind it.
type uplinkLab struct {
	*testing.T
	conn      *core.Connection
	peer      string
	nic, link interface_types.InterfaceIndex
}

func newUplinkLab(t *testing.T) *uplinkLab {
	t.Helper()
	netnstest.Require(t)
	l := &uplinkLab{T: t, peer: netnstest.New(t)}
	d := dataplane.Run(t, dataplane.Options{})
	conn, err := core.Connect(socketclient.NewVppClient(d.Socket()))
	must.Succeed(t, err)
	t.Cleanup(conn.Disconnect)
	l.conn = conn
	l.connect()
	for _, f := range []bool{false, true} {
		_, err := ip.NewServiceClient(conn).IPTableAddDelV2(t.Context(), &ip.IPTableAddDelV2{
			IsAdd:      true,
			CreateMfib: true,
			Table:      ip.IPTable{TableID: 2, IsIP6: f},
		})
		must.Succeed(t, err)
	}
	l.nic, l.link = l.take("up0"), l.take("vpp-end")
	return l
}

// connect makes the card and the link to the kernel; the kernel has no addresses on the card.
func (l *uplinkLab) connect() {
	l.Helper()
	f, err := os.Open(l.peer)
	must.Succeed(l.T, err)
	defer f.Close()
	for _, v := range []*netlink.Veth{
		{LinkAttrs: netlink.LinkAttrs{Name: "up0"}, PeerName: "up0", PeerNamespace: netlink.NsFd(f.Fd())},
		{LinkAttrs: netlink.LinkAttrs{Name: "vpp-end"}, PeerName: "node0"},
	} {
		must.Succeed(l.T, netlink.LinkAdd(v))
		l.Cleanup(func() { _ = netlink.LinkDel(v) })
		must.Succeed(l.T, os.WriteFile("/proc/sys/net/ipv6/conf/"+v.Name+"/disable_ipv6", []byte("1"), 0))
		must.Succeed(l.T, netlink.LinkSetARPOff(v))
		must.Succeed(l.T, netlink.LinkSetUp(v))
		must.Succeed(l.T, netlink.LinkSetGSOMaxSize(v, 512))
	}
	node0, err := netlink.LinkByName("node0")
	must.Succeed(l.T, err)
	must.Succeed(l.T, netlink.LinkSetGSOMaxSize(node0, 512))
	must.Succeed(l.T, netlink.LinkSetUp(node0))
	netnstest.Do(l.T, l.peer, func() {
		up, err := netlink.LinkByName("up0")
		must.Succeed(l.T, err)
		must.Succeed(l.T, netlink.LinkSetGSOMaxSize(up, 512))
		checksumsItself(l.T, "up0")
		must.Succeed(l.T, netlink.LinkSetUp(up))
		for _, f := range uplinkFamilies {
			l.address(up, netip.PrefixFrom(f.peer, f.peer.BitLen()-8))
		}
	})
	for _, f := range uplinkFamilies {
		l.address(node0, netip.PrefixFrom(f.node, f.node.BitLen()))
	}
}

// checksumsItself does what ethtool -K <link> tx off does, so that packets have complete checksums, as on a wire: VPP
// 25.10 applies an incomplete checksum of an outer packet to the inner one.
func checksumsItself(t *testing.T, link string) {
	t.Helper()
	const setTxChecksum = 0x17
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	must.Succeed(t, err)
	defer unix.Close(fd)
	value := [2]uint32{setTxChecksum, 0}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(request.name[:], link)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&request))); errno != 0 {
		t.Fatal("ethtool:", errno)
	}
}

func (l *uplinkLab) address(on netlink.Link, p netip.Prefix) {
	l.Helper()
	must.Succeed(l.T, netlink.AddrAdd(on, &netlink.Addr{IPNet: ipNet(p), Flags: unix.IFA_F_NODAD}))
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// take gives a link to VPP.
func (l *uplinkLab) take(name string) interface_types.InterfaceIndex {
	l.Helper()
	reply, err := af_packet.NewServiceClient(l.conn).AfPacketCreateV3(l.Context(), &af_packet.AfPacketCreateV3{
		Mode:            af_packet.AF_PACKET_API_MODE_ETHERNET,
		UseRandomHwAddr: true,
		HostIfName:      name,
		NumRxQueues:     1,
		NumTxQueues:     1,
		Flags:           af_packet.AF_PACKET_API_FLAG_CKSUM_GSO,
	})
	must.Succeed(l.T, err)
	link, err := netlink.LinkByName(name)
	must.Succeed(l.T, err)
	must.Succeed(l.T, netlink.SetPromiscOn(link))
	c := interfaces.NewServiceClient(l.conn)
	for _, six := range []bool{false, true} {
		_, err = c.SwInterfaceSetTable(l.Context(), &interfaces.SwInterfaceSetTable{
			SwIfIndex: reply.SwIfIndex,
			IsIPv6:    six,
			VrfID:     2,
		})
		must.Succeed(l.T, err)
	}
	_, err = c.SwInterfaceSetFlags(l.Context(), &interfaces.SwInterfaceSetFlags{
		SwIfIndex: reply.SwIfIndex,
		Flags:     interface_types.IF_STATUS_API_FLAG_ADMIN_UP,
	})
	must.Succeed(l.T, err)
	return reply.SwIfIndex
}

// serve makes the dataplane serve the node's address and punt other packets to the kernel.
func (l *uplinkLab) serve(f uplinkFamily) {
	l.Helper()
	c := interfaces.NewServiceClient(l.conn)
	own, err := ip_types.ParseAddressWithPrefix(netip.PrefixFrom(f.node, f.node.BitLen()-8).String())
	must.Succeed(l.T, err)
	_, err = c.SwInterfaceAddDelAddress(l.Context(), &interfaces.SwInterfaceAddDelAddress{
		SwIfIndex: l.nic,
		IsAdd:     true,
		Prefix:    own,
	})
	must.Succeed(l.T, err)
	dataplaneEnd, err := ip_types.ParseAddressWithPrefix(netip.PrefixFrom(f.kernelEnd.Next(), f.node.BitLen()).String())
	must.Succeed(l.T, err)
	_, err = c.SwInterfaceAddDelAddress(l.Context(), &interfaces.SwInterfaceAddDelAddress{
		SwIfIndex: l.link,
		IsAdd:     true,
		Prefix:    dataplaneEnd,
	})
	must.Succeed(l.T, err)
	node0, err := netlink.LinkByName("node0")
	must.Succeed(l.T, err)
	end, err := ip_types.ParseAddress(f.kernelEnd.String())
	must.Succeed(l.T, err)
	_, err = ip_neighbor.NewServiceClient(l.conn).IPNeighborAddDel(l.Context(), &ip_neighbor.IPNeighborAddDel{
		IsAdd: true,
		Neighbor: ip_neighbor.IPNeighbor{
			SwIfIndex:  l.link,
			Flags:      ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC,
			MacAddress: [6]byte(node0.Attrs().HardwareAddr),
			IPAddress:  end,
		},
	})
	must.Succeed(l.T, err)
	path := fib_types.FibPath{SwIfIndex: uint32(l.link), Weight: 1, Proto: fib_types.FIB_API_PATH_NH_PROTO_IP4}
	family := ip_types.ADDRESS_IP4
	if f.node.Is6() {
		path.Proto = fib_types.FIB_API_PATH_NH_PROTO_IP6
		family = ip_types.ADDRESS_IP6
	}
	path.Nh.Address = end.Un
	_, err = ip.NewServiceClient(l.conn).AddDelIPPuntRedirectV2(l.Context(), &ip.AddDelIPPuntRedirectV2{
		IsAdd: true,
		Punt: ip.PuntRedirectV2{
			RxSwIfIndex: l.nic, Af: family, Paths: []fib_types.FibPath{path},
		},
	})
	must.Succeed(l.T, err)
	_, err = punt.NewServiceClient(l.conn).SetPunt(l.Context(), &punt.SetPunt{IsAdd: true, Punt: punt.Punt{
		Type: punt.PUNT_API_TYPE_L4,
		Punt: punt.PuntUnionL4(punt.PuntL4{Af: family, Protocol: ip_types.IP_API_PROTO_UDP, Port: 0xffff}),
	}})
	must.Succeed(l.T, err)
	l.lead(f)
}

// lead adds the kernel's default routes to VPP.
func (l *uplinkLab) lead(f uplinkFamily) {
	l.Helper()
	node0, err := netlink.LinkByName("node0")
	must.Succeed(l.T, err)
	index := node0.Attrs().Index
	reply, err := interfaces.NewServiceClient(l.conn).SwInterfaceGetMacAddress(l.Context(),
		&interfaces.SwInterfaceGetMacAddress{SwIfIndex: l.link})
	must.Succeed(l.T, err)
	gateway := f.kernelEnd.Next()
	must.Succeed(l.T,
		netlink.NeighSet(&netlink.Neigh{
			LinkIndex:    index,
			State:        netlink.NUD_PERMANENT,
			IP:           gateway.AsSlice(),
			HardwareAddr: reply.MacAddress[:],
		}))
	everything := netip.PrefixFrom(f.node, 0).Masked()
	must.Succeed(l.T,
		netlink.RouteAdd(&netlink.Route{
			LinkIndex: index,
			Dst:       ipNet(everything),
			Gw:        gateway.AsSlice(),
			Flags:     int(netlink.FLAG_ONLINK),
			Src:       f.node.AsSlice(),
		}))
}

func TestDataplaneServesTheNodesAddressByPunting(t *testing.T) {
	l := newUplinkLab(t)
	for _, f := range uplinkFamilies {
		t.Run(f.node.String(), func(t *testing.T) {
			l.serve(f)
			t.Run("peer pings node, the dataplane answers", func(t *testing.T) { reach(t, l.peer, f.node) })
			t.Run("node pings peer, the answer is punted", func(t *testing.T) { reach(t, "", f.peer) })
			t.Run("TCP of the peer", func(t *testing.T) { converse(t, l.peer, "", f.node) })
			t.Run("TCP of the node", func(t *testing.T) { converse(t, "", l.peer, f.peer) })
			for _, ttl := range []int{64, 1} {
				t.Run(fmt.Sprint("UDP of the peer, TTL ", ttl), func(t *testing.T) {
					datagram(t, way{l.peer, ""}, f.node, ttl)
				})
			}
			t.Run("UDP of the node", func(t *testing.T) { datagram(t, way{"", l.peer}, f.peer, 64) })
			t.Run("a closed port is refused by the node's kernel", func(t *testing.T) { refused(t, l.peer, f.node) })
			t.Run("a tunnel from the node's own address", func(t *testing.T) { l.tunnel(t, f) })
		})
	}
}

// tunnel connects a pod of the dataplane with a VXLAN device of the peer's kernel.
func (l *uplinkLab) tunnel(t *testing.T, f uplinkFamily) {
	t.Helper()
	number := uint32(77)
	if f.node.Is6() {
		number = 78
	}
	source, err := ip_types.ParseAddress(f.node.String())
	must.Succeed(t, err)
	destination, err := ip_types.ParseAddress(f.peer.String())
	must.Succeed(t, err)
	made, err := vxlan.NewServiceClient(l.conn).VxlanAddDelTunnelV3(t.Context(), &vxlan.VxlanAddDelTunnelV3{
		IsAdd:          true,
		Instance:       ^uint32(0),
		SrcAddress:     source,
		DstAddress:     destination,
		EncapVrfID:     2,
		Vni:            number,
		DecapNextIndex: ^uint32(0),
		McastSwIfIndex: ^interface_types.InterfaceIndex(0),
	})
	must.Succeed(t, err)
	pod := netnstest.New(t)
	name := fmt.Sprint("pod", number)
	fd, err := os.Open(pod)
	must.Succeed(t, err)
	defer fd.Close()
	veth := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: name},
		PeerName:      "eth0",
		PeerNamespace: netlink.NsFd(fd.Fd()),
	}
	must.Succeed(t, netlink.LinkAdd(veth))
	t.Cleanup(func() { _ = netlink.LinkDel(veth) })
	must.Succeed(t, netlink.LinkSetUp(veth))
	_, err = l2.NewServiceClient(l.conn).BridgeDomainAddDelV2(t.Context(), &l2.BridgeDomainAddDelV2{
		IsAdd: true, BdID: number, Flood: true, UuFlood: true, Forward: true, Learn: true,
	})
	must.Succeed(t, err)
	for _, member := range []interface_types.InterfaceIndex{made.SwIfIndex, l.take(name)} {
		_, err = l2.NewServiceClient(l.conn).SwInterfaceSetL2Bridge(t.Context(), &l2.SwInterfaceSetL2Bridge{
			RxSwIfIndex: member,
			BdID:        number,
			Enable:      true,
		})
		must.Succeed(t, err)
	}
	far := netip.AddrFrom4([4]byte{10, 99, byte(number), 2})
	netnstest.Do(t, pod, func() {
		eth0, err := netlink.LinkByName("eth0")
		must.Succeed(t, err)
		must.Succeed(t, netlink.LinkSetUp(eth0))
		l.address(eth0, netip.PrefixFrom(far, 24))
	})
	netnstest.Do(t, l.peer, func() {
		up, err := netlink.LinkByName("up0")
		must.Succeed(t, err)
		device := &netlink.Vxlan{
			LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprint("vxlan", number), MTU: 1400},
			VxlanId:   int(number),
			Port:      4789,
			Learning:  true,
			SrcAddr:   f.peer.AsSlice(), Group: f.node.AsSlice(), VtepDevIndex: up.Attrs().Index,
		}
		must.Succeed(t, netlink.LinkAdd(device))
		must.Succeed(t, netlink.LinkSetUp(device))
		l.address(device, netip.PrefixFrom(far.Prev(), 24))
	})
	reach(t, l.peer, far)
	reach(t, pod, far.Prev())
}

func reach(t *testing.T, from string, to netip.Addr) {
	t.Helper()
	p, err := ping.Open(from, to)
	must.Succeed(t, err)
	defer p.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := p.Reach(ctx, to); err != nil {
		t.Error(err)
	}
}

func within(t *testing.T, namespace string, f func()) {
	t.Helper()
	if namespace == "" {
		f()
		return
	}
	netnstest.Do(t, namespace, f)
}

// converse opens a TCP connection and sends some bytes both ways.
func converse(t *testing.T, from, at string, to netip.Addr) {
	t.Helper()
	var listener net.Listener
	within(t, at, func() {
		l, err := net.Listen("tcp", netip.AddrPortFrom(to, 7000).String())
		must.Succeed(t, err)
		listener = l
	})
	done := make(chan error, 1)
	go func() {
		c, err := listener.Accept()
		if err == nil {
			_, err = io.Copy(c, c)
			err = errors.Join(err, c.Close())
		}
		done <- err
	}()
	within(t, from, func() {
		c, err := net.DialTimeout("tcp", listener.Addr().String(), 20*time.Second)
		if err != nil {
			t.Error(err)
			_ = listener.Close()
			return
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		sent := make([]byte, 1<<20)
		go func() {
			_, _ = c.Write(sent)
			_ = c.(*net.TCPConn).CloseWrite()
		}()
		got, err := io.ReadAll(c)
		if len(got) != len(sent) || err != nil {
			t.Errorf("%d of %d bytes were echoed: %v", len(got), len(sent), err)
		}
		_ = c.Close()
	})
	if err := <-done; err != nil && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	_ = listener.Close()
}

// way is a direction from one namespace to another; "" is the test's.
type way struct{ from, at string }

// datagram sends a UDP datagram with a TTL.
func datagram(t *testing.T, w way, to netip.Addr, ttl int) {
	t.Helper()
	var in, out *net.UDPConn
	within(t, w.at, func() {
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 7001)))
		must.Succeed(t, err)
		in = c
	})
	defer in.Close()
	within(t, w.from, func() {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 7001)))
		must.Succeed(t, err)
		out = c
	})
	defer out.Close()
	if to.Is4() {
		must.Succeed(t, ipv4.NewConn(out).SetTTL(ttl))
	} else {
		must.Succeed(t, ipv6.NewConn(out).SetHopLimit(ttl))
	}
	_, err := out.Write([]byte("hello"))
	must.Succeed(t, err)
	must.Succeed(t, in.SetReadDeadline(time.Now().Add(10*time.Second)))
	if n, err := in.Read(make([]byte, 100)); n != 5 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// refused expects an ICMP port unreachable of the kernel.
func refused(t *testing.T, from string, to netip.Addr) {
	t.Helper()
	within(t, from, func() {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 7002)))
		must.Succeed(t, err)
		defer c.Close()
		_, err = c.Write([]byte("hello"))
		must.Succeed(t, err)
		must.Succeed(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
		if _, err := c.Read(make([]byte, 100)); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%v, want connection refused", err)
		}
	})
}
