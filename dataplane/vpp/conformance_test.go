package vpp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"go.fd.io/govpp/api"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/wire"
)

var (
	mac1 = netaddr.MAC{0x02, 0, 0, 0, 0, 1}
	mac2 = netaddr.MAC{0x02, 0, 0, 0, 0, 2}
	mac3 = netaddr.MAC{0x02, 0, 0, 0, 0, 3}
)

func vrf(f netaddr.Family, id uint32) object {
	return object{wire.VRFKey("pods", f), wire.VRF{ID: id, Family: f, Label: "pods"}}
}

func loopback(name string, v wire.Interface) object {
	v.Type = wire.TypeLoopback
	return object{wire.InterfaceKey(name), v}
}

func member(name string, f netaddr.Family) object {
	return object{
		wire.InterfaceVRFKey(name, f), wire.InterfaceVRF{Interface: name, Family: f, VRF: wire.VRFName("pods", f)},
	}
}

func addressOn(name, prefix string) object {
	p := netip.MustParsePrefix(prefix)
	return object{wire.AddressKey(name, p), wire.Address{Interface: name, Prefix: p}}
}

func routeTo(prefix string, paths ...wire.Path) object {
	p := netip.MustParsePrefix(prefix)
	vrf := wire.VRFName("pods", netaddr.FamilyOf(p.Addr()))
	return object{wire.RouteKey(vrf, p), wire.Route{VRF: vrf, Prefix: p, Paths: paths}}
}

func neighbourOn(name, a string, m netaddr.MAC) object {
	ip := netip.MustParseAddr(a)
	return object{wire.NeighbourKey(name, ip), wire.Neighbour{Interface: name, Address: ip, MAC: m}}
}

// ground is what most objects stand on: two VRFs, a loopback with addresses and a second one without.
func ground() []object {
	up := wire.Interface{MAC: mac1, Up: true}
	return []object{
		vrf(netaddr.IP4, 100), vrf(netaddr.IP6, 100),
		loopback("gate", up), member("gate", netaddr.IP4), member("gate", netaddr.IP6),
		addressOn("gate", "169.254.1.1/32"), addressOn("gate", "fd00::1/128"),
		loopback("far", wire.Interface{MAC: mac2, Up: true}), member("far", netaddr.IP4), member("far", netaddr.IP6),
		// of punt redirects
		neighbourOn("gate", "10.0.0.9", mac3), neighbourOn("gate", "fd00::9", mac3),
		neighbourOn("gate", "fd00::8", mac1),
	}
}

// trial is one thing that a kind can be; second is the same object changed.
type trial struct {
	kind          behind
	first, second object
}

func trials() map[string]trial {
	ref := func(name string) wire.Unnumbered {
		return wire.Unnumbered{Interface: name, Donor: "gate", IP4: true, IP6: true}
	}
	return map[string]trial{
		"VRF of IPv4": {backendOf(vrfDescriptor),
			object{wire.VRFKey("blue", netaddr.IP4), wire.VRF{ID: 7, Family: netaddr.IP4, Label: "blue"}},
			object{wire.VRFKey("blue", netaddr.IP4), wire.VRF{ID: 8, Family: netaddr.IP4, Label: "blue"}}},
		"VRF of IPv6": {backendOf(vrfDescriptor),
			object{wire.VRFKey("blue", netaddr.IP6), wire.VRF{ID: 7, Family: netaddr.IP6, Label: "blue"}},
			object{wire.VRFKey("blue", netaddr.IP6), wire.VRF{ID: 9, Family: netaddr.IP6, Label: "blue"}}},
		"loopback": {backendOf(interfaceDescriptor),
			loopback("loop", wire.Interface{MAC: mac3, MTU: 1400, Up: true}),
			loopback("loop", wire.Interface{MAC: mac3, MTU: 1300})},
		"loopback that chooses its MAC": {backendOf(interfaceDescriptor),
			loopback("loop", wire.Interface{}), loopback("loop", wire.Interface{MAC: mac3, Up: true})},
		"membership of IPv4": {backendOf(membershipDescriptor), member("far", netaddr.IP4), object{}},
		"membership of IPv6": {backendOf(membershipDescriptor), member("far", netaddr.IP6), object{}},
		"address of IPv4":    {backendOf(addressDescriptor), addressOn("far", "10.9.0.1/24"), object{}},
		"address of IPv6":    {backendOf(addressDescriptor), addressOn("far", "fd09::1/64"), object{}},
		"link-local address": {backendOf(addressDescriptor), addressOn("far", "fe80::1/128"), object{}},
		"unnumbered": {backendOf(unnumberedDescriptor),
			object{wire.UnnumberedKey("far"), ref("far")}, object{}},
		"attached route": {backendOf(routeDescriptor),
			routeTo("10.1.0.1/32", wire.Path{Interface: "far"}), routeTo("10.1.0.1/32", wire.Path{Interface: "gate"})},
		"route by a next hop": {backendOf(routeDescriptor),
			routeTo("10.2.0.0/16", wire.Path{Interface: "far", NextHop: netip.MustParseAddr("10.1.0.9")}),
			routeTo("10.2.0.0/16", wire.Path{Interface: "far", NextHop: netip.MustParseAddr("10.1.0.8"), Weight: 1})},
		"default route of IPv6": {backendOf(routeDescriptor),
			routeTo("::/0", wire.Path{Interface: "far", NextHop: netip.MustParseAddr("fd00::9")}),
			routeTo("::/0", wire.Path{Interface: "gate", NextHop: netip.MustParseAddr("fd00::9")})},
		"route that says unreachable": {backendOf(routeDescriptor),
			routeTo("10.4.0.0/16", wire.Path{Type: wire.PathUnreachable}),
			routeTo("10.4.0.0/16", wire.Path{Interface: "far"})},
		"route of IPv6 that comes to say unreachable": {backendOf(routeDescriptor),
			routeTo("fd04::/64", wire.Path{Interface: "far"}),
			routeTo("fd04::/64", wire.Path{Type: wire.PathUnreachable})},
		"route of two paths": {backendOf(routeDescriptor),
			routeTo("fd07::/64", wire.Path{Interface: "gate", NextHop: netip.MustParseAddr("fd00::9"), Weight: 2},
				wire.Path{Interface: "far"}),
			routeTo("fd07::/64", wire.Path{Interface: "far"})},
		"punt redirect of IPv4": {backendOf(puntRedirectDescriptor),
			redirectOf(netaddr.IP4, "10.0.0.9"), object{}},
		"punt redirect of IPv6": {backendOf(puntRedirectDescriptor),
			redirectOf(netaddr.IP6, "fd00::9"), redirectOf(netaddr.IP6, "fd00::8")},
		"neighbour of IPv4": {
			backendOf(neighbourDescriptor), neighbourOn("far", "10.1.0.1", mac3), neighbourOn("far", "10.1.0.1", mac1),
		},
		"neighbour of IPv6": {
			backendOf(neighbourDescriptor), neighbourOn("far", "fd00::7", mac3), neighbourOn("far", "fd00::7", mac1),
		},
	}
}

