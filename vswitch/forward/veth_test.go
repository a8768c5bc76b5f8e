package forward_test

import (
	"fmt"
	"net/netip"
	"os"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

// cable configures a pod's veth pair and its AF_PACKET port.
type cable struct {
	mtu          int  // of both ends; 0: 1500
	noOffload    bool // both ends have no offloads
	noTxOffload  bool // the port has no transmit offloads
	qdisc        bool // frames pass the queueing discipline
	noPodOffload bool // only the pod's end has no offloads
	sctpChecksum bool // the pod's end leaves the CRC of SCTP to the dataplane
	everything   bool // the pod's end has the kernel's offloads, also those that the agent turns off
}

// vethPod adds a pod with one end of a veth pair; the other end is in the dataplane's namespace.
func (l *lab) vethPod(c cable) *pod {
	l.t.Helper()
	n := len(l.pods) + 1
	p := &pod{
		index: uint32(n), namespace: netnstest.New(l.t), static: true, mtu: c.mtu,
		v4: netip.AddrFrom4([4]byte{10, 1, 1, byte(n)}), v6: netip.MustParseAddr(fmt.Sprintf("fd00::%d", n)),
	}
	p.info = port.TapInfo{Name: "eth0", HostMAC: frame.MAC{2, 0, 0, 0, 1, byte(n)}}
	l.addVethPair(p, c)
	_, err := l.engine.OpenAFPacket(p.index, port.AFPacketConfig{
		Name: p.hostEnd(), Offload: !c.noTxOffload, QdiscBypass: !c.qdisc, SetUp: true,
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.pods = append(l.pods, p)
	l.configure(p)
	return p
}

func (p *pod) hostEnd() string { return fmt.Sprintf("weft%d", p.index) }

// addVethPair creates the pair, and adds the addresses of the pod's end.
func (l *lab) addVethPair(p *pod, c cable) {
	t := l.t
	t.Helper()
	there, err := os.Open(p.namespace)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	if c.mtu == 0 {
		c.mtu = 1500
	}
	pair := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: p.hostEnd(), MTU: c.mtu},
		PeerName:      p.info.Name,
		PeerMTU:       uint32(c.mtu),
		PeerNamespace: netlink.NsFd(int(there.Fd())), PeerHardwareAddr: p.info.HostMAC.HardwareAddr(),
	}
	if err := netlink.LinkAdd(pair); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(pair) })
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+p.hostEnd()+"/disable_ipv6", []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c.noOffload {
		offloadsOff(t, p.hostEnd())
	}
	netnstest.Do(t, p.namespace, func() {
		link, err := netlink.LinkByName(p.info.Name)
		if err != nil {
			t.Fatal(err)
		}
		p.info.Ifindex = link.Attrs().Index
		if c.noOffload || c.noPodOffload {
			offloadsOff(t, p.info.Name)
		}
		if !c.everything {
			asTheAgentDoes(t, p.info.Name, c.sctpChecksum)
		}
		for _, a := range []netip.Addr{p.v4, p.v6} {
			own := &netlink.Addr{IPNet: network(netaddr.Single(a)), Flags: unix.IFA_F_NODAD}
			if err := netlink.AddrAdd(link, own); err != nil {
				t.Fatal(err)
			}
		}
		if err := netlink.LinkSetUp(link); err != nil {
			t.Fatal(err)
		}
	})
}

// offloadsOff does what ethtool -K <link> tso off gso off tx off gro off does.
func offloadsOff(t testing.TB, link string) {
	t.Helper()
	const (
		setTxChecksum = 0x17
		setTSO        = 0x1f
		setGSO        = 0x24
		setGRO        = 0x2c
	)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, command := range []uint32{setTSO, setGSO, setTxChecksum, setGRO} {
		value := [2]uint32{command, 0}
		request := struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte
		}{data: unsafe.Pointer(&value)}
		copy(request.name[:], link)
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
			uintptr(unsafe.Pointer(&request))); errno != 0 {
			t.Fatalf("%s: ethtool command %#x: %v", link, command, errno)
		}
	}
}
