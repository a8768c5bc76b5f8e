package matrix_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/netns"
)

// checkResult compares a pod's result of ADD with the cell and with the kernel.
func (c cell) checkResult(t *testing.T, w *attachedPod) {
	t.Helper()
	var names []string
	for _, l := range w.links {
		names = append(names, l.Name)
		if l.Sandbox != w.Netns || l.Mtu != 1500 {
			t.Errorf("%s has sandbox %s and MTU %d, want %s and 1500", l.Name, l.Sandbox, l.Mtu, w.Netns)
		}
		has := inKernel(t, w.Netns, l.Name)
		if reported := fmt.Sprintf("%s mtu %d %v", l.Mac, l.Mtu, l.Addresses); reported != has.String() {
			t.Errorf("%s is %[3]s, the result has %[2]s", l.Name, reported, has)
		}
	}
	want := []string{"eth0"}
	if c.network != "main" {
		want = append(want, "x0")
	}
	if !slices.Equal(names, want) {
		t.Fatalf("interfaces %v, want %v", names, want)
	}
	if got := inKernel(t, w.Netns, c.link()).kind; got != map[string]string{
		"tap":   "tuntap",
		"veth":  "veth",
		"memif": "tuntap",
	}[c.kind] {
		t.Errorf("the type of %s is %s", c.link(), got)
	}
	if got := w.last().SocketPath; got != w.socket() {
		t.Errorf("the socket is %q, want %q", got, w.socket())
	}
	c.checkAddresses(t, w)
	c.checkRoutes(t, w)
}

// checkAddresses compares the addresses with the families, the network and the gateway of the cell.
func (c cell) checkAddresses(t *testing.T, w *attachedPod) {
	t.Helper()
	l := w.last()
	var got []string
	for i, a := range l.Addresses {
		inside := slices.ContainsFunc(c.cidrs(), func(p netip.Prefix) bool { return p.Contains(a.Addr()) })
		if c.isCustom() && !inside {
			t.Errorf("%s is outside of the network's %v", a, c.cidrs())
		}
		got = append(got, fmt.Sprintf("/%d by %s", a.Bits(), l.Gateways[i]))
	}
	if fmt.Sprint(got) != fmt.Sprint(c.lengths()) {
		t.Errorf("addresses of %s are %v with gateways %v, want %v", l.Name, l.Addresses, l.Gateways, c.lengths())
	}
}

// lengths returns the prefix lengths and gateways of the cell's addresses.
func (c cell) lengths() []string {
	v4 := map[string]string{
		"main":    "/32 by 169.254.1.1",
		"default": "/32 by 10.1.0.1",
		"L2":      "/24 by 10.5.0.1",
		"L3":      "/32 by 10.6.0.1",
	}
	v6 := map[string]string{
		"main":    "/128 by fe80::1",
		"default": "/128 by fe80::1",
		"L2":      "/64 by fd00:5::1",
		"L3":      "/128 by fe80::1",
	}
	if c.kind == "memif" {
		v4["default"] = v4["main"] // the memif's program has no other interface
	}
	var want []string
	if c.has4() {
		want = append(want, v4[c.network])
	}
	if c.has6() {
		want = append(want, v6[c.network])
	}
	return want
}

// checkRoutes compares the routes of the result with the cell's, and with the kernel's.
func (c cell) checkRoutes(t *testing.T, w *attachedPod) {
	t.Helper()
	var want []string
	if c.families != "v6" {
		want = append(want, "169.254.1.1/32 via <nil>", "0.0.0.0/0 via 169.254.1.1")
	}
	if c.families != "v4" {
		want = append(want, "::/0 via fe80::1")
	}
	var own []string
	if c.network == "L3" && c.has4() {
		own = append(own, "10.6.0.1/32 via <nil>", "10.6.0.0/24 via 10.6.0.1")
	}
	if c.network == "L3" && c.has6() {
		own = append(own, "fd00:6::/64 via fe80::1")
	}
	reported := append(want, own...)
	if c.kind == "memif" { // a memif's routes are in no kernel
		reported = want
	}
	if !slices.Equal(w.routes, reported) {
		t.Errorf("routes %q, want %q", w.routes, reported)
	}
	has := kernelRoutes(t, w.Netns)
	for _, r := range append(want, own...) {
		if !slices.Contains(has, r) {
			t.Errorf("the kernel lacks the route %s: %q", r, has)
		}
	}
}

// seen is a link in the kernel.
type seen struct {
	kind, mac string
	mtu       int
	addresses []netip.Prefix // except link-local ones
}

func (s seen) String() string { return fmt.Sprintf("%s mtu %d %v", s.mac, s.mtu, s.addresses) }

func inKernel(t *testing.T, path, name string) (s seen) {
	t.Helper()
	must.Succeed(t, netns.Do(path, func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		a := l.Attrs()
		s.kind = l.Type()
		s.mac = a.HardwareAddr.String()
		s.mtu = a.MTU
		list, err := netlink.AddrList(l, unix.AF_UNSPEC)
		for _, a := range list {
			if p := netip.MustParsePrefix(a.IPNet.String()); !p.Addr().IsLinkLocalUnicast() {
				s.addresses = append(s.addresses, p)
			}
		}
		return err
	}))
	return s
}

// kernelRoutes returns all routes of a namespace in the notation of results.
func kernelRoutes(t *testing.T, path string) (routes []string) {
	t.Helper()
	must.Succeed(t, netns.Do(path, func() error {
		for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
			list, err := netlink.RouteList(nil, family)
			if err != nil {
				return err
			}
			for _, r := range list {
				routes = append(routes, strings.TrimPrefix(fmt.Sprintf("%s via %s", r.Dst, r.Gw), "<nil> "))
			}
		}
		return nil
	}))
	return routes
}
