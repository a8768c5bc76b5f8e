package linux

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// refusal returns the error of one direct Create of a backend.
func refusal[V comparable](l *lab, b namespaced[V], name string, v V) error {
	l.Helper()
	netns := netnsID{}
	netns.Inode, netns.Device, _ = InspectNamespace(l.path)
	batch := []kvscheduler.Item[V, netnsID]{{Name: name, Want: v, Handles: []any{struct{}{}, netns}}}
	b.Create(l.Context(), batch)
	return batch[0].Err
}

func backendOf[V comparable](d kvscheduler.Descriptor[V, netnsID]) namespaced[V] {
	return d.Backend.(namespaced[V])
}

// isPermanent reports whether an error is permanent and says that nothing was changed.
func isPermanent(err error) bool {
	known := new(kvscheduler.OpError)
	return errors.As(err, &known) && known.Permanent && known.Outcome == kvscheduler.NotApplied
}

// conflict is a foreign object that an operation conflicts with.
type conflict struct {
	name string
	make func(t *testing.T) // runs in the namespace
	try  func(l *lab) error
	says string
}

func conflicts() []conflict {
	elsewhere := func(t *testing.T, r *netlink.Route) {
		r.LinkIndex = addDummy(t, "dummy0").Attrs().Index
		must(t, netlink.RouteAdd(r))
	}
	all4 := netip.MustParsePrefix("0.0.0.0/0")
	all6 := netip.MustParsePrefix("::/0")
	return []conflict{
		{"a default route through another link",
			func(t *testing.T) { elsewhere(t, &netlink.Route{Dst: ipNet(all4), Scope: netlink.SCOPE_LINK}) },
			func(l *lab) error { return l.tryRoute("0.0.0.0/0", "169.254.1.1") },
			"a default route through dummy0 already exists"},
		{"a default route of another metric",
			func(t *testing.T) {
				elsewhere(t, &netlink.Route{Dst: ipNet(all4), Scope: netlink.SCOPE_LINK, Priority: 77})
			},
			func(l *lab) error { return l.tryRoute("0.0.0.0/0", "169.254.1.1") },
			"a default route through dummy0 already exists"},
		{"a default route of IPv6",
			func(t *testing.T) { elsewhere(t, &netlink.Route{Dst: ipNet(all6)}) },
			func(l *lab) error { return l.tryRoute("::/0", "fe80::1") },
			"a default route through dummy0 already exists"},
		{"a route via another gateway",
			func(t *testing.T) {
				link, err := netlink.LinkByName("eth0")
				must(t, err)
				must(t,
					netlink.RouteAdd(&netlink.Route{
						LinkIndex: link.Attrs().Index,
						Dst:       ipNet(netip.MustParsePrefix("10.7.0.0/16")),
						Gw:        []byte{169, 254, 1, 9}, Flags: int(netlink.FLAG_ONLINK),
					}))
			},
			func(l *lab) error { return l.tryRoute("10.7.0.0/16", "169.254.1.1") },
			"a route through eth0 via 169.254.1.9 already exists"},
		{"a link with another alias",
			func(t *testing.T) {
				link, err := netlink.LinkByName("eth0")
				must(t, err)
				must(t, netlink.LinkSetAlias(link, "another owner"))
			},
			func(l *lab) error { return refusal(l, backendOf(tapPeerDescriptor(Options{})), "tap-a", l.peer()) },
			`eth0 belongs to "another owner"`},
		{"a link that is not a tap",
			func(t *testing.T) { addDummy(t, "dummy0") },
			func(l *lab) error {
				v := l.peer()
				v.Name = "dummy0"
				return refusal(l, backendOf(tapPeerDescriptor(Options{})), "tap-a", v)
			},
			"dummy0 is a dummy, not a tap"},
		{"a value that the kernel rejects",
			func(*testing.T) {},
			func(l *lab) error {
				v := wire.Sysctl{On: on, Namespace: l.path, Name: "net/ipv6/conf/eth0/accept_ra", Value: "many"}
				return refusal(l, backendOf(sysctlDescriptor(nil)), "x", v)
			},
			"set net/ipv6/conf/eth0/accept_ra"},
	}
}

func TestConflictsArePermanentErrors(t *testing.T) {
	for _, tt := range conflicts() {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t)
			l.inside(func() {
				link, err := netlink.LinkByName("eth0")
				must(t, err)
				must(t, errors.Join(netlink.LinkSetAlias(link, alias), netlink.LinkSetUp(link)))
				tt.make(t)
			})
			before := l.state()
			err := tt.try(l)
			if err == nil || !strings.Contains(err.Error(), tt.says) || !isPermanent(err) {
				t.Errorf("got %v (permanent %v), want one that says %q", err, isPermanent(err), tt.says)
			}
			if after := l.state(); after != before {
				t.Errorf("changed:\n%s\nwas\n%s", after, before)
			}
		})
	}
}

func (l *lab) tryRoute(destination, gateway string) error {
	l.Helper()
	return refusal(l, backendOf(routeDescriptor(Options{})), destination,
		l.route(destination, gateway).value.(wire.LinuxRoute))
}

func TestForeignRouteWithTheSameNextHopIsAccepted(t *testing.T) {
	l := newLab(t)
	l.inside(func() {
		link, err := netlink.LinkByName("eth0")
		must(t, err)
		must(t, netlink.LinkSetUp(link))
		must(t,
			netlink.RouteAdd(&netlink.Route{
				LinkIndex: link.Attrs().Index,
				Dst:       ipNet(netip.MustParsePrefix("0.0.0.0/0")),
				Gw:        []byte{169, 254, 1, 1}, Flags: int(netlink.FLAG_ONLINK),
			}))
	})
	l.mustCommit(l.ground()...)
	foreign := l.state()
	route := l.route("0.0.0.0/0", "169.254.1.1")
	l.mustCommit(route)
	l.quiet()
	l.mustCommit(object{route.key, nil})
	if after := l.state(); after != foreign {
		t.Errorf("the foreign route was changed:\n%s\nwas\n%s", after, foreign)
	}
}

