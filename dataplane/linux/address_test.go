package linux

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/wire"
)

// onNode returns an address of the node's link weft9, a route with that source, and a neighbour.
func onNode(address, destination, neighbour string, mac netaddr.MAC) []object {
	const link = "weft9"
	on := wire.InterfaceKey(link)
	a := netip.MustParsePrefix(address)
	to := netip.MustParsePrefix(destination)
	n := netip.MustParseAddr(neighbour)
	return []object{
		{on, wire.Interface{Type: wire.TypeTap}},
		{wire.LinuxAddressKey(on, a), wire.LinuxAddress{On: on, Link: link, Prefix: a}},
		{
			wire.LinuxRouteKey(on, to),
			wire.LinuxRoute{On: on, Link: link, Destination: to, Gateway: n, Source: a.Addr()},
		},
		{wire.LinuxNeighbourKey(on, n), wire.LinuxNeighbour{On: on, Link: link, Address: n, MAC: mac}},
	}
}

// of lists addresses, routes and static neighbours of a link.
func of(t *testing.T, link netlink.Link) (list []string) {
	t.Helper()
	addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
	must(t, err)
	for _, a := range addresses {
		list = append(list, "address "+a.IPNet.String())
	}
	routes, err := netlink.RouteList(link, netlink.FAMILY_V4)
	must(t, err)
	for _, r := range routes {
		list = append(list, "route "+r.Dst.String())
	}
	neighbours, err := netlink.NeighList(link.Attrs().Index, netlink.FAMILY_V4)
	must(t, err)
	for _, n := range neighbours {
		if n.State == netlink.NUD_PERMANENT {
			list = append(list, "neighbour "+n.IP.String())
		}
	}
	slices.Sort(list)
	return list
}

// An agent with other pools does not know the addresses that an earlier agent added to the host link.
func TestResyncRemovesLeftoversOfAnEarlierConfigurationFromTheHostLink(t *testing.T) {
	for alias, left := range map[string][]string{
		"weft:host": nil,
		"":          {"address 10.97.0.1/32", "neighbour 169.254.1.1", "route 10.97.0.0/16"}, // a foreign link
	} {
		t.Run(alias, func(t *testing.T) {
			former := newLab(t)
			addTap(t, "weft9")
			host, err := netlink.LinkByName("weft9")
			must(t, err)
			must(t, netlink.LinkSetUp(host))
			t.Cleanup(func() { _ = netlink.LinkDel(host) })
			must(t, netlink.LinkSetAlias(host, alias))
			must(t,
				netlink.RouteAdd(&netlink.Route{
					LinkIndex: host.Attrs().Index,
					Dst:       ipNet(netip.MustParsePrefix("203.0.113.0/24")),
					Scope:     netlink.SCOPE_LINK,
				}))
			former.mustCommit(onNode("10.97.0.1/32", "10.97.0.0/16", "169.254.1.1", mac1)...)

			now := newLab(t)
			now.mustCommit(onNode("10.244.0.1/32", "10.244.0.0/16", "169.254.1.2", mac2)...)
			now.resync()
			want := append(left, "address 10.244.0.1/32", "neighbour 169.254.1.2", "route 10.244.0.0/16",
				"route 203.0.113.0/24")
			slices.Sort(want)
			if got := of(t, host); !slices.Equal(got, want) {
				t.Errorf("the link has\n%v, want\n%v", got, want)
			}
			now.quiet()
		})
	}
}

// The kernel flushes all neighbours and routes of a link with its last IPv4 address.
func TestDeleteOfTheLastAddressKeepsNeighboursAndRoutes(t *testing.T) {
	l := newLab(t)
	addTap(t, "weft9")
	host, err := netlink.LinkByName("weft9")
	must(t, err)
	t.Cleanup(func() { _ = netlink.LinkDel(host) })
	must(t, netlink.LinkSetUp(host))
	all := onNode("10.97.0.1/32", "10.97.0.0/16", "169.254.1.1", mac1)
	address := all[1]
	route := all[2].value.(wire.LinuxRoute)
	route.Source = netip.Addr{}
	all[2].value = route
	l.mustCommit(all...)
	l.mustCommit(object{address.key, nil})
	if got, want := of(t, host), []string{"neighbour 169.254.1.1", "route 10.97.0.0/16"}; !slices.Equal(got, want) {
		t.Errorf("the link has %v, want %v", got, want)
	}
	l.quiet()
}

// Otherwise, a pod would lose its first replies.
func TestNewAddressAcceptsPacketsAtOnce(t *testing.T) {
	l := newLab(t)
	l.mustCommit(l.ground()...)
	for n := range 100 {
		for _, prefix := range []string{fmt.Sprintf("10.3.0.%d/32", n+1), fmt.Sprintf("fd00:3::%x/128", n+1)} {
			l.mustCommit(l.address(prefix))
			l.inside(func() {
				routes, err := netlink.RouteGet(netip.MustParsePrefix(prefix).Addr().AsSlice())
				if err != nil || len(routes) != 1 || routes[0].Type != unix.RTN_LOCAL {
					t.Errorf("%s: %v, %v", prefix, routes, err)
				}
			})
		}
	}
}
