package linux

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

var on = wire.TapPeerKey("tap-a")

func (l *lab) hardening() object {
	on := wire.TapPeerKey("tap-a")
	return object{wire.HardeningKey(on), wire.Hardening{On: on, Namespace: l.path, Link: "eth0"}}
}

func (l *lab) address(prefix string) object {
	p := netip.MustParsePrefix(prefix)
	return object{wire.LinuxAddressKey(on, p), wire.LinuxAddress{On: on, Namespace: l.path, Link: "eth0", Prefix: p}}
}

func (l *lab) route(destination, gateway string, more ...func(*wire.LinuxRoute)) object {
	v := wire.LinuxRoute{On: on, Namespace: l.path, Link: "eth0", Destination: netip.MustParsePrefix(destination)}
	if gateway != "" {
		v.Gateway = netip.MustParseAddr(gateway)
	}
	for _, f := range more {
		f(&v)
	}
	return object{v.Key(), v}
}

func (l *lab) neighbour(a string, m netaddr.MAC) object {
	ip := netip.MustParseAddr(a)
	return object{
		wire.LinuxNeighbourKey(on, ip),
		wire.LinuxNeighbour{On: on, Namespace: l.path, Link: "eth0", Address: ip, MAC: m},
	}
}

func (l *lab) sysctl(name, value string) object {
	return object{wire.SysctlKey(on, name), wire.Sysctl{On: on, Namespace: l.path, Name: name, Value: value}}
}

func withMetric(n int) func(*wire.LinuxRoute) { return func(v *wire.LinuxRoute) { v.Metric = n } }

func withMTU(n int) func(*wire.LinuxRoute) { return func(v *wire.LinuxRoute) { v.MTU = n } }
func withSource(a string) func(*wire.LinuxRoute) {
	return func(v *wire.LinuxRoute) { v.Source = netip.MustParseAddr(a) }
}

// trial is an object and its changed value. spoil deletes it without the scheduler, on a thread in the namespace.
type trial struct {
	name          string
	first, second object
	spoil         func(t *testing.T, link netlink.Link)
}

func (l *lab) trials() []trial {
	smaller := l.peer()
	smaller.MTU = 1300
	smaller.MAC = mac2
	smaller.Alias = alias + " again"
	return []trial{
		{"tap peer", l.peerObject(l.peer()), l.peerObject(smaller), func(t *testing.T, link netlink.Link) {
			must(t, netlink.LinkSetMTU(link, 1450))
		}},
		{"address of IPv4", l.address("10.1.0.1/32"), object{}, dropAddress("10.1.0.1/32")},
		{"address of IPv6", l.address("fd00::1/128"), object{}, dropAddress("fd00::1/128")},
		{
			"attached route", l.route("169.254.1.1/32", ""), l.route("169.254.1.1/32", "", withMTU(1200)),
			dropRoute("169.254.1.1/32"),
		},
		{
			"default route of IPv4", l.route("0.0.0.0/0", "169.254.1.1"), l.route("0.0.0.0/0", "169.254.1.2"),
			dropRoute("0.0.0.0/0"),
		},
		{
			"default route of IPv6", l.route("::/0", "fe80::1", withMTU(1280)), l.route("::/0", "fe80::2"),
			dropRoute("::/0"),
		},
		{
			"route via a gateway outside the link's prefixes", l.route("fd07::/64", "fd00::9"), object{},
			dropRoute("fd07::/64"),
		},
		{
			"route with a source", l.route("0.0.0.0/0", "169.254.1.1", withSource("10.1.0.7")), object{},
			dropRoute("0.0.0.0/0"),
		},
		{
			"route with a metric of IPv4", l.route("10.7.0.0/16", "169.254.1.1", withMetric(100)),
			l.route("10.7.0.0/16", "169.254.1.2", withMetric(100)), dropRoute("10.7.0.0/16"),
		},
		{
			"route with a metric of IPv6", l.route("fd07::/64", "fe80::1", withMetric(100)),
			l.route("fd07::/64", "fe80::2", withMetric(100)), dropRoute("fd07::/64"),
		},
		{
			"neighbour of IPv4", l.neighbour("169.254.1.1", mac2), l.neighbour("169.254.1.1", mac1),
			dropNeighbour("169.254.1.1"),
		},
		{"neighbour of IPv6", l.neighbour("fe80::1", mac2), l.neighbour("fe80::1", mac1), dropNeighbour("fe80::1")},
		{"hardening", l.hardening(), object{}, func(t *testing.T, _ netlink.Link) {
			must(t, os.WriteFile("/proc/sys/net/ipv6/conf/eth0/accept_ra", []byte("1"), 0))
		}},
		{"setting", l.sysctl("net/ipv6/conf/eth0/accept_ra", "0"), l.sysctl("net/ipv6/conf/eth0/accept_ra", "2"),
			func(t *testing.T, _ netlink.Link) {
				must(t, os.WriteFile("/proc/sys/net/ipv6/conf/eth0/accept_ra", []byte("1"), 0))
			}},
	}
}

func TestEveryKindIsCreatedReadUpdatedAndDeleted(t *testing.T) {
	for _, trial := range newLab(t).trials() {
		t.Run(trial.name, func(t *testing.T) {
			l := newLab(t)
			before := l.state()
			for _, again := range l.trials() {
				if again.name == trial.name { // with the namespace of this lab
					l.try(again)
				}
			}
			for _, o := range append(l.ground(), l.address("10.1.0.7/32"), l.address("fd00::7/128")) {
				l.mustCommit(object{o.key, nil})
			}
			if after := l.state(); after != before {
				t.Errorf("after the delete:\n%s\nbefore\n%s", after, before)
			}
		})
	}
}

