package linux

import (
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/k8s/k8stest"
)

func TestKernelForgetsTheMTUOfAPath(t *testing.T) {
	far := netnstest.New(t)
	f, err := os.Open(far)
	must(t, err)
	defer f.Close()
	card := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: "near"},
		PeerName:      "far",
		PeerNamespace: netlink.NsFd(f.Fd()),
	}
	must(t, netlink.LinkAdd(card))
	t.Cleanup(func() { must(t, netlink.LinkDel(card)) })
	here := netip.MustParseAddr("2001:db8::1")
	there := netip.MustParseAddr("2001:db8::2")
	up := func(name string, a netip.Addr) {
		l, err := netlink.LinkByName(name)
		must(t, err)
		must(t, netlink.AddrAdd(l, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(a, 64)), Flags: unix.IFA_F_NODAD}))
		must(t, netlink.LinkSetUp(l))
	}
	up("near", here)
	netnstest.Do(t, far, func() { up("far", there) })
	mtu := func() int {
		routes, err := netlink.RouteGet(there.AsSlice())
		must(t, err)
		return routes[0].MTU
	}
	must(t, ForgetPathMTU(there)) // nothing is known
	packet := make([]byte, 48)    // an echo request from here, which the error quotes
	packet[0] = 6 << 4
	packet[5] = 8
	packet[6] = unix.IPPROTO_ICMPV6
	packet[40] = byte(ipv6.ICMPTypeEchoRequest)
	copy(packet[8:], here.AsSlice())
	copy(packet[24:], there.AsSlice())
	raw, err := (&icmp.Message{
		Type: ipv6.ICMPTypePacketTooBig,
		Body: &icmp.PacketTooBig{MTU: 1400, Data: packet},
	}).Marshal(nil)
	must(t, err)
	var c net.PacketConn
	netnstest.Do(t, far, func() {
		c, err = net.ListenPacket("ip6:ipv6-icmp", there.String())
		must(t, err)
	})
	defer c.Close()
	k8stest.Eventually(t, "the kernel learns the MTU", func() bool {
		_, err := c.WriteTo(raw, &net.IPAddr{IP: here.AsSlice()})
		must(t, err)
		return mtu() == 1400
	})
	must(t, ForgetPathMTU(there))
	if got := mtu(); got != 0 {
		t.Errorf("the kernel still knows an MTU of %d", got)
	}
}
