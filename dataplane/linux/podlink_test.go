package linux

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/wire"
)

// takeover is what a program in a pod does with a link of Weft.
type takeover struct {
	name string

	ofVeths bool // the kernel names the peer of a veth; taps are found one namespace deep

	// do returns the path of the namespace where the link is afterwards.
	do func(t *testing.T, path, link string) string
}

func takeovers() []takeover {
	inPod := func(f func(t *testing.T, link netlink.Link)) func(*testing.T, string, string) string {
		return func(t *testing.T, path, link string) string {
			netnstest.Do(t, path, func() { f(t, mustFind(t, link)) })
			return path
		}
	}
	return []takeover{
		{name: "renamed", do: inPod(func(t *testing.T, link netlink.Link) { rename(t, link, "wan0") })},
		{name: "renamed, and another link has its name", do: inPod(func(t *testing.T, link netlink.Link) {
			name := link.Attrs().Name
			rename(t, link, "wan0")
			addBridge(t, name)
		})},
		{name: "renamed, and another link of its kind has its name", do: inPod(func(t *testing.T, link netlink.Link) {
			name := link.Attrs().Name
			rename(t, link, "wan0")
			if isTap(link) {
				addTap(t, name)
				return
			}
			must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "other"}))
		})},
		{
			name: "port of a bridge",
			do: inPod(func(t *testing.T, link netlink.Link) {
				must(t, netlink.LinkSetMaster(link, addBridge(t, "br0")))
			}),
		},
		{name: "renamed port of a bridge with another MAC", do: inPod(func(t *testing.T, link netlink.Link) {
			rename(t, link, link.Attrs().Name+"-nic")
			must(t, netlink.LinkSetHardwareAddr(link, []byte{2, 9, 9, 9, 9, 9}))
			must(t, netlink.LinkSetMaster(link, addBridge(t, "br0")))
		})},
		{name: "in a nested namespace", do: moveToNested},
		{name: "in a namespace of a nested namespace", ofVeths: true, do: func(t *testing.T, path, link string) string {
			return moveToNested(t, moveToNested(t, path, link), link)
		}},
		{name: "renamed in a nested namespace", do: func(t *testing.T, path, link string) string {
			nested := moveToNested(t, path, link)
			netnstest.Do(t, nested, func() { rename(t, mustFind(t, link), "wan0") })
			return nested
		}},
	}
}

func rename(t *testing.T, link netlink.Link, name string) {
	t.Helper()
	must(t, errors.Join(netlink.LinkSetDown(link), netlink.LinkSetName(link, name), netlink.LinkSetUp(link)))
}

func addBridge(t *testing.T, name string) netlink.Link {
	t.Helper()
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
		t.Skip("needs bridges: ", err)
	}
	return mustFind(t, name)
}

func moveToNested(t *testing.T, path, link string) (nested string) {
	t.Helper()
	nested = netnstest.New(t)
	to, err := os.Open(nested)
	must(t, err)
	defer to.Close()
	netnstest.Do(t, path, func() { must(t, netlink.LinkSetNsFd(mustFind(t, link), int(to.Fd()))) })
	return nested
}

// linkObjects returns a pod's link, as a tap or a veth, with an object of each kind on it.
func (l *lab) linkObjects(veth bool) (objects []object, link string) {
	l.Helper()
	on := wire.TapPeerKey("tap-a")
	link = "eth0"
	objects = l.ground()
	if veth {
		on = wire.VethKey("pod-a")
		link = "eth1"
		objects = []object{l.namespace(), l.veth()}
	}
	address := netip.MustParsePrefix("10.1.0.7/32")
	gateway := netip.MustParseAddr("169.254.1.1")
	everywhere := netip.MustParsePrefix("0.0.0.0/0")
	return append(objects,
		object{
			wire.LinuxAddressKey(on, address),
			wire.LinuxAddress{On: on, Namespace: l.path, Link: link, Prefix: address},
		},
		object{
			wire.LinuxNeighbourKey(on, gateway),
			wire.LinuxNeighbour{On: on, Namespace: l.path, Link: link, Address: gateway, MAC: mac2},
		},
		object{
			wire.LinuxRouteKey(on, everywhere),
			wire.LinuxRoute{On: on, Namespace: l.path, Link: link, Destination: everywhere, Gateway: gateway},
		},
		object{wire.HardeningKey(on), wire.Hardening{On: on, Namespace: l.path, Link: link}},
		object{wire.SysctlKey(on, "net/ipv4/conf/"+link+"/arp_notify"),
			wire.Sysctl{On: on, Namespace: l.path, Name: "net/ipv4/conf/" + link + "/arp_notify", Value: "1"}},
	), link
}

// ownLink has the properties of Weft's link that a program in a pod may choose.
type ownLink struct {
	index, addresses, mtu, master int
	name, mac                     string
	isUp                          bool
}