// try creates, updates, spoils, repairs and deletes an object.
func (l *lab) try(tr trial) {
	l.Helper()
	l.mustCommit(l.ground()...)
	l.mustCommit(l.address("10.1.0.7/32"), l.address("fd00::7/128"))
	l.mustCommit(tr.first)
	l.quiet()
	if tr.second.key != "" {
		l.mustCommit(tr.second)
		l.quiet()
	}
	l.inside(func() {
		link, err := netlink.LinkByName("eth0")
		must(l.T, err)
		tr.spoil(l.T, link)
	})
	if got := l.different(); !slices.Equal(got, []string{tr.first.key}) {
		l.Errorf("objects %v differ after the loss", got)
	}
	l.staysDifferent(tr.first.key)
	if _, err := l.s.Resync(l.Context(), kvscheduler.ResyncOpt{}); err != nil {
		l.Errorf("repair: %v", err)
	}
	l.quiet()
	l.inside(func() {
		link, err := netlink.LinkByName("eth0")
		must(l.T, err)
		tr.spoil(l.T, link)
	})
	l.mustCommit(object{tr.first.key, nil}) // deleting a missing object is no error
}

// state describes the configuration of the link in the namespace.
func (l *lab) state() string {
	l.Helper()
	var b strings.Builder
	l.inside(func() {
		link, err := netlink.LinkByName("eth0")
		must(l.T, err)
		b.WriteString("alias " + link.Attrs().Alias + "\n")
		for _, f := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			addresses, err := netlink.AddrList(link, f)
			must(l.T, err)
			for _, a := range addresses {
				if a.Scope == int(netlink.SCOPE_UNIVERSE) {
					b.WriteString("address " + a.IPNet.String() + "\n")
				}
			}
			routes, err := netlink.RouteList(link, f)
			must(l.T, err)
			for _, r := range routes {
				if r.Protocol != 2 { // RTPROT_KERNEL
					b.WriteString("route " + r.String() + "\n")
				}
			}
			neighbours, err := netlink.NeighList(link.Attrs().Index, f)
			must(l.T, err)
			for _, n := range neighbours {
				if n.State == netlink.NUD_PERMANENT {
					b.WriteString("neighbour " + n.String() + "\n")
				}
			}
		}
	})
	return b.String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func dropAddress(prefix string) func(*testing.T, netlink.Link) {
	return func(t *testing.T, link netlink.Link) {
		must(t, netlink.AddrDel(link, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix(prefix))}))
	}
}

func dropRoute(destination string) func(*testing.T, netlink.Link) {
	return func(t *testing.T, link netlink.Link) {
		must(t,
			netlink.RouteDel(&netlink.Route{
				LinkIndex: link.Attrs().Index,
				Dst:       ipNet(netip.MustParsePrefix(destination)),
				Scope:     netlink.SCOPE_NOWHERE,
			}))
	}
}

func dropNeighbour(a string) func(*testing.T, netlink.Link) {
	return func(t *testing.T, link netlink.Link) {
		must(t, netlink.NeighDel(&netlink.Neigh{LinkIndex: link.Attrs().Index, IP: netip.MustParseAddr(a).AsSlice()}))
	}
}

func TestObjectsEndWithTheirNamespace(t *testing.T) {
	l := newLab(t)
	all := append(l.ground(), l.address("10.1.0.1/32"), l.route("0.0.0.0/0", "169.254.1.1"),
		l.neighbour("169.254.1.1", mac2),
		l.sysctl("net/ipv6/conf/eth0/accept_ra", "0"))
	l.mustCommit(all...)
	netnstest.Remove(t, l.path)
	if got := len(l.different()); got != len(all)-1 { // the descriptor of the interface finds nothing
		t.Errorf("%d of %d objects differ", got, len(all)-1)
	}
	for _, o := range slices.Backward(all) {
		if err := l.commit(object{o.key, nil}); err != nil {
			t.Errorf("delete %s: %v", o.key, err)
		}
	}
}

// The routes to one destination with several metrics are several objects: each is made, found and deleted alone.
func TestRoutesToADestinationDifferByTheirMetrics(t *testing.T) {
	l := newLab(t)
	l.mustCommit(l.ground()...)
	l.mustCommit(l.address("10.1.0.7/32"), l.address("fd00::7/128"))
	for _, family := range [][3]string{
		{"0.0.0.0/0", "169.254.1.1", "169.254.1.2"},
		{"::/0", "fe80::1", "fe80::2"},
	} {
		first := l.route(family[0], family[1])
		second := l.route(family[0], family[2], withMetric(200))
		third := l.route(family[0], family[2], withMetric(300))
		l.mustCommit(first, second, third)
		l.quiet()
		l.mustCommit(object{second.key, nil})
		l.quiet()
		l.inside(func() {
			link, err := netlink.LinkByName("eth0")
			must(t, err)
			gone := &netlink.Route{
				LinkIndex: link.Attrs().Index,
				Dst:       ipNet(netip.MustParsePrefix(family[0])),
				Priority:  300,
			}
			must(t, netlink.RouteDel(gone))
		})
		if got := l.different(); !slices.Equal(got, []string{third.key}) {
			t.Errorf("%s: objects %v differ after the loss of one", family[0], got)
		}
		l.mustCommit(object{third.key, nil})
		l.quiet()
	}
	// 1024 is the default of IPv6, and a metric as any other of IPv4.
	l.mustCommit(l.route("10.77.0.0/16", "169.254.1.1", withMetric(1024)))
	l.quiet()
}
