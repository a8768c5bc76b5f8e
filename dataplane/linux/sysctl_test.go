package linux

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/wire"
)

// readSetting reads a setting in the calling thread's namespace; "" if it does not exist.
func readSetting(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/net/" + name)
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	must(t, err)
	return strings.TrimSpace(string(text))
}

func (l *lab) mustBeHardened(link string) {
	l.Helper()
	l.inside(func() {
		for _, name := range []string{
			"ipv6/conf/" + link + "/accept_ra", "ipv6/conf/" + link + "/autoconf",
			"ipv6/conf/" + link + "/accept_redirects",
			"ipv4/conf/" + link + "/accept_redirects", "ipv4/conf/all/accept_redirects",
		} {
			if is := readSetting(l.T, name); is != "0" {
				l.Errorf("%s is %q", name, is)
			}
		}
	})
}

// Links are hardened with and without addresses, before they are up.
func TestLinuxEndsAreHardenedBeforeTheyAreUp(t *testing.T) {
	l := newLab(t)
	// other tests enable forwarding, which clears it
	must(t, os.WriteFile("/proc/sys/net/ipv4/conf/all/accept_redirects", []byte("1"), 0))
	l.inside(func() {
		if readSetting(t, "ipv6/conf/eth0/accept_ra") != "1" ||
			readSetting(t, "ipv4/conf/all/accept_redirects") != "1" {
			t.Fatal("the kernel's defaults are hardened already")
		}
	})
	peer := l.peer()
	peer.Up = false
	l.mustCommit(l.namespace(), object{wire.InterfaceKey("tap-a"), wire.Interface{Type: wire.TypeTap}},
		l.peerObject(peer),
		l.veth(func(v *wire.Veth) { v.Up = false }))
	l.mustBeHardened("eth0")
	l.mustBeHardened("eth1")
	if all := readSetting(t, "ipv4/conf/all/accept_redirects"); all != "1" {
		t.Errorf("in the node's namespace all/accept_redirects is %q", all)
	}
}

// A link with an MTU below 1280 has no IPv6 settings, nor has any link without IPv6.
func TestALinkWithoutIPv6IsHardenedForIPv4(t *testing.T) {
	l := newLab(t)
	on := wire.VethKey("pod-a")
	l.mustCommit(l.namespace(), l.veth(func(v *wire.Veth) { v.MTU = 1000 }),
		object{wire.HardeningKey(on), wire.Hardening{On: on, Namespace: l.path, Link: "eth1"}})
	l.quiet()
	l.inside(func() {
		if is := readSetting(t, "ipv6/conf/eth1/accept_ra"); is != "" {
			t.Errorf("the link has IPv6, accept_ra is %q", is)
		}
		if is := readSetting(t, "ipv4/conf/eth1/accept_redirects"); is != "0" {
			t.Errorf("accept_redirects of IPv4 is %q", is)
		}
	})
	l.mustCommit(l.veth())
	l.mustBeHardened("eth1")
	l.quiet()
}

// Finding 7 of issue 12: a pod on a link without an IPv6 address took addresses and a default route from a neighbour.
func TestPodIgnoresRouterAdvertisements(t *testing.T) {
	l := newLab(t)
	l.mustCommit(l.namespace(), l.veth())
	neighbour := packetSocket(t, hostEnd)
	var pod int
	l.inside(func() { pod = packetSocket(t, "eth1") })
	control := slices.Concat(mac1[:], mac2[:], []byte{0x88, 0xb5}, make([]byte, 46))
	l.send(neighbour, advertisement(mac2), control)
	awaitFrame(t, pod, 0x88b5) // the kernel has processed earlier frames
	l.inside(func() {
		link := mustFind(t, "eth1")
		routes, err := retryDump(func() ([]netlink.Route, error) { return netlink.RouteList(link, netlink.FAMILY_V6) })
		must(t, err)
		for _, r := range routes {
			if r.Gw != nil || r.Dst == nil || r.Dst.IP.Equal(advertised.AsSlice()) {
				t.Errorf("the pod has the route %s", r)
			}
		}
		addresses, err := retryDump(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_V6) })
		must(t, err)
		for _, a := range addresses {
			if !a.IP.IsLinkLocalUnicast() {
				t.Errorf("the pod has the address %s", a)
			}
		}
	})
}

var advertised = netip.MustParseAddr("2001:db8:bad::")

