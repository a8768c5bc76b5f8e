package linux

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

const hostEnd = "weft0123456789a"

func (l *lab) veth(change ...func(*wire.Veth)) object {
	v := wire.Veth{Namespace: l.path, Name: "eth1", MAC: mac1, HostName: hostEnd, HostMAC: mac2, MTU: 1400, Alias: alias, Up: true}
	for _, f := range change {
		f(&v)
	}
	return object{wire.VethKey("pod-a"), v}
}

// mustFind finds a link where the calling thread is.
func mustFind(t *testing.T, name string) netlink.Link {
	t.Helper()
	link, err := netlink.LinkByName(name)
	must(t, err)
	return link
}

func isThere(name string) bool {
	_, err := net.InterfaceByName(name)
	return err == nil
}

func (l *lab) isInPod(name string) (there bool) {
	l.inside(func() { there = isThere(name) })
	return there
}

// mustLook fails the test unless an end is as v says.
func mustLook(t *testing.T, name string, mac wire.MAC, v wire.Veth) {
	t.Helper()
	link := mustFind(t, name)
	a := link.Attrs()
	if macOf(link) != mac || a.MTU != v.MTU || a.Alias != v.Alias || isUp(link) != v.Up {
		t.Errorf("%s has MAC %s, MTU %d, alias %q, up %v; want MAC %s and %+v", name, a.HardwareAddr, a.MTU, a.Alias, isUp(link), mac, v)
	}
	if a.TxQLen != 1000 {
		t.Errorf("%s has a queue of %d packets", name, a.TxQLen)
	}
}

func (l *lab) mustBe(v wire.Veth) {
	l.Helper()
	mustLook(l.T, v.HostName, v.HostMAC, v)
	l.inside(func() { mustLook(l.T, v.Name, v.MAC, v) })
	l.quiet()
}

func TestVethIsMadeChangedInPlaceAndRemoved(t *testing.T) {
	l := newLab(t)
	l.mustCommit(l.namespace(), l.veth())
	l.mustBe(l.veth().value.(wire.Veth))
	index := mustFind(t, hostEnd).Attrs().Index
	changed := l.veth(func(v *wire.Veth) {
		v.MTU, v.Alias, v.MAC, v.HostMAC = 9000, alias+" again", mac2, wire.MAC{2, 0, 0, 0, 0, 3}
	})
	l.mustCommit(changed)
	l.mustBe(changed.value.(wire.Veth))
	if now := mustFind(t, hostEnd).Attrs().Index; now != index {
		t.Error("the pair was made anew for what can be changed")
	}
	renamed := l.veth(func(v *wire.Veth) { v.Name = "eth2" })
	l.mustCommit(renamed)
	l.mustBe(renamed.value.(wire.Veth))
	l.mustCommit(object{renamed.key, nil})
	if isThere(hostEnd) || l.isInPod("eth1") || l.isInPod("eth2") {
		t.Error("an end is left behind")
	}
}

func TestVethOfWhichTheKernelChoosesAll(t *testing.T) {
	l := newLab(t)
	l.mustCommit(l.namespace(), l.veth(func(v *wire.Veth) { v.MAC, v.HostMAC, v.MTU = wire.MAC{}, wire.MAC{}, 0 }))
	l.quiet()
	l.mustCommit(object{wire.VethKey("pod-a"), nil})
	if isThere(hostEnd) {
		t.Error("an end is left behind")
	}
}

// spoilers are what may happen to a pair behind the scheduler's back.
func spoilers() map[string]func(l *lab) {
	host := func(f func(netlink.Link) error) func(*lab) {
		return func(l *lab) { must(l.T, f(mustFind(l.T, hostEnd))) }
	}
	inPod := func(f func(netlink.Link) error) func(*lab) {
		return func(l *lab) { l.inside(func() { must(l.T, f(mustFind(l.T, "eth1"))) }) }
	}
	write := func(file, value string) func(netlink.Link) error {
		return func(netlink.Link) error { return os.WriteFile("/proc/sys/net/"+file, []byte(value), 0) }
	}
	return map[string]func(l *lab){
		"deleted":                        host(netlink.LinkDel),
		"deleted in the pod":             inPod(netlink.LinkDel),
		"down":                           host(netlink.LinkSetDown),
		"down in the pod":                inPod(netlink.LinkSetDown),
		"another MTU in the pod":         inPod(func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1300) }),
		"another MTU":                    host(func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1300) }),
		"another MAC in the pod":         inPod(func(l netlink.Link) error { return netlink.LinkSetHardwareAddr(l, mac2[:]) }),
		"no alias":                       host(func(l netlink.Link) error { return netlink.LinkSetAlias(l, "") }),
		"no alias in the pod":            inPod(func(l netlink.Link) error { return netlink.LinkSetAlias(l, "") }),
		"answers ARP":                    host(netlink.LinkSetARPOn),
		"speaks IPv6":                    host(write("ipv6/conf/"+hostEnd+"/disable_ipv6", "0")),
		"believes every sender":          host(write("ipv4/conf/"+hostEnd+"/rp_filter", "0")),
		"another name in the pod":        inPod(func(l netlink.Link) error { return errors.Join(netlink.LinkSetDown(l), netlink.LinkSetName(l, "eth7")) }),
		"the pod's end went another way": movePodEnd,
	}
}