// ownIn returns Weft's link in a namespace, whatever its name is.
func ownIn(t *testing.T, path string) (found ownLink) {
	t.Helper()
	netnstest.Do(t, path, func() {
		links, err := netlink.LinkList()
		must(t, err)
		for _, link := range links {
			if link.Attrs().Alias == alias {
				list, err := netlink.AddrList(link, netlink.FAMILY_V4)
				must(t, err)
				a := link.Attrs()
				found = ownLink{a.Index, len(list), a.MTU, a.MasterIndex, a.Name, a.HardwareAddr.String(), isUp(link)}
			}
		}
	})
	return found
}

// A link that the pod uses elsewhere is not missing: nothing differs, a resync changes nothing, and a changed value
// changes nothing in the pod. A deleted veth is deleted wherever it is.
func TestLinksThatThePodTookOverAreThePods(t *testing.T) {
	for kind, veth := range map[string]bool{"tap": false, "veth": true} {
		for _, tt := range takeovers() {
			if tt.ofVeths && !veth {
				continue
			}
			t.Run(kind+" "+tt.name, func(t *testing.T) {
				l := newLab(t)
				objects, link := l.linkObjects(veth)
				l.mustCommit(objects...)
				l.quiet()
				where := tt.do(t, l.path, link)
				taken := ownIn(t, where)
				if taken.index == 0 {
					t.Fatal("the link is not where the program put it")
				}
				l.quiet()
				l.resync()
				l.commitChangedLink(veth, 1350)
				l.quiet()
				l.commitChangedLink(veth, minMTU6-1) // the objects on the link follow: see onlyMTU
				l.quiet()
				if now := ownIn(t, where); now != taken {
					t.Errorf("the link is %+v, before it was %+v", now, taken)
				}
				for i := range objects {
					objects[i].value = nil
				}
				l.mustCommit(objects...)
				if veth && ownIn(t, where).index != 0 { // dataplane/vpp deletes taps
					t.Error("the link is left")
				}
			})
		}
	}
}

// commitChangedLink changes the desired MTU of the link.
func (l *lab) commitChangedLink(veth bool, mtu int) {
	l.Helper()
	if veth {
		l.mustCommit(l.veth(func(v *wire.Veth) { v.MTU = mtu }))
		return
	}
	peer := l.peer()
	peer.MTU = mtu
	l.mustCommit(l.peerObject(peer))
}

// A link that was deleted where the pod used it is missing, and made where the ADD made it.
func TestDeletedLinkThatThePodTookOverIsRepaired(t *testing.T) {
	for kind, veth := range map[string]bool{"tap": false, "veth": true} {
		for _, tt := range takeovers() {
			if tt.ofVeths && !veth {
				continue
			}
			t.Run(kind+" "+tt.name, func(t *testing.T) {
				l := newLab(t)
				objects, link := l.linkObjects(veth)
				l.mustCommit(objects...)
				where := tt.do(t, l.path, link)
				netnstest.Do(t, where, func() { deleteOwn(t) })
				l.inside(func() {
					if other, err := netlink.LinkByName(link); err == nil { // of the pod, which has the name of the ADD
						must(t, netlink.LinkDel(other))
					}
					if !veth {
						addTap(t, link) // like the dataplane
					}
				})
				if len(l.different()) == 0 {
					t.Error("no object differs, although the link was deleted")
				}
				l.resync()
				l.quiet()
				if own := ownIn(t, l.path); own.index == 0 || own.addresses != 1 {
					t.Errorf("after the repair the pod has %+v", own)
				}
			})
		}
	}
}

// deleteOwn deletes Weft's link in the calling thread's namespace.
func deleteOwn(t *testing.T) {
	t.Helper()
	links, err := netlink.LinkList()
	must(t, err)
	for _, link := range links {
		if link.Attrs().Alias == alias {
			must(t, netlink.LinkDel(link))
		}
	}
}

// A pod may lower the MTU of its links. The desired MTU still follows the configuration.
func TestThePodMayLowerTheMTU(t *testing.T) {
	for kind, veth := range map[string]bool{"tap": false, "veth": true} {
		t.Run(kind, func(t *testing.T) {
			l := newLab(t)
			objects, link := l.linkObjects(veth)
			on := map[bool]string{false: wire.TapPeerKey("tap-a"), true: wire.VethKey("pod-a")}[veth]
			l.mustCommit(objects...)
			set := func(mtu int) {
				l.inside(func() { must(t, netlink.LinkSetMTU(mustFind(t, link), mtu)) })
			}
			mtu := func() (now int) {
				l.inside(func() { now = mustFind(t, link).Attrs().MTU })
				return now
			}
			set(1300)
			l.quiet()
			l.resync()
			if got := mtu(); got != 1300 {
				t.Errorf("the MTU that the pod lowered to 1300 is %d", got)
			}
			l.commitChangedLink(veth, 1350)
			if got := mtu(); got != 1350 {
				t.Errorf("the MTU is %d after the configuration changed it to 1350", got)
			}
			set(1450)
			l.staysDifferent(on)
			set(1250)
			if l.found(on) {
				t.Error("a check finds the MTU that the pod lowered after it had raised it")
			}
			set(1450)
			l.resync()
			if got := mtu(); got != 1350 {
				t.Errorf("the MTU that the pod raised to 1450 is %d after a repair, want 1350", got)
			}
		})
	}
}

