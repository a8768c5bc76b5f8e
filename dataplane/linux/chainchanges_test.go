package linux

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/wire"
)

// ruleFrom adds a rule that selects a routing table for packets from an address.
func ruleFrom(t *testing.T, source string, table int) {
	t.Helper()
	r := netlink.NewRule()
	r.Family = unix.AF_INET
	r.Table = table
	r.Src = ipNet(netip.MustParsePrefix(source))
	if err := netlink.RuleAdd(r); err != nil {
		t.Skip("needs routing policy rules: ", err)
	}
}

// TestReadLinkChangesDistinguishesMovedFromLostRoutes moves a default route like plugins for source-based routing.
func TestReadLinkChangesDistinguishesMovedFromLostRoutes(t *testing.T) {
	everything := netip.MustParsePrefix("0.0.0.0/0")
	tests := map[string]struct {
		source  string // of the rule; "": no rule
		table   int    // of the rule
		gateway string // of the route in table 100
		tables  map[netip.Prefix]int
	}{
		"a rule of the pod's address selects the table": {
			"10.1.0.5/32", 100, "169.254.1.1", map[netip.Prefix]int{everything: 100},
		},
		"a rule of the pod's address selects another table": {
			"10.1.0.5/32", 101, "169.254.1.1", map[netip.Prefix]int{everything: 0},
		},
		"the route in the table has another gateway": {
			"10.1.0.5/32", 100, "169.254.1.2", map[netip.Prefix]int{everything: 0},
		},
		"a rule of another address selects the table":                {"10.1.0.6/32", 100, "169.254.1.1", nil},
		"a rule of a network of the pod's address selects the table": {"10.1.0.0/24", 100, "169.254.1.1", nil},
		"no rule selects the table":                                  {"", 0, "169.254.1.1", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := netnstest.New(t)
			netnstest.Do(t, path, func() {
				link := addDummy(t, "eth0")
				must(t, netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("10.1.0.5/32"))}))
				must(t, netlink.RouteAdd(&netlink.Route{
					LinkIndex: link.Attrs().Index,
					Table:     100,
					Gw:        netip.MustParseAddr(tt.gateway).AsSlice(),
					Flags:     int(netlink.FLAG_ONLINK),
				}))
				if tt.source != "" {
					ruleFrom(t, tt.source, tt.table)
				}
			})
			v := wire.LinuxRoute{
				Namespace:   path,
				Link:        "eth0",
				Destination: everything,
				Gateway:     netip.MustParseAddr("169.254.1.1"),
			}
			c, err := ReadLinkChanges(wire.Namespace{Path: path}, PodLink{Name: "eth0", MTU: 1400}, []wire.LinuxRoute{
				v,
			})
			if err != nil || c.MTU != 1500 || !maps.Equal(c.Tables, tt.tables) {
				t.Errorf("changes %+v, error %v; want MTU 1500 and tables %v", c, err, tt.tables)
			}
		})
	}
}

func TestReadLinkChangesFailsWithoutTheLink(t *testing.T) {
	v := wire.LinuxRoute{Namespace: netnstest.New(t), Link: "eth0", Destination: netip.MustParsePrefix("0.0.0.0/0")}
	if c, err := ReadLinkChanges(wire.Namespace{Path: v.Namespace}, PodLink{Name: "eth0"}, []wire.LinuxRoute{
		v,
	}); err == nil {
		t.Errorf("changes %+v", c)
	}
}

// chained returns a veth or tap with a route, the name of its link in the pod, and that of the dataplane's interface.
func (l *lab) chained(veth bool) (objects []object, link, name string) {
	all := netip.MustParsePrefix("0.0.0.0/0")
	on := wire.TapPeerKey("tap-a")
	link = "eth0"
	name = "tap-a"
	objects = l.ground()
	if veth {
		on = wire.VethKey("pod-a")
		link = "eth1"
		name = "pod-a"
		objects = []object{l.namespace(), l.veth()}
	}
	address := netip.MustParsePrefix("10.1.0.5/32")
	return append(objects,
		object{
			wire.LinuxAddressKey(on, address),
			wire.LinuxAddress{On: on, Namespace: l.path, Link: link, Prefix: address},
		},
		object{wire.LinuxRouteKey(on, all), wire.LinuxRoute{
			On: on, Namespace: l.path, Link: link, Destination: all, Gateway: netip.MustParseAddr("169.254.1.1"),
		}}), link, name
}