func movePodEnd(l *lab) {
	home, err := os.Open(threadNamespace)
	must(l.T, err)
	defer home.Close()
	l.inside(func() { must(l.T, netlink.LinkSetNsFd(mustFind(l.T, "eth1"), int(home.Fd()))) })
}

// rows: CAL-15
func TestVethIsRepaired(t *testing.T) {
	for name, spoil := range spoilers() {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			veth := l.veth()
			l.mustCommit(l.namespace(), veth)
			spoil(l)
			if got := l.different(); !slices.Equal(got, []string{veth.key}) {
				t.Errorf("these are seen to differ: %v", got)
			}
			if _, err := l.s.Resync(t.Context(), kvscheduler.ResyncOpt{}); err != nil {
				t.Errorf("repair: %v", err)
			}
			l.mustBe(veth.value.(wire.Veth))
			spoil(l)
			l.mustCommit(object{veth.key, nil})
			if isThere(hostEnd) || isThere("eth1") || l.isInPod("eth1") || l.isInPod("eth7") {
				t.Error("an end is left behind")
			}
		})
	}
}

func TestWhatStandsOnAVeth(t *testing.T) {
	l := newLab(t)
	veth := l.veth()
	on, eth1 := veth.key, func(p string) wire.LinuxAddress {
		return wire.LinuxAddress{On: veth.key, Namespace: l.path, Link: "eth1", Prefix: netip.MustParsePrefix(p)}
	}
	var all []object
	for _, p := range []string{"10.1.0.7/24", "fd00::7/128"} {
		all = append(all, object{wire.LinuxAddressKey(on, eth1(p).Prefix), eth1(p)})
	}
	gate, far := netip.MustParseAddr("fe80::1"), netip.MustParsePrefix("10.9.0.0/16")
	all = append(all,
		object{wire.LinuxNeighbourKey(on, gate), wire.LinuxNeighbour{On: on, Namespace: l.path, Link: "eth1", Address: gate, MAC: mac2}},
		object{wire.LinuxRouteKey(on, far), wire.LinuxRoute{On: on, Namespace: l.path, Link: "eth1", Destination: far,
			Gateway: netip.MustParseAddr("10.1.0.1"), Source: netip.MustParseAddr("10.1.0.7")}},
		object{wire.SysctlKey(on, "net/ipv6/conf/eth1/accept_ra"),
			wire.Sysctl{On: on, Namespace: l.path, Name: "net/ipv6/conf/eth1/accept_ra", Value: "0"}})
	l.mustCommit(append(all, veth, l.namespace())...)
	l.quiet()
	renamed := l.veth(func(v *wire.Veth) { v.HostName = "weft-other" })
	l.mustCommit(renamed) // made anew, with all that stands on it
	l.quiet()
	must(t, netlink.LinkDel(mustFind(t, "weft-other")))
	if _, err := l.s.Resync(t.Context(), kvscheduler.ResyncOpt{}); err != nil {
		t.Errorf("repair: %v", err)
	}
	l.quiet()
	for i := range all {
		all[i].value = nil
	}
	l.mustCommit(append(all, object{veth.key, nil})...)
	if isThere("weft-other") || l.isInPod("eth1") {
		t.Error("an end is left behind")
	}
}

func TestKernelOfTheHostTakesNothingFromAPod(t *testing.T) {
	l := newLab(t)
	l.mustCommit(l.namespace(), l.veth())
	host := mustFind(t, hostEnd)
	addresses, err := netlink.AddrList(host, netlink.FAMILY_ALL)
	must(t, err)
	if len(addresses) > 0 {
		t.Errorf("the host's end has addresses: %v", addresses)
	}
	lo := mustFind(t, "lo")
	must(t, netlink.AddrAdd(lo, kernelAddress(netip.MustParsePrefix("10.88.0.1/32"))))
	defer func() { _ = netlink.AddrDel(lo, kernelAddress(netip.MustParsePrefix("10.88.0.1/32"))) }()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 88, 0, 1)})
	must(t, err)
	defer conn.Close()
	arrives := func(within time.Duration) bool {
		l.inside(func() {
			link := mustFind(t, "eth1")
			must(t, netlink.AddrReplace(link, kernelAddress(netip.MustParsePrefix("10.88.0.2/24"))))
			must(t, netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT,
				IP: net.IPv4(10, 88, 0, 1), HardwareAddr: mac2[:]}))
			pod, err := net.DialUDP("udp4", nil, conn.LocalAddr().(*net.UDPAddr))
			must(t, err)
			defer pod.Close()
			_, err = pod.Write([]byte("hello"))
			must(t, err)
		})
		must(t, conn.SetReadDeadline(time.Now().Add(within)))
		_, _, err := conn.ReadFrom(make([]byte, 10))
		return err == nil
	}
	if arrives(300 * time.Millisecond) {
		t.Error("what a pod sends to the MAC of the host's end reaches the host")
	}
	for _, link := range []string{"all", hostEnd} { // the seal is what kept it away
		must(t, os.WriteFile("/proc/sys/net/ipv4/conf/"+link+"/rp_filter", []byte("0"), 0))
	}
	if !arrives(time.Minute) {
		t.Error("without the seal nothing reaches the host either: this test shows nothing")
	}
}