// advertisement is a frame with a router advertisement of a default router with a prefix (RFC 4861, 4.2).
func advertisement(from netaddr.MAC) []byte {
	source := netip.MustParseAddr("fe80::bad")
	all := netip.MustParseAddr("ff02::1")
	prefix := append([]byte{3, 4, 64, 0xc0, 0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff, 0, 0, 0, 0}, advertised.AsSlice()...)
	message := slices.Concat([]byte{134, 0, 0, 0, 64, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0}, prefix)
	pseudo := slices.Concat(source.AsSlice(), all.AsSlice(),
		[]byte{0, 0, 0, byte(len(message)), 0, 0, 0, unix.IPPROTO_ICMPV6}, message)
	sum := uint32(0)
	for i := 0; i < len(pseudo); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(pseudo[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(message[2:], ^uint16(sum))
	header := slices.Concat([]byte{0x60, 0, 0, 0, 0, byte(len(message)), unix.IPPROTO_ICMPV6, 255}, source.AsSlice(),
		all.AsSlice())
	return slices.Concat([]byte{0x33, 0x33, 0, 0, 0, 1}, from[:], []byte{0x86, 0xdd}, header, message)
}

// packetSocket sends and receives frames on a link in the calling thread's namespace.
func packetSocket(t *testing.T, link string) int {
	t.Helper()
	const everything = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, everything)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	must(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: everything, Ifindex: mustFind(t, link).Attrs().Index}))
	must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20}))
	return fd
}

func (l *lab) send(fd int, frames ...[]byte) {
	l.Helper()
	for _, f := range frames {
		_, err := unix.Write(fd, f)
		must(l.T, err)
	}
}

func awaitFrame(t *testing.T, fd int, kind uint16) {
	t.Helper()
	raw := make([]byte, 2000)
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		n, err := unix.Read(fd, raw)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		must(t, err)
		if n >= 14 && binary.BigEndian.Uint16(raw[12:]) == kind {
			return
		}
	}
	t.Fatalf("no frame of type %#x came", kind)
}

// The node keeps addresses from router advertisements when it enables forwarding. Links that ignore them still do.
func TestForwardingKeepsRouterAdvertisements(t *testing.T) {
	l := newLab(t)
	const conf = "/proc/sys/net/ipv6/conf/"
	l.inside(func() {
		for i, name := range []string{"eth8", "eth9"} {
			addDummy(t, name)
			must(t, os.WriteFile(conf+name+"/accept_ra", []byte([]string{"1", "0"}[i]), 0))
		}
	})
	l.mustCommit(append(l.ground(), l.sysctl(forwarding6, "1"), l.sysctl("net/ipv4/ip_forward", "1"))...)
	l.quiet()
	l.inside(func() {
		for file, want := range map[string]string{
			"all/forwarding":    "1",
			"eth8/accept_ra":    "2",
			"eth9/accept_ra":    "0",
			"default/accept_ra": "1",
		} {
			if text, err := os.ReadFile(conf + file); err != nil || strings.TrimSpace(string(text)) != want {
				t.Errorf("%s is %s, want %s (%v)", file, text, want, err)
			}
		}
		must(t, os.WriteFile(conf+"all/forwarding", []byte("0"), 0))
	})
	if got := l.different(); len(got) != 1 || !strings.HasSuffix(got[0], "/"+forwarding6) {
		t.Errorf("objects %v differ", got)
	}
	l.resync()
	l.quiet()
}

// The kernel sets the forwarding of all links with that of the node. It must not forward packets that these links
// receive, also after another program turned forwarding off and Weft repaired that.
func TestForwardingOfTheNodeDoesNotReachTheDataplanesLinks(t *testing.T) {
	l := newLab(t)
	must(t, os.WriteFile("/proc/sys/"+forwarding4, []byte("0"), 0))
	t.Cleanup(func() { _ = os.WriteFile("/proc/sys/"+forwarding4, []byte("0"), 0) })
	l.mustCommit(append(l.ground(), l.veth())...)
	forwards := func(when, all string) {
		t.Helper()
		if got := readSetting(t, "ipv4/ip_forward"); got != all {
			t.Errorf("%s: forwarding of the node is %s", when, got)
		}
		if got := readSetting(t, "ipv4/conf/"+hostEnd+"/forwarding"); got != "0" {
			t.Errorf("%s: forwarding of the host's end is %s", when, got)
		}
	}
	on := wire.VethKey("pod-a")
	l.mustCommit(object{wire.SysctlKey(on, forwarding4), wire.Sysctl{On: on, Name: forwarding4, Value: "1"}})
	forwards("turned on", "1")
	must(t, os.WriteFile("/proc/sys/"+forwarding4, []byte("0"), 0))
	l.resync()
	forwards("repaired", "1")
	l.quiet()
}
