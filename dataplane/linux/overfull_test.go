package linux

import (
	"encoding/binary"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// What a program with NET_ADMIN adds in the namespace of its pod.
const (
	floodedRoutes    = 200_000
	floodedAddresses = 12_000
)

// flood adds routes and addresses to the link, on a thread in its namespace.
func flood(t *testing.T, name string) {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	h, err := netlink.NewHandle()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	ip := func(base uint32, n int) *net.IPNet {
		return &net.IPNet{IP: binary.BigEndian.AppendUint32(nil, base+uint32(n)), Mask: net.CIDRMask(32, 32)}
	}
	for n := range floodedAddresses {
		if err := h.AddrAdd(link, &netlink.Addr{IPNet: ip(0xac100000, n)}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range floodedRoutes {
		// With the protocol of Weft's routes: nothing keeps a pod from that.
		r := &netlink.Route{
			LinkIndex: link.Attrs().Index,
			Dst:       ip(0x0b000000, n),
			Scope:     netlink.SCOPE_LINK,
			Protocol:  protocol,
		}
		if err := h.RouteAdd(r); err != nil {
			t.Fatal(err)
		}
	}
}

// allocatedBy returns how many bytes f allocates.
func allocatedBy(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// otherPod makes a second pod with an address and a route.
func (l *lab) otherPod() (path string, objects []object, address wire.LinuxAddress) {
	l.Helper()
	path = netnstest.New(l.T)
	netnstest.Do(l, path, func() { addTap(l.T, "eth0") })
	inode, device, err := InspectNamespace(path)
	if err != nil {
		l.Fatal(err)
	}
	const interfaceName = "tap-b"
	on := wire.TapPeerKey(interfaceName)
	prefix := netip.MustParsePrefix("10.1.0.9/32")
	address = wire.LinuxAddress{On: on, Namespace: path, Link: "eth0", Prefix: prefix}
	route := wire.LinuxRoute{On: on, Namespace: path, Link: "eth0", Destination: netip.MustParsePrefix("10.8.0.0/16")}
	return path, []object{
		{wire.InterfaceKey(interfaceName), wire.Interface{Type: wire.TypeTap}},
		{wire.NamespaceKey(path), wire.Namespace{Path: path, Inode: inode, Device: device}},
		{
			on,
			wire.TapPeer{
				Interface: interfaceName,
				Namespace: path,
				Name:      "eth0",
				MAC:       mac2,
				MTU:       1400,
				Alias:     "weft:default/b/eth0",
				Up:        true,
			},
		},
		{wire.LinuxAddressKey(on, prefix), address},
		{wire.LinuxRouteKey(on, route.Destination), route},
	}, address
}

// A pod fills its namespace. The check of all pods stays possible and small, and finds the drift of the others.
func TestPodThatFillsItsNamespaceHarmsNoOtherPod(t *testing.T) {
	l := newLab(t)
	on := wire.TapPeerKey("tap-a")
	prefix := netip.MustParsePrefix("10.1.0.7/32")
	gateway := netip.MustParsePrefix("10.9.0.0/16")
	objects := append(l.ground(),
		object{
			wire.LinuxAddressKey(on, prefix),
			wire.LinuxAddress{On: on, Namespace: l.path, Link: "eth0", Prefix: prefix},
		},
		object{
			wire.LinuxRouteKey(on, gateway),
			wire.LinuxRoute{On: on, Namespace: l.path, Link: "eth0", Destination: gateway},
		},
	)
	other, others, address := l.otherPod()
	l.mustCommit(append(objects, others...)...)
	l.quiet()
	l.inside(func() { flood(t, "eth0") })

	const most = 64 << 20 // the list of the library alone was several times as long
	if bytes := allocatedBy(l.quiet); bytes > most {
		t.Errorf("a check of two pods allocates %d MiB, want at most %d", bytes>>20, most>>20)
	} else {
		t.Logf("a check of two pods allocates %d KiB", bytes>>10)
	}
	netnstest.Do(l, other, func() {
		link, err := netlink.LinkByName("eth0")
		if err == nil {
			err = netlink.AddrDel(link, kernelAddress(address.Prefix))
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	if got := l.different(); !slices.Contains(got, wire.LinuxAddressKey(address.On, address.Prefix)) {
		t.Errorf("differences %q lack the address that the other pod lost", got)
	}
	// The pod can be deleted.
	gone := kvscheduler.Txn{Source: "test", Mode: kvscheduler.Atomic, Set: []kvscheduler.Object{
		{Ref: parseRef(wire.LinuxAddressKey(on, prefix))}, {Ref: parseRef(wire.LinuxRouteKey(on, gateway))},
	}}
	if _, err := l.s.Commit(t.Context(), gone); err != nil {
		t.Errorf("delete address and route of the pod: %v", err)
	}
}

// A namespace is reported while its objects are not read. It is that of one pod alone.
func TestANamespaceIsOverfullUntilItsObjectsAreRead(t *testing.T) {
	l := newLab(t)
	on := wire.TapPeerKey("tap-a")
	prefix := netip.MustParsePrefix("10.1.0.7/32")
	destination := netip.MustParsePrefix("10.9.0.0/16")
	objects := append(l.ground(),
		object{
			wire.LinuxAddressKey(on, prefix),
			wire.LinuxAddress{On: on, Namespace: l.path, Link: "eth0", Prefix: prefix},
		},
		object{
			wire.LinuxRouteKey(on, destination),
			wire.LinuxRoute{On: on, Namespace: l.path, Link: "eth0", Destination: destination},
		},
	)
	other, others, _ := l.otherPod()
	l.mustCommit(append(objects, others...)...)
	l.quiet()
	want := func(when, path, kinds string) {
		t.Helper()
		inode, device, err := InspectNamespace(path)
		if err != nil {
			t.Fatal(err)
		}
		switch err := l.full.Of(inode, device); {
		case kinds == "" && err != nil:
			t.Errorf("%s: %v", when, err)
		case kinds != "" &&
			(err == nil ||
				!strings.HasPrefix(err.Error(),
					kinds+": more objects in the pod's network namespace than the agent reads: more than 4096")):
			t.Errorf("%s: %v, want %s", when, err, kinds)
		}
	}
	want("before", l.path, "")
	extra := func(change func(*netlink.Handle, netlink.Link, *netlink.Addr) error) {
		t.Helper()
		l.inside(func() { forExtraAddresses(t, change) })
	}
	extra(func(h *netlink.Handle, l netlink.Link, a *netlink.Addr) error { return h.AddrAdd(l, a) })
	l.quiet()
	want("with too many addresses", l.path, "linux.address")
	want("with too many addresses of another pod", other, "")
	extra(func(h *netlink.Handle, l netlink.Link, a *netlink.Addr) error { return h.AddrDel(l, a) })
	l.quiet()
	want("without them", l.path, "")
}

// forExtraAddresses calls change for more addresses than a dump reads, on a thread in the namespace of the pod.
func forExtraAddresses(t *testing.T, change func(*netlink.Handle, netlink.Link, *netlink.Addr) error) {
	t.Helper()
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	h, err := netlink.NewHandle()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for n := range maxDumped + 1 {
		ip := binary.BigEndian.AppendUint32(nil, 0xac100000+uint32(n))
		if err := change(h, link, &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(32, 32)}}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNamespacesThatAreNotReadAnyMoreAreForgotten(t *testing.T) {
	var o Overfull
	o.note(netnsID{1, 2}, wire.KindLinuxAddress, errOverfull)
	o.note(netnsID{1, 2}, wire.KindLinuxRoute, errOverfull)
	o.note(netnsID{3, 2}, wire.KindLinuxRoute, errOverfull)
	o.Keep(func(inode, device uint64) bool { return inode == 1 && device == 2 })
	if err := o.Of(1, 2); err == nil || !strings.HasPrefix(err.Error(), "linux.address, linux.route: ") {
		t.Errorf("the kept one: %v", err)
	}
	if err := o.Of(3, 2); err != nil || len(o.of) != 1 {
		t.Errorf("the forgotten one: %v, kept %v", err, o.of)
	}
	o.note(netnsID{1, 2}, wire.KindLinuxAddress, nil)
	if err := o.Of(1, 2); err == nil || !strings.HasPrefix(err.Error(), "linux.route: ") {
		t.Errorf("addresses are read, routes are not: %v", err)
	}
}
