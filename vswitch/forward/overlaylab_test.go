package forward_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/memif/kerneltap"
	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// asTheAgentDoes turns off the offloads of a pod's end that a packet socket does not express (dataplane/linux).
func asTheAgentDoes(t testing.TB, link string, butCRC bool) {
	t.Helper()
	tool, err := ethtool.NewEthtool()
	if err != nil {
		t.Fatal(err)
	}
	defer tool.Close()
	now, err := tool.Features(link)
	if err != nil {
		t.Fatal(err)
	}
	off := map[string]bool{}
	for name, on := range now {
		if on &&
			(strings.HasSuffix(name, "-segmentation") && !strings.HasPrefix(name, "tx-tcp") ||
				strings.HasPrefix(name, "tx-gso-") ||
				name == "tx-checksum-sctp" && !butCRC) {
			off[name] = false
		}
	}
	if err := tool.Change(link, off); err != nil {
		t.Fatal(err)
	}
}

// memifPod adds a pod whose kernel uses a memif by a tap of its own. The dataplane leaves it nothing to complete.
func (l *lab) memifPod(change ...func(*pod)) *pod {
	t := l.t
	t.Helper()
	n := len(l.pods) + 1
	p := &pod{
		index: uint32(n), namespace: netnstest.New(t), static: true,
		v4: netip.AddrFrom4([4]byte{10, 1, 1, byte(n)}), v6: netip.MustParseAddr(fmt.Sprintf("fd00::%d", n)),
	}
	for _, f := range change {
		f(p)
	}
	p.info = port.TapInfo{Name: "eth0", HostMAC: frame.MAC{2, 0, 0, 0, 1, byte(n)}}
	mtu := cmp.Or(p.mtu, 1500)
	d := memif.Description{Name: "eth0", Mode: memif.Ethernet, MAC: p.info.HostMAC.HardwareAddr(), MTU: mtu,
		Addresses: []netip.Prefix{netip.PrefixFrom(p.v4, 32), netip.PrefixFrom(p.v6, 128)}}
	socket := filepath.Join(t.TempDir(), "memif.sock")
	if err := l.engine.OpenMemif(p.index, port.MemifConfig{Socket: socket}); err != nil {
		t.Fatal(err)
	}
	var tap *kerneltap.Tap
	netnstest.Do(t, p.namespace, func() {
		var err error
		if tap, err = kerneltap.New(d); err != nil {
			t.Fatal(err)
		}
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		p.info.Ifindex = link.Attrs().Index
	})
	ctx, cancel := context.WithCancel(context.Background())
	client, err := memif.Dial(ctx, memif.ClientConfig{Socket: socket}, memif.ClientEvents{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tap.Forward(ctx, client)
	}()
	t.Cleanup(func() {
		cancel()
		_ = tap.Close()
		<-ended
		_ = client.Close()
	})
	l.pods = append(l.pods, p)
	l.configure(p)
	return p
}

// Interfaces of a node beside its pods.
const (
	nodeUplink = 20
	nodeTunnel = 21
	nodeBVI    = 22
)

// nodes returns the labs of two nodes that are joined by a tunnel of the dataplane. Pod 1 is the first one of the first
// node, pod 2 that of the second.
func nodes(t *testing.T) (first, second *lab) { t.Helper(); return nodesOf(t, 1600, 1500) }

// nodesOf is nodes with the MTU of the wire, and that of the tunnel's frames.
func nodesOf(t *testing.T, wire, inner int) (first, second *lab) {
	t.Helper()
	first = newLab(t)
	second = newLab(t)
	second.pods = []*pod{nil}
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "wire1", MTU: wire}, PeerName: "wire2",
		PeerMTU: uint32(wire)}
	if err := netlink.LinkAdd(pair); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(pair) })
	for n, l := range []*lab{first, second} {
		l.join(byte(n+1), byte(2-n), wire, inner)
	}
	return first, second
}

// join gives a node a tunnel to a peer, and routes to the peer's pod.
func (l *lab) join(self, peer byte, wire, inner int) {
	l.t.Helper()
	e := l.engine
	ok := func(err error) {
		l.t.Helper()
		if err != nil {
			l.t.Fatal(err)
		}
	}
	end := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, n}) }
	mac := func(kind, n byte) frame.MAC { return frame.MAC{2, 0, 0, 7, kind, n} }
	inner4 := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 255, 0, n}) }
	inner6 := func(n byte) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("fdff::%d", n)) }
	_, err := e.OpenAFPacket(nodeUplink, port.AFPacketConfig{
		Name:    fmt.Sprintf("wire%d", self),
		Offload: true,
		SetUp:   true,
	})
	ok(err)
	ok(e.SetInterface(nodeUplink, forward.Interface{
		Up:        true,
		MTU:       wire,
		MAC:       mac(1, self),
		Addresses: []netip.Addr{end(self)},
	}))
	table := forward.TableKey{Family: forward.IP4}
	ok(e.SetRoute(table, netip.PrefixFrom(end(self), 32), forward.Route{Action: forward.Local}))
	route := forward.Route{Paths: []forward.Path{{Interface: nodeUplink}}}
	ok(e.SetRoute(table, netip.PrefixFrom(end(peer), 32), route))
	ok(e.SetNeighbour(nodeUplink, end(peer), mac(1, peer), true))
	ok(e.SetInterface(nodeTunnel, forward.Interface{Up: true, MTU: inner, MAC: mac(2, self), Tunnel: &forward.Tunnel{
		Source: netip.AddrPortFrom(end(self), 4789), Destination: netip.AddrPortFrom(end(peer), 4789), VNI: 7}}))
	ok(e.SetInterface(nodeBVI, forward.Interface{Up: true, MTU: inner, MAC: mac(3, self), IP6Enabled: true,
		Addresses: []netip.Addr{inner4(self), inner6(self)}, LinkLocal: netip.MustParseAddr("fe80::b")}))
	ok(e.SetBridge(forward.Bridge{ID: 1, Learn: true, Forward: true, Flood: true, UUFlood: true, BVI: nodeBVI,
		Members: []forward.BridgeMember{{Interface: nodeTunnel, SplitHorizon: 1}},
		Configured: []forward.ConfiguredMAC{{MAC: mac(3, self), Interface: nodeBVI, Static: true},
			{MAC: mac(3, peer), Interface: nodeTunnel, Static: true}}}))
	for pod, next := range map[netip.Addr]netip.Addr{netip.AddrFrom4([4]byte{10, 1, 1, peer}): inner4(peer),
		netip.MustParseAddr(fmt.Sprintf("fd00::%d", peer)): inner6(peer)} {
		ok(e.SetNeighbour(nodeBVI, next, mac(3, peer), true))
		ok(e.SetRoute(forward.TableKey{Family: forward.FamilyOf(pod)}, netaddr.Single(pod),
			forward.Route{Paths: []forward.Path{{Interface: nodeBVI, NextHop: next}}}))
	}
	e.Publish()
}