func TestEveryKindIsMadeReadBackChangedAndRemoved(t *testing.T) {
	for name, trial := range trials() {
		t.Run(name, func(t *testing.T) { newLab(t).try(ground(), trial) })
	}
}

func redirectOf(f netaddr.Family, nextHop string) object {
	return object{wire.PuntRedirectKey("far", f), wire.PuntRedirect{
		Interface: "far", Family: f, Via: "gate", NextHop: netip.MustParseAddr(nextHop),
	}}
}

// try makes, reads back, changes, loses, repairs and deletes an object on its ground.
func (l *lab) try(ground []object, trial trial) {
	l.Helper()
	l.mustCommit(ground...)
	l.mustCommit(trial.first)
	l.quiet()
	if trial.second.key != "" {
		l.mustCommit(trial.second)
		l.quiet()
	}
	l.disturb(trial.first.key, trial.kind)
	for _, o := range append(ground, trial.first) {
		l.mustCommit(object{o.key, nil})
	}
	if left := l.ours(); len(left) > 0 {
		l.Errorf("left behind: %v", left)
	}
}

// disturb repeats operations without the scheduler, and checks that they are idempotent and that a loss is found.
func (l *lab) disturb(key string, b behind) {
	l.Helper()
	kind, name, _ := strings.Cut(key, "/")
	if err := b.create(l, name); err != nil {
		l.Errorf("create what is there: %v", err)
	}
	l.quiet()
	if kind == wire.KindInterfaceVRF || kind == wire.KindVRF {
		return // others stand on it
	}
	for range 2 {
		if err := b.delete(l, name); err != nil {
			l.Errorf("delete: %v", err)
		}
	}
	if len(l.differences(ref(kind, name))) != 1 {
		l.Error("the loss is not seen")
	}
	if _, err := l.s.Resync(l.Context(), kvscheduler.ResyncOpt{}); err != nil {
		l.Errorf("repair: %v", err)
	}
	l.quiet()
}

func TestTapIsMadeInItsNamespace(t *testing.T) {
	netnstest.RequireTap(t)
	dataplane.RequireTap(t)
	l := newLab(t)
	path := netnstest.New(t)
	namespace := object{wire.NamespaceKey(path), wire.Namespace{Path: path}}
	tap := wire.Interface{Type: wire.TypeTap, MAC: mac1, MTU: 1500, Up: true,
		Tap: wire.Tap{Namespace: path, Name: "eth0", MAC: mac2, MTU: 1450}}
	err := l.commit(namespace, object{wire.InterfaceKey("pod-a"), tap})
	if errors.Is(err, api.SYSCALL_ERROR_1) && strings.Contains(err.Error(), "tap_create_v3") {
		t.Skip("this dataplane needs vhost-net for taps: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.quiet()
	if got := linkIn(t, path, "eth0"); got != "02:00:00:00:00:02 1450" {
		t.Errorf("the Linux end has %s", got)
	}
	l.disturb(wire.InterfaceKey("pod-a"), backendOf(interfaceDescriptor))
	tap.Tap.MAC = mac3
	l.mustCommit(object{wire.InterfaceKey("pod-a"), tap})
	l.quiet()
	if got := linkIn(t, path, "eth0"); got != "02:00:00:00:00:03 1450" {
		t.Errorf("after the change the Linux end has %s", got)
	}
	l.mustCommit(object{wire.InterfaceKey("pod-a"), nil})
	if got := linkIn(t, path, "eth0"); got != "" {
		t.Errorf("after removal the Linux end is there: %s", got)
	}
}

// linkIn describes a link of a namespace; "" if it is not there.
func linkIn(t *testing.T, path, name string) (found string) {
	t.Helper()
	netnstest.Do(t, path, func() {
		if link, err := net.InterfaceByName(name); err == nil {
			found = fmt.Sprint(link.HardwareAddr, " ", link.MTU)
		}
	})
	return found
}
