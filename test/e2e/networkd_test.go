package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/test/e2e/cluster"
)

const routesProtocol = 201 // of the agent's routes in the kernel

// networkdScript runs systemd-networkd as on a machine without udev, which a read-only /sys means to it.
const networkdScript = `grep -q ^systemd-network: /etc/passwd || echo systemd-network:x:998:998::/:/usr/sbin/nologin >>/etc/passwd
mkdir -p /run/systemd
exec unshare --mount /bin/sh -ec 'mount --bind /sys /sys; mount -o remount,bind,ro /sys; exec /usr/lib/systemd/systemd-networkd'`

// cardOfNetworkd is the node's card. allOfNetworkd takes all other links, also those of Weft, and removes from them
// what it did not configure: the setting is common, and not what docs/networking.md recommends.
const (
	cardOfNetworkd = "[Match]\nName=%s\n[Network]\nKeepConfiguration=yes\n"
	allOfNetworkd  = "[Match]\nName=*\n[Network]\nDHCP=yes\n"
)

// routesOfWeft returns the routes that the agent made on a node, sorted.
func (s *space) routesOfWeft(node string) (routes []string) {
	s.t.Helper()
	s.must(s.c.Node(node).Do(func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		names := make(map[int]string)
		for _, l := range links {
			names[l.Attrs().Index] = l.Attrs().Name
		}
		list, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: routesProtocol},
			netlink.RT_FILTER_PROTOCOL)
		for _, r := range list {
			routes = append(routes, fmt.Sprintf("%s via %s dev %s", r.Dst, r.Gw, names[r.LinkIndex]))
		}
		return err
	}))
	slices.Sort(routes)
	return routes
}

// systemd-networkd removes routes and addresses of its links that are not in its files, of other programs too
// (ManageForeignRoutes).
func TestPodsReachEachOtherBesideNetworkd(t *testing.T) {
	needWeft(t)
	s := newSpace(t)
	client, server := s.pair("n2", "n1")
	n := s.c.Node("n1")
	s.unpack("n1", "systemd")
	s.unpack("n1", "dbus-daemon")
	s.needPrograms("n1", "/usr/bin/dbus-daemon", "/usr/lib/systemd/systemd-networkd", "/usr/bin/networkctl")
	s.startBus("n1")
	var card string
	s.must(n.Do(func() (err error) { card, err = linkOf(n.Addresses[0]); return err }))
	s.must(n.Write("/etc/systemd/network/10-card.network", fmt.Appendf(nil, cardOfNetworkd, card), 0o644))
	s.must(n.Write("/etc/systemd/network/90-all.network", []byte(allOfNetworkd), 0o644))
	before := s.routesOfWeft("n1")
	foreign := net.IPNet{IP: net.IPv4(198, 51, 100, 0), Mask: net.CIDRMask(24, 32)}
	for round := range 2 {
		networkd := n.Service(fmt.Sprint("networkd-", round), "/bin/sh", "-ec", networkdScript)
		s.must(networkd.Start())
		t.Cleanup(func() { _ = networkd.Stop(context.Background()) }) // it may have ended
		s.must(n.Do(func() error {
			l, err := netlink.LinkByName("weft0")
			if err != nil {
				return err
			}
			return netlink.RouteReplace(&netlink.Route{
				LinkIndex: l.Attrs().Index,
				Dst:       &foreign,
				Scope:     netlink.SCOPE_LINK,
			})
		}))
		s.must(cluster.Eventually(t.Context(), "networkd configures the links", func(ctx context.Context) error {
			_, err := n.Run(ctx, "/usr/bin/networkctl", "reconfigure", "weft0", "weft-vtep0", card)
			return err
		}))
		s.must(cluster.Eventually(t.Context(), "networkd removes routes of other programs",
			func(context.Context) error {
				return n.Do(func() error {
					found, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Dst: &foreign},
						netlink.RT_FILTER_DST)
					return errors.Join(err, errorUnless(len(found) == 0, "it is there"))
				})
			}))
		s.must(cluster.Eventually(t.Context(), "Weft's routes are there", func(context.Context) error {
			now := s.routesOfWeft("n1")
			return errorUnless(slices.Equal(now, before), strings.Join(now, ", "))
		}))
		s.reachEachOther(client, server)
		s.must(networkd.Stop(t.Context()))
	}
}