// overlay is a kind of tunnels that pods make themselves.
type overlay struct {
	name string
	link func(local, remote *pod) netlink.Link
	fou  int // 0: none; else the kernel's type of what UDP carries
}

func overlays() []overlay {
	attrs := netlink.LinkAttrs{Name: "over0", MTU: 1380}
	vxlan := func(checksum bool) func(a, b *pod) netlink.Link {
		return func(a, b *pod) netlink.Link {
			return &netlink.Vxlan{
				LinkAttrs: attrs,
				VxlanId:   9,
				SrcAddr:   a.v4.AsSlice(),
				Group:     b.v4.AsSlice(),
				Port:      8472,
				UDPCSum:   checksum,
			}
		}
	}
	ipip := func(encap int) func(a, b *pod) netlink.Link {
		return func(a, b *pod) netlink.Link {
			l := &netlink.Iptun{LinkAttrs: attrs, Local: a.v4.AsSlice(), Remote: b.v4.AsSlice(), PMtuDisc: 1}
			if encap != 0 {
				l.EncapType = uint16(encap)
				l.EncapSport = 5555
				l.EncapDport = fouPort
			}
			return l
		}
	}
	return []overlay{
		{"VXLAN", vxlan(false), 0},
		{"VXLAN with checksums", vxlan(true), 0},
		{"VXLAN over IPv6", func(a, b *pod) netlink.Link {
			return &netlink.Vxlan{
				LinkAttrs: attrs,
				VxlanId:   9,
				SrcAddr:   a.v6.AsSlice(),
				Group:     b.v6.AsSlice(),
				Port:      8472,
			}
		}, 0},
		{"GENEVE", func(_, b *pod) netlink.Link {
			return &netlink.Geneve{LinkAttrs: attrs, ID: 9, Remote: b.v4.AsSlice(), Dport: 6081, UdpCsum: 1}
		}, 0},
		{"IPIP", ipip(0), 0},
		{"IPv4 in IPv6", func(a, b *pod) netlink.Link {
			return &netlink.Ip6tnl{LinkAttrs: attrs, Local: a.v6.AsSlice(), Remote: b.v6.AsSlice(), Proto: 4, Ttl: 64}
		}, 0},
		{"GRE", func(a, b *pod) netlink.Link {
			return &netlink.Gretun{LinkAttrs: attrs, Local: a.v4.AsSlice(), Remote: b.v4.AsSlice(), PMtuDisc: 1}
		}, 0},
		{"GRE with checksums", func(a, b *pod) netlink.Link {
			return &netlink.Gretun{
				LinkAttrs: attrs,
				Local:     a.v4.AsSlice(),
				Remote:    b.v4.AsSlice(),
				PMtuDisc:  1,
				IFlags:    greCSum,
				OFlags:    greCSum,
			}
		}, 0},
		{"FOU", ipip(fouDirect), fouDirect},
		{"GUE", ipip(fouGUE), fouGUE},
	}
}

// Values of the kernel's TUNNEL_ENCAP_* and GRE_CSUM.
const (
	fouPort   = 5556
	fouDirect = 1
	fouGUE    = 2
	greCSum   = 0x8000
)

// tunnel gives two pods a tunnel of a kind. The test skips if the kernel has no such tunnels. The addresses in it are
// 10.77.0.1 and 10.77.0.2.
func (o overlay) tunnel(t *testing.T, a, b *pod) {
	t.Helper()
	for n, ends := range [][2]*pod{{a, b}, {b, a}} {
		var err error
		netnstest.Do(t, ends[0].namespace, func() { err = o.end(n+1, ends) })
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) {
			t.Skipf("this kernel has no %s: %v", o.name, err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// end makes an end of the tunnel in the thread's namespace.
func (o overlay) end(n int, ends [2]*pod) error {
	if o.fou != 0 {
		carried := []string{"gue"}
		if o.fou == fouDirect {
			carried = []string{"ipproto", "4"}
		}
		// The netlink library cannot add a port of GUE. iproute2 tells why it failed in words only.
		command := exec.Command("ip", append([]string{"fou", "add", "port", strconv.Itoa(fouPort)}, carried...)...)
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: ip fou: %s", unix.ENOENT, out)
		}
	}
	link := o.link(ends[0], ends[1])
	if err := netlink.LinkAdd(link); err != nil {
		return err
	}
	own := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 77, 0, byte(n)).To4(), Mask: net.CIDRMask(24, 32)}}
	if err := netlink.AddrAdd(link, own); err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}
