package linux

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/wire"
)

// wiretap reads the frames that the host's end of a veth receives.
type wiretap struct {
	t  *testing.T
	fd int
}

func newWiretap(t *testing.T, link string) wiretap {
	t.Helper()
	all := networkOrder(unix.ETH_P_ALL)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all))
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	must(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: mustFind(t, link).Attrs().Index}))
	return wiretap{t, fd}
}

// announced reads frames until each address was announced from mac, or until the time is over, and returns the
// addresses that were.
func (w wiretap) announced(mac netaddr.MAC, want int, within time.Duration) (addresses []string) {
	w.t.Helper()
	frame := make([]byte, 2000)
	for end := time.Now().Add(within); len(addresses) < want && time.Now().Before(end); {
		n, _, err := unix.Recvfrom(w.fd, frame, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			<-time.After(time.Millisecond)
			continue
		}
		must(w.t, err)
		if address := announcedIn(frame[:n], mac); address != "" && !slices.Contains(addresses, address) {
			addresses = append(addresses, address)
		}
	}
	slices.Sort(addresses)
	return addresses
}

// announcedIn returns the address that a frame announces with a MAC; "" for any other frame.
func announcedIn(frame []byte, mac netaddr.MAC) string {
	packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	ethernet, _ := packet.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	if ethernet == nil || ethernet.SrcMAC.String() != mac.String() {
		return ""
	}
	if arp, is := packet.Layer(layers.LayerTypeARP).(*layers.ARP); is {
		isGratuitous := arp.Operation == layers.ARPRequest && slices.Equal(arp.SourceProtAddress, arp.DstProtAddress) &&
			ethernet.DstMAC.String() == "ff:ff:ff:ff:ff:ff" &&
			net.HardwareAddr(arp.SourceHwAddress).String() == mac.String()
		if isGratuitous {
			return net.IP(arp.SourceProtAddress).String()
		}
	}
	ip, _ := packet.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
	advert, is := packet.Layer(layers.LayerTypeICMPv6NeighborAdvertisement).(*layers.ICMPv6NeighborAdvertisement)
	isUnsolicited := is && ip.HopLimit == 255 && ip.DstIP.String() == "ff02::1" &&
		ethernet.DstMAC.String() == "33:33:00:00:00:01" &&
		advert.Override() && !advert.Solicited() && !advert.Router() && ip.SrcIP.Equal(advert.TargetAddress) &&
		len(advert.Options) == 1 && advert.Options[0].Type == layers.ICMPv6OptTargetAddress &&
		net.HardwareAddr(advert.Options[0].Data).String() == mac.String()
	if isUnsolicited {
		return advert.TargetAddress.String()
	}
	return ""
}

// announcedVeth returns a pod's veth with addresses on a layer 2 network.
func (l *lab) announcedVeth() (objects []object, member object) {
	l.Helper()
	on := wire.VethKey("pod-a")
	member = object{wire.BridgeMemberKey("pod-a"), wire.BridgeMember{Interface: "pod-a", BridgeDomain: "weft:blue"}}
	objects = []object{l.namespace(), l.veth(), member}
	for _, p := range []string{"10.1.0.7/24", "fd00::7/64"} {
		prefix := netip.MustParsePrefix(p)
		objects = append(objects,
			object{
				wire.LinuxAddressKey(on, prefix),
				wire.LinuxAddress{On: on, Namespace: l.path, Link: "eth1", Prefix: prefix},
			},
			object{
				wire.AnnouncementKey(on, prefix.Addr()),
				wire.Announcement{On: on, Namespace: l.path, Link: "eth1", Address: prefix.Addr(), Member: member.key},
			})
	}
	return objects, member
}

// Neighbours with an entry of an earlier pod learn the MAC of the new one.
func TestAddressesAreAnnouncedWhenTheirLinkJoinsTheNetwork(t *testing.T) {
	l := newLab(t)
	objects, member := l.announcedVeth()
	all := []string{"10.1.0.7", "fd00::7"}
	l.mustCommit(objects[0], objects[1])
	tap := newWiretap(t, hostEnd)
	l.mustCommit(objects...)
	if got := tap.announced(mac1, 2, 20*time.Second); !slices.Equal(got, all) {
		t.Errorf("announced %v, want %v", got, all)
	}
	l.quiet()
	l.resync()
	if got := tap.announced(mac1, 1, 300*time.Millisecond); len(got) > 0 {
		t.Errorf("%v announced again, although nothing changed", got)
	}
	moved := member.value.(wire.BridgeMember)
	moved.BridgeDomain = "weft:red"
	l.mustCommit(object{member.key, moved})
	if got := tap.announced(mac1, 2, 20*time.Second); !slices.Equal(got, all) {
		t.Errorf("after the link joined another network: announced %v, want %v", got, all)
	}
	must(t, netlink.LinkDel(mustFind(t, hostEnd)))
	l.resync()
	l.quiet()
}

// An advertisement has its address as source: the kernel sends none before the pod has the address.
func TestAddressesAreAnnouncedWhenTheirLinkIsMadeInTheNetwork(t *testing.T) {
	l := newLab(t)
	objects, _ := l.announcedVeth()
	l.mustCommit(objects...)
	must(t, netlink.LinkDel(mustFind(t, hostEnd)))
	l.resync()
	if n := l.unannounced.Load(); n > 0 {
		t.Errorf("%d addresses not announced", n)
	}
	l.quiet()
}

// A pod that set its link down keeps neither an ADD nor a repair from its end.
func TestAnnouncementFromALinkThatIsDownIsNoError(t *testing.T) {
	l := newLab(t)
	objects, _ := l.announcedVeth()
	down := l.veth(func(v *wire.Veth) { v.Up = false })
	objects[1] = down
	l.mustCommit(objects...)
}

func TestInvalidAnnouncementsAreRefused(t *testing.T) {
	valid := wire.Announcement{
		On:        on,
		Namespace: "/run/netns/a",
		Link:      "eth0",
		Address:   netip.MustParseAddr("10.1.0.7"),
		Member:    wire.BridgeMemberKey("a"),
	}
	if err := validateAnnouncement(nameOf(valid), valid); err != nil {
		t.Errorf("a valid one: %v", err)
	}
	for name, change := range map[string]func(*wire.Announcement){
		"no address":        func(v *wire.Announcement) { v.Address = netip.Addr{} },
		"multicast address": func(v *wire.Announcement) { v.Address = netip.MustParseAddr("ff02::1") },
		"address with zone": func(v *wire.Announcement) { v.Address = netip.MustParseAddr("fe80::1%eth0") },
		"of the node":       func(v *wire.Announcement) { v.Namespace = "" },
		"no member":         func(v *wire.Announcement) { v.Member = "" },
		"no link":           func(v *wire.Announcement) { v.Link = "" },
		"no object":         func(v *wire.Announcement) { v.On = "" },
	} {
		v := valid
		change(&v)
		if err := validateAnnouncement(nameOf(v), v); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func nameOf(v wire.Announcement) string { return parseRef(wire.AnnouncementKey(v.On, v.Address)).Name }
