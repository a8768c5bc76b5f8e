package linux

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/neighbour"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// announcementDescriptor describes announcements of addresses, which the kernel does not remember. One counts as sent
// while the link is where the ADD put it. The pod has the address before: it is made in the same level of a plan or in
// an earlier one, and a level makes kinds in the order of their names.
func announcementDescriptor(o Options) kvscheduler.Descriptor[wire.Announcement, netnsID] {
	at := func(v wire.Announcement) (on, namespace string) { return v.On, v.Namespace }
	d := onLink(kvscheduler.Follow, at, namespaced[wire.Announcement]{
		kind:   wire.KindAnnouncement,
		put:    announcer{o.Unannounced}.announce,
		remove: func(*handle, wire.Announcement) error { return nil }, // it was sent
		find: func(h *handle, v wire.Announcement) (wire.Announcement, bool, error) {
			_, err := h.link(v.Link)
			return v, err == nil, err
		},
		link: func(v wire.Announcement) string { return v.Link },

		needsIPv6: func(v wire.Announcement) bool { return v.Address.Is6() },
		overfull:  o.Overfull,
	})
	d.Validate = validateAnnouncement
	d.Recreate = always
	onLink := d.Deps
	d.Deps = func(name string, v wire.Announcement) []kvscheduler.Dep {
		member := kvscheduler.Dep{Label: "place in the network", On: parseRef(v.Member), Mode: kvscheduler.Follow}
		return append(onLink(name, v), member)
	}
	return d
}

func validateAnnouncement(name string, v wire.Announcement) error {
	if !v.Address.IsValid() || v.Address.Is4In6() || v.Address.IsUnspecified() || v.Address.IsMulticast() ||
		v.Address.Zone() != "" {
		return fmt.Errorf("address %s is not a unicast address without zone", v.Address)
	}
	if v.Namespace == "" {
		return errors.New("only addresses of pods are announced")
	}
	if _, err := kvscheduler.ParseRef(v.Member); err != nil {
		return fmt.Errorf("key of the place in the network: %w", err)
	}
	return validateOn(v.On, v.Link, name, wire.AnnouncementKey(v.On, v.Address))
}

// announcer sends announcements.
type announcer struct {
	unannounced func(wire.Announcement, error) // see Options.Unannounced
}

// announce sends an announcement. If it cannot be sent, because the link is down, a filter of the pod drops it or the
// agent lacks CAP_NET_RAW, the pod works without it: its neighbours learn its MAC later.
func (a announcer) announce(h *handle, v wire.Announcement) error {
	l, err := h.link(v.Link)
	if err != nil {
		return refused(err)
	}
	send := sendARP
	if v.Address.Is6() {
		send = sendAdvertisement
	}
	if err := send(l, v); err != nil && a.unannounced != nil {
		a.unannounced(v, err)
	}
	return nil
}

// sendARP sends a gratuitous ARP request: sender and target are the address (RFC 5227, section 3).
func sendARP(l netlink.Link, v wire.Announcement) error {
	mac := macOf(l)
	packet := neighbour.GratuitousARP(mac, v.Address)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer closeLater(fd)
	to := unix.SockaddrLinklayer{
		Protocol: networkOrder(unix.ETH_P_ARP),
		Ifindex:  l.Attrs().Index,
		Halen:    uint8(len(mac)),
	}
	copy(to.Addr[:], neighbour.Broadcast[:])
	return unix.Sendto(fd, packet, unix.MSG_DONTWAIT, &to)
}

// closings has a token for each packet socket that is being closed.
var closings = make(chan struct{}, 32)

// closeLater closes a packet socket on another thread, since the kernel waits some 15 ms for readers of its lists (an
// RCU grace period). At most as many threads as there are tokens do that.
func closeLater(fd int) {
	closings <- struct{}{}
	go func() {
		_ = unix.Close(fd)
		<-closings
	}()
}

// networkOrder returns n with its bytes in network order, as the kernel wants it in an address.
func networkOrder(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}

// sendAdvertisement sends an unsolicited neighbour advertisement to all nodes (RFC 4861, section 7.2.6). The kernel
// adds the checksum.
func sendAdvertisement(l netlink.Link, v wire.Announcement) error {
	mac := macOf(l)
	message := neighbour.Advertisement(mac, v.Address)
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	index := l.Attrs().Index
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, index),
		unix.Bind(fd, &unix.SockaddrInet6{Addr: v.Address.As16()}),
	)
	if err != nil {
		return err
	}
	to := unix.SockaddrInet6{Addr: neighbour.AllNodes().As16(), ZoneId: uint32(index)}
	return unix.Sendto(fd, message, unix.MSG_DONTWAIT, &to)
}