func TestRouteOfTheKernelIsAccepted(t *testing.T) {
	l := newLab(t)
	l.mustCommit(l.ground()...)
	l.mustCommit(l.address("10.9.0.1/24")) // the kernel adds a route with a source
	route := l.route("10.9.0.0/24", "")
	l.mustCommit(route)
	l.quiet()
	l.mustCommit(object{route.key, nil})
	l.inside(func() {
		link, err := netlink.LinkByName("eth0")
		must(t, err)
		routes, err := netlink.RouteList(link, netlink.FAMILY_V4)
		must(t, err)
		if len(routes) != 1 {
			t.Errorf("the kernel's route was changed: %v", routes)
		}
	})
}

func TestIPv6IsEnabledOnALinkThatGetsAnAddress(t *testing.T) {
	l := newLab(t)
	l.inside(func() {
		for _, link := range []string{"all", "default", "eth0"} {
			must(t, os.WriteFile("/proc/sys/net/ipv6/conf/"+link+"/disable_ipv6", []byte("1"), 0))
		}
	})
	l.mustCommit(append(l.ground(), l.route("::/0", "fe80::1"), l.neighbour("fe80::1", mac2))...)
	l.mustCommit(l.address("fd00::1/128"))
	l.quiet()
	l.inside(func() {
		link, err := netlink.LinkByName("eth0")
		must(t, err)
		addresses, err := netlink.AddrList(link, netlink.FAMILY_V6)
		must(t, err)
		for _, a := range addresses {
			if a.IP.IsGlobalUnicast() && a.Flags&unix.IFA_F_TENTATIVE != 0 {
				t.Errorf("duplicate address detection of %s", a)
			}
		}
	})
}

func TestDeletedNamespaceIsAPermanentError(t *testing.T) {
	l := newLab(t)
	route := backendOf(routeDescriptor(Options{}))
	v := l.route("0.0.0.0/0", "169.254.1.1").value.(wire.LinuxRoute)
	v.Namespace = filepath.Join(t.TempDir(), "none")
	err := refusal(l, route, "x", v)
	if want := "network namespace " + v.Namespace + " is gone"; !isPermanent(err) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("create: %v", err)
	}
	batch := []kvscheduler.Item[wire.LinuxRoute, netnsID]{{Name: "x", Have: v, Meta: netnsID{1, 2}}}
	route.Delete(t.Context(), batch)
	if batch[0].Err != nil {
		t.Errorf("delete: %v", batch[0].Err)
	}
}

func TestPathOfAnotherNamespaceIsNotTouched(t *testing.T) {
	l := newLab(t)
	other := newLab(t)
	all := append(l.ground(), l.address("10.1.0.1/32"))
	l.mustCommit(all...)
	must(t, unix.Unmount(l.path, unix.MNT_DETACH))
	must(t, unix.Mount(other.path, l.path, "", unix.MS_BIND, ""))
	other.inside(func() {
		link, err := netlink.LinkByName("eth0")
		must(t, err)
		must(t, netlink.LinkSetAlias(link, alias))
		must(t, netlink.AddrAdd(link, kernelAddress(netip.MustParsePrefix("10.1.0.1/32"))))
	})
	before := other.state()
	if got := len(l.different()); got != 3 { // namespace, peer, address
		t.Errorf("%d objects differ, want 3: %v", got, l.different())
	}
	for _, o := range []object{all[3], all[2], all[1]} {
		l.mustCommit(object{o.key, nil})
	}
	if after := other.state(); after != before {
		t.Errorf("the other namespace was changed:\n%s\nwas\n%s", after, before)
	}
	if err := l.commit(all[1]); err == nil || !strings.Contains(err.Error(), "another one has taken its path") {
		t.Errorf("create: %v", err)
	}
}

func TestInspectNamespaceAcceptsOnlyNamespaces(t *testing.T) {
	path := netnstest.New(t)
	if inode, device, err := InspectNamespace(path); err != nil || inode == 0 || device == 0 {
		t.Errorf("a namespace: %d, %d, %v", inode, device, err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	fifo := filepath.Join(dir, "fifo")
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, unix.Mkfifo(fifo, 0o600))
	for name, path := range map[string]string{
		"the host's own": "/proc/self/ns/net", "a namespace of another type": "/proc/self/ns/mnt", "a file": file,
		"a FIFO": fifo, "nothing": filepath.Join(dir, "none"), "a folder": dir,
	} {
		if _, _, err := InspectNamespace(path); err == nil {
			t.Errorf("%s counts as a namespace", name)
		}
	}
}

func TestLinkAliasReadsTheAliasOfALink(t *testing.T) {
	l := newLab(t)
	l.mustCommit(l.ground()...)
	if got, exists, err := LinkAlias(l.path, "eth0"); err != nil || !exists || got != alias {
		t.Errorf("alias %q, %v, %v", got, exists, err)
	}
	if _, exists, err := LinkAlias(l.path, "eth7"); err != nil || exists {
		t.Errorf("a missing link: %v, %v", exists, err)
	}
	if _, _, err := LinkAlias(filepath.Join(t.TempDir(), "none"), "eth0"); !errors.Is(err, ErrGone) {
		t.Errorf("a deleted namespace: %v", err)
	}
}