func TestVethLimitsTheSegmentsOfThePod(t *testing.T) {
	l := newLab(t)
	veth := l.veth(func(v *wire.Veth) { v.MaxSegment = 20000 })
	l.mustCommit(l.namespace(), veth)
	l.quiet()
	l.inside(func() {
		if got := mustFind(t, "eth1").Attrs().GSOMaxSize; got != 20000 {
			t.Errorf("the pod's end has segments of %d bytes", got)
		}
		must(t, netlink.LinkSetGSOMaxSize(mustFind(t, "eth1"), 60000))
	})
	l.resync()
	l.quiet()
}

// The host link is such a pair where the dataplane cannot make taps.
func TestVethWithBothEndsInTheNodesNamespace(t *testing.T) {
	l := newLab(t)
	veth := l.veth(func(v *wire.Veth) { v.Namespace, v.Name = "", "weft0" })
	want := veth.value.(wire.Veth)
	l.mustCommit(veth)
	mustLook(t, "weft0", want.MAC, want)
	mustLook(t, want.HostName, want.HostMAC, want)
	l.quiet()
	forwarding := wire.Sysctl{On: veth.key, Name: forwarding4, Value: "1"}
	l.mustCommit(object{wire.SysctlKey(veth.key, forwarding4), forwarding})
	l.quiet() // the dataplane's end does not forward
	must(t, netlink.LinkDel(mustFind(t, "weft0")))
	l.resync()
	mustLook(t, "weft0", want.MAC, want)
	l.quiet()
	l.mustCommit(object{wire.SysctlKey(veth.key, forwarding4), nil}, object{veth.key, nil})
	if isThere("weft0") || isThere(want.HostName) {
		t.Error("a deleted pair is there")
	}
}

func TestVethGoesThoughThePathOfItsNamespaceIsGone(t *testing.T) {
	l := newLab(t)
	veth := l.veth()
	l.mustCommit(l.namespace(), veth)
	held, err := os.Open(l.path) // as a process in the namespace would
	must(t, err)
	defer held.Close()
	netnstest.Remove(t, l.path)
	if !slices.Contains(l.different(), veth.key) {
		t.Error("the loss is not seen")
	}
	if !isThere(hostEnd) {
		t.Fatal("the host's end is gone though its namespace lives")
	}
	l.mustCommit(object{veth.key, nil})
	if isThere(hostEnd) {
		t.Error("the host's end is left behind")
	}
}

func TestVethsNamespaceThatIsGoneTakesItAlong(t *testing.T) {
	l := newLab(t)
	veth := l.veth()
	l.mustCommit(l.namespace(), veth)
	gone := make(chan netlink.LinkUpdate, 100)
	done := make(chan struct{})
	defer close(done)
	must(t, netlink.LinkSubscribe(gone, done))
	index := mustFind(t, hostEnd).Attrs().Index
	netnstest.Remove(t, l.path)
	for deadline := time.After(time.Minute); ; {
		select {
		case u := <-gone:
			if u.Header.Type != unix.RTM_DELLINK || int(u.Index) != index {
				continue
			}
		case <-deadline:
			t.Fatal("the host's end outlives the namespace")
		}
		break
	}
	l.mustCommit(object{veth.key, nil})
}

// A veth that an earlier agent made, and did not record, is found by its alias and pruned; one of another owner stays.
func TestAVethThatIsNotRecordedIsPruned(t *testing.T) {
	l := newLab(t)
	l.mustCommit(append(l.ground(), l.veth())...)
	for name, tt := range map[string]struct {
		vethName func(host, alias string) (object, ifName string, ok bool)
		stays    bool
	}{
		"another owner's": {func(string, string) (string, string, bool) { return "", "", false }, true},
		"a pod's": {func(host, is string) (string, string, bool) {
			return "pod-a", "eth1", host == hostEnd && is == alias
		}, false},
	} {
		next := kvscheduler.New(kvscheduler.Config{Sources: []string{"test"}})
		_, err := Register(next, Options{VethName: tt.vethName})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = next.Run(ctx) })
		next.Ready("test")
		_, err = next.Resync(ctx, kvscheduler.ResyncOpt{})
		must(t, err)
		cancel()
		running.Wait()
		if isThere(hostEnd) != tt.stays {
			t.Errorf("%s: the veth is there: %t", name, isThere(hostEnd))
		}
		l.resync() // makes it again
	}
}