// A pod cannot occupy the agent by its number of links and nested namespaces: a visit reads a bounded number of links.
// No link of the visit is lost then, neither the first nor the next one: a lost link would be replaced.
func TestSearchForLinksOfAPodIsBounded(t *testing.T) {
	path := netnstest.New(t)
	for searched, isTooMany := range map[int]bool{0: false, maxSearched: true} {
		err := inNamespace(path, netnsID{}, func(h *handle) error {
			h.search.visited = searched
			for _, name := range []string{"eth0", "t1"} {
				_, err := h.placeOf(PodLink{Name: name, Alias: alias})
				if errors.Is(err, errOverfull) != isTooMany || !isTooMany && err != nil {
					t.Errorf("%s after %d links: %v", name, searched, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// ipv6Objects returns objects of each kind that need IPv6 on the pod's link.
func (l *lab) ipv6Objects(on, link string) (objects []object) {
	l.Helper()
	address := netip.MustParsePrefix("fd00::7/128")
	gateway := netip.MustParseAddr("fe80::1")
	everywhere := netip.MustParsePrefix("::/0")
	accept := "net/ipv6/conf/" + link + "/accept_dad"
	return []object{
		{
			wire.LinuxAddressKey(on, address),
			wire.LinuxAddress{On: on, Namespace: l.path, Link: link, Prefix: address},
		},
		{
			wire.LinuxNeighbourKey(on, gateway),
			wire.LinuxNeighbour{On: on, Namespace: l.path, Link: link, Address: gateway, MAC: mac2},
		},
		{
			wire.LinuxRouteKey(on, everywhere),
			wire.LinuxRoute{On: on, Namespace: l.path, Link: link, Destination: everywhere, Gateway: gateway},
		},
		{wire.SysctlKey(on, accept), wire.Sysctl{On: on, Namespace: l.path, Name: accept, Value: "0"}},
	}
}

// The kernel removes IPv6 from a link whose MTU the pod lowers below 1280. What Weft had of IPv6 there is then neither
// missing nor can it be made; it comes back with the MTU.
func TestIPv6OfALinkEndsAndReturnsWithTheMTUThatThePodChose(t *testing.T) {
	for kind, veth := range map[string]bool{"tap": false, "veth": true} {
		t.Run(kind, func(t *testing.T) {
			l := newLab(t)
			objects, link := l.linkObjects(veth)
			on := map[bool]string{false: wire.TapPeerKey("tap-a"), true: wire.VethKey("pod-a")}[veth]
			of6 := l.ipv6Objects(on, link)
			l.mustCommit(append(objects, of6...)...)
			l.quiet()
			set := func(mtu int) {
				l.inside(func() { must(t, netlink.LinkSetMTU(mustFind(t, link), mtu)) })
			}
			set(minMTU6 - 1)
			l.quiet()
			l.resync()
			second := netip.MustParsePrefix("fd00::8/128")
			key := wire.LinuxAddressKey(on, second)
			l.mustCommit(object{key, wire.LinuxAddress{On: on, Namespace: l.path, Link: link, Prefix: second}})
			for _, o := range of6 { // made again without IPv6
				l.mustCommit(object{o.key, nil})
				l.mustCommit(o)
			}
			l.quiet()
			l.inside(func() { dropAddress("10.1.0.7/32")(t, mustFind(t, link)) })
			if !l.found(wire.LinuxAddressKey(on, netip.MustParsePrefix("10.1.0.7/32"))) {
				t.Error("a check does not find that the IPv4 address is missing")
			}
			l.resync()

			set(minMTU6)
			for _, o := range append(of6, object{key, nil}) {
				if !l.found(o.key) {
					t.Errorf("a check does not find that %s is missing after the MTU is raised", o.key)
				}
			}
			l.resync()
			l.quiet()
			l.inside(func() {
				list, err := netlink.AddrList(mustFind(t, link), netlink.FAMILY_V6)
				must(t, err)
				has := func(p netip.Prefix) bool {
					return slices.ContainsFunc(list, func(a netlink.Addr) bool { return prefixOf(a.IPNet) == p })
				}
				if !has(netip.MustParsePrefix("fd00::7/128")) || !has(second) {
					t.Errorf("the link has the addresses %v", list)
				}
			})
			set(minMTU6 - 1)
			for _, o := range of6 {
				l.mustCommit(object{o.key, nil})
			}
		})
	}
}