// moveRoute moves the default route like the CNI plugin sbr.
func moveRoute(t *testing.T, link string) {
	t.Helper()
	ruleFrom(t, "10.1.0.5/32", 100)
	there, err := netlink.RouteList(mustFind(t, link), unix.AF_INET)
	must(t, err)
	for _, r := range there {
		must(t, netlink.RouteDel(&r))
		r.Table = 100
		r.Flags = int(netlink.FLAG_ONLINK)
		must(t, netlink.RouteReplace(&r))
	}
}

// seen describes the MTU of a link, and the tables with a route of Weft.
func (l *lab) seen(link string) (text string) {
	l.inside(func() {
		there, err := netlink.RouteListFiltered(unix.AF_INET,
			&netlink.Route{Table: unix.RT_TABLE_UNSPEC, Protocol: protocol},
			netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
		must(l.T, err)
		text = fmt.Sprint("MTU ", mustFind(l.T, link).Attrs().MTU)
		for _, r := range there {
			text += fmt.Sprint(" table ", r.Table)
		}
	})
	return text
}

func TestChangesOfLaterPluginsAreKeptAndRepeatedForANewLink(t *testing.T) {
	for name, veth := range map[string]bool{"tap": false, "veth": true} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			objects, link, name := l.chained(veth)
			l.mustCommit(objects...)
			l.changes.Set(name, LinkChanges{Open: true})
			l.inside(func() {
				must(t, netlink.LinkSetMTU(mustFind(t, link), 1300))
				moveRoute(t, link)
			})
			l.quiet() // the chain is open
			routes := []wire.LinuxRoute{objects[len(objects)-1].value.(wire.LinuxRoute)}
			changes, err := ReadLinkChanges(wire.Namespace{Path: l.path},
				PodLink{Name: link, Alias: alias, Veth: veth, MTU: 1400}, routes)
			must(t, err)
			l.changes.Set(name, changes)
			l.quiet()
			const kept = "MTU 1300 table 100"
			if got := l.seen(link); got != kept {
				t.Errorf("after the chain: %s, want %s", got, kept)
			}

			l.inside(func() { // drift from the later plugin's changes
				must(t, netlink.LinkSetMTU(mustFind(t, link), 1350))
				must(t,
					netlink.RouteDel(&netlink.Route{
						LinkIndex: mustFind(t, link).Attrs().Index,
						Table:     100,
						Dst:       ipNet(routes[0].Destination),
					}))
			})
			l.resync()
			if got := l.seen(link); got != kept {
				t.Errorf("after drift: %s, want %s", got, kept)
			}
			l.inside(func() { must(t, netlink.LinkSetMTU(mustFind(t, link), 1400)) }) // the desired MTU
			l.resync()
			if got := l.seen(link); got != kept {
				t.Errorf("after drift to Weft's own MTU: %s, want %s", got, kept)
			}

			l.inside(func() {
				must(t, netlink.LinkDel(mustFind(t, link)))
				if !veth {
					addTap(t, link) // like the dataplane
				}
			})
			l.resync()
			if got := l.seen(link); got != kept {
				t.Errorf("after the loss of the link: %s, want %s", got, kept)
			}
			l.quiet()
		})
	}
}

func TestDriftIsRepairedWhenTheChainChangedNothing(t *testing.T) {
	l := newLab(t)
	objects, link, name := l.chained(false)
	l.mustCommit(objects...)
	l.changes.Set(name, LinkChanges{Open: true})
	l.inside(func() { // without a rule, it is drift
		must(t,
			netlink.RouteDel(&netlink.Route{
				LinkIndex: mustFind(t, link).Attrs().Index,
				Dst:       ipNet(netip.MustParsePrefix("0.0.0.0/0")),
			}))
	})
	l.resync()
	l.changes.Set(name, LinkChanges{})
	l.inside(func() {
		must(t, netlink.LinkSetMTU(mustFind(t, link), 1450))
		moveRoute(t, link)
	})
	l.resync()
	if got := l.seen(link); got != "MTU 1400 table 100 table 254" {
		t.Errorf("after drift: %s", got)
	}
}
