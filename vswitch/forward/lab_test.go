package forward_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/port"
)

var (
	gateway4 = netip.MustParseAddr("169.254.1.1")
	gateway6 = netip.MustParseAddr("fe80::1")
)

// lab is a running engine with pods: network namespaces with a tap each.
type lab struct {
	t      testing.TB
	engine *forward.Engine
	pods   []*pod
}

// pod is a network namespace with an interface.
type pod struct {
	index     uint32
	namespace string
	info      port.TapInfo
	v4, v6    netip.Addr
	mtu       int // of the dataplane's end
	static    bool
}

func newLab(t testing.TB) *lab { t.Helper(); return newLabOf(t, 1) }

func newLabOf(t testing.TB, workers int) *lab {
	t.Helper()
	netnstest.RequireTap(t)
	e, end := startEngine(t, workers)
	t.Cleanup(end)
	return &lab{t: t, engine: e}
}

// startEngine runs an engine until end is called, which fails the test on an error.
func startEngine(t testing.TB, workers int) (e *forward.Engine, end func()) {
	t.Helper()
	return startEngineOf(t, forward.Config{Workers: workers})
}

func startEngineOf(t testing.TB, c forward.Config) (e *forward.Engine, end func()) {
	t.Helper()
	e, err := forward.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	return e, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("engine: %v", err)
		}
	}
}

// pod adds a pod with the addresses 10.1.1.<index> and fd00::<index>.
func (l *lab) pod(change ...func(*pod, *port.TapConfig)) *pod {
	l.t.Helper()
	n := len(l.pods) + 1
	p := &pod{
		index: uint32(n), namespace: netnstest.New(l.t), static: true,
		v4: netip.AddrFrom4([4]byte{10, 1, 1, byte(n)}), v6: netip.MustParseAddr(fmt.Sprintf("fd00::%d", n)),
	}
	c := port.TapConfig{
		Namespace: p.namespace, Name: "eth0", HostMAC: frame.MAC{2, 0, 0, 0, 1, byte(n)}, Up: true,
		HostAddresses: []netip.Prefix{netip.PrefixFrom(p.v4, 32), netip.PrefixFrom(p.v6, 128)},
	}
	for _, f := range change {
		f(p, &c)
	}
	info, err := l.engine.OpenTap(p.index, c)
	if err != nil {
		l.t.Fatal(err)
	}
	p.info = info
	l.pods = append(l.pods, p)
	l.configure(p)
	return p
}

// configure adds the routes and the interface of a pod.
func (l *lab) configure(p *pod) {
	l.t.Helper()
	e := l.engine
	ok := func(err error) {
		l.t.Helper()
		if err != nil {
			l.t.Fatal(err)
		}
	}
	ok(e.SetInterface(p.index, forward.Interface{
		Up: true, MTU: p.mtu, MAC: frame.MAC{2, 0, 0, 0, 0, byte(p.index)},
		Addresses: []netip.Addr{gateway4, netip.MustParseAddr("fd00::ffff")}, LinkLocal: gateway6, IP6Enabled: true,
	}))
	attached := forward.Route{Paths: []forward.Path{{Interface: p.index}}}
	for _, a := range []netip.Addr{p.v4, p.v6} {
		table := forward.TableKey{Family: forward.FamilyOf(a)}
		ok(e.SetRoute(table, netaddr.Single(a), attached))
		if p.static {
			ok(e.SetNeighbour(p.index, a, p.info.HostMAC, true))
		}
	}
	local := forward.Route{Action: forward.Local}
	ok(e.SetRoute(forward.TableKey{Family: forward.IP4}, netip.PrefixFrom(gateway4, 32), local))
	ok(e.SetRoute(forward.TableKey{Family: forward.IP6}, netip.MustParsePrefix("fd00::ffff/128"), local))
	e.Publish()
	p.addRoutes(l.t)
	eventually(l.t, "the link of the pod is ready", func() bool { return p.linkReady(l.t) })
}

// linkReady reports whether the kernel has noticed carrier and accepts packets to the pod's addresses: both take some
// time after netlink shows the link up with its addresses.
func (p *pod) linkReady(t testing.TB) (ready bool) {
	t.Helper()
	netnstest.Do(t, p.namespace, func() {
		link, err := netlink.LinkByName(p.info.Name)
		if err != nil {
			t.Fatal(err)
		}
		all, err := netlink.AddrList(link, netlink.FAMILY_V6)
		if err != nil {
			t.Fatal(err)
		}
		ready = slices.ContainsFunc(all, func(a netlink.Addr) bool { return a.IP.IsLinkLocalUnicast() }) &&
			p.receives(p.v4) && p.receives(p.v6)
	})
	return ready
}

// receives reports whether the pod's kernel accepts packets to an address.
func (p *pod) receives(a netip.Addr) bool {
	routes, err := netlink.RouteGet(a.AsSlice())
	return err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL
}

// addRoutes adds the pod's default routes.
func (p *pod) addRoutes(t testing.TB) {
	t.Helper()
	netnstest.Do(t, p.namespace, func() {
		link, err := netlink.LinkByName(p.info.Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range []netip.Addr{gateway4, gateway6} {
			for _, r := range []netlink.Route{
				{Dst: network(netaddr.Single(g)), Scope: netlink.SCOPE_LINK},
				{Dst: network(netip.PrefixFrom(everywhere(g), 0)), Gw: g.AsSlice(), Flags: int(netlink.FLAG_ONLINK)},
			} {
				r.LinkIndex = link.Attrs().Index
				if err := netlink.RouteAdd(&r); err != nil {
					t.Fatalf("add route %v: %v", r, err)
				}
			}
		}
	})
}

func everywhere(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

func network(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// eventually waits until ready returns true.
func eventually(t testing.TB, what string, ready func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !ready() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}
