package linux

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

const hostEnd = "weft0123456789a"

func (l *lab) veth(change ...func(*wire.Veth)) object {
	v := wire.Veth{
		Namespace: l.path,
		Name:      "eth1",
		MAC:       mac1,
		HostName:  hostEnd,
		HostMAC:   mac2,
		MTU:       1400,
		Alias:     alias,
		Up:        true,
	}
	for _, f := range change {
		f(&v)
	}
	return object{wire.VethKey("pod-a"), v}
}

// mustFind finds a link in the calling thread's namespace.
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

// mustLook fails the test unless an end has the configuration of v.
func mustLook(t *testing.T, name string, mac netaddr.MAC, v wire.Veth) {
	t.Helper()
	link := mustFind(t, name)
	a := link.Attrs()
	if macOf(link) != mac || a.MTU != v.MTU || a.Alias != v.Alias || isUp(link) != v.Up {
		t.Errorf("%s has MAC %s, MTU %d, alias %q, up %v; want MAC %s and %+v", name, a.HardwareAddr, a.MTU, a.Alias,
			isUp(link), mac, v)
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

func TestVethIsCreatedUpdatedInPlaceAndDeleted(t *testing.T) {
	l := newLab(t)
	l.mustCommit(l.namespace(), l.veth())
	l.mustBe(l.veth().value.(wire.Veth))
	index := mustFind(t, hostEnd).Attrs().Index
	changed := l.veth(func(v *wire.Veth) {
		v.MTU = 9000
		v.Alias = alias + " again"
		v.MAC = mac2
		v.HostMAC = netaddr.MAC{2, 0, 0, 0, 0, 3}
	})
	l.mustCommit(changed)
	l.mustBe(changed.value.(wire.Veth))
	if now := mustFind(t, hostEnd).Attrs().Index; now != index {
		t.Error("the veth was recreated for changes that can be made in place")
	}
	renamed := l.veth(func(v *wire.Veth) { v.Name = "eth2" })
	l.mustCommit(renamed)
	l.mustBe(renamed.value.(wire.Veth))
	l.mustCommit(object{renamed.key, nil})
	if isThere(hostEnd) || l.isInPod("eth1") || l.isInPod("eth2") {
		t.Error("an end is left")
	}
}

func TestVethWithDefaultsOfTheKernel(t *testing.T) {
	l := newLab(t)
	l.mustCommit(l.namespace(), l.veth(func(v *wire.Veth) {
		v.MAC = netaddr.MAC{}
		v.HostMAC = netaddr.MAC{}
		v.MTU = 0
	}))
	l.quiet()
	l.mustCommit(object{wire.VethKey("pod-a"), nil})
	if isThere(hostEnd) {
		t.Error("an end is left")
	}
}

// spoilers are changes of a veth without the scheduler.
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
		"deleted":                 host(netlink.LinkDel),
		"deleted in the pod":      inPod(netlink.LinkDel),
		"down":                    host(netlink.LinkSetDown),
		"down in the pod":         inPod(netlink.LinkSetDown),
		"a larger MTU in the pod": inPod(func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1450) }),
		"another MTU":             host(func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1300) }),
		"another MAC in the pod":  inPod(func(l netlink.Link) error { return netlink.LinkSetHardwareAddr(l, mac2[:]) }),
		"no alias":                host(func(l netlink.Link) error { return netlink.LinkSetAlias(l, "") }),
		"no alias in the pod":     inPod(func(l netlink.Link) error { return netlink.LinkSetAlias(l, "") }),
		"ARP":                     host(netlink.LinkSetARPOn),
		"IPv6":                    host(write("ipv6/conf/"+hostEnd+"/disable_ipv6", "0")),
		"no reverse path filter":  host(write("ipv4/conf/"+hostEnd+"/rp_filter", "0")),
	}
}

func TestVethIsRepaired(t *testing.T) {
	for name, spoil := range spoilers() {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			veth := l.veth()
			l.mustCommit(l.namespace(), veth)
			spoil(l)
			if got := l.different(); !slices.Equal(got, []string{veth.key}) {
				t.Errorf("objects %v differ", got)
			}
			l.staysDifferent(veth.key)
			if _, err := l.s.Resync(t.Context(), kvscheduler.ResyncOpt{}); err != nil {
				t.Errorf("repair: %v", err)
			}
			l.mustBe(veth.value.(wire.Veth))
			spoil(l)
			l.mustCommit(object{veth.key, nil})
			if isThere(hostEnd) || isThere("eth1") || l.isInPod("eth1") {
				t.Error("an end is left")
			}
		})
	}
}

func TestObjectsOnAVethFollowIt(t *testing.T) {
	l := newLab(t)
	veth := l.veth()
	on := veth.key
	eth1 := func(p string) wire.LinuxAddress {
		return wire.LinuxAddress{On: veth.key, Namespace: l.path, Link: "eth1", Prefix: netip.MustParsePrefix(p)}
	}
	var all []object
	for _, p := range []string{"10.1.0.7/24", "fd00::7/128"} {
		all = append(all, object{wire.LinuxAddressKey(on, eth1(p).Prefix), eth1(p)})
	}
	gate := netip.MustParseAddr("fe80::1")
	far := netip.MustParsePrefix("10.9.0.0/16")
	all = append(all,
		object{
			wire.LinuxNeighbourKey(on, gate),
			wire.LinuxNeighbour{On: on, Namespace: l.path, Link: "eth1", Address: gate, MAC: mac2},
		},
		object{wire.LinuxRouteKey(on, far), wire.LinuxRoute{On: on, Namespace: l.path, Link: "eth1", Destination: far,
			Gateway: netip.MustParseAddr("10.1.0.1"), Source: netip.MustParseAddr("10.1.0.7")}},
		object{wire.SysctlKey(on, "net/ipv6/conf/eth1/accept_ra"),
			wire.Sysctl{On: on, Namespace: l.path, Name: "net/ipv6/conf/eth1/accept_ra", Value: "0"}})
	l.mustCommit(append(all, veth, l.namespace())...)
	l.quiet()
	renamed := l.veth(func(v *wire.Veth) { v.HostName = "weft-other" })
	l.mustCommit(renamed) // recreated, with all objects on it
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
		t.Error("an end is left")
	}
}

func TestHostIgnoresPacketsOfAPod(t *testing.T) {
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
		t.Error("the host receives packets of a pod to the MAC of the host's end")
	}
	for _, link := range []string{"all", hostEnd} { // isolation drops it otherwise
		must(t, os.WriteFile("/proc/sys/net/ipv4/conf/"+link+"/rp_filter", []byte("0"), 0))
	}
	if !arrives(time.Minute) {
		t.Error("the host receives no packets without isolation either")
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

// The host link is such a veth if the dataplane cannot make taps.
func TestVethWithBothEndsInTheNodesNamespace(t *testing.T) {
	l := newLab(t)
	veth := l.veth(func(v *wire.Veth) {
		v.Namespace = ""
		v.Name = "weft0"
	})
	want := veth.value.(wire.Veth)
	l.mustCommit(veth)
	mustLook(t, "weft0", want.MAC, want)
	mustLook(t, want.HostName, want.HostMAC, want)
	l.quiet()
	forwarding := wire.Sysctl{On: veth.key, Name: forwarding4, Value: "1"}
	l.mustCommit(object{wire.SysctlKey(veth.key, forwarding4), forwarding})
	l.quiet() // the dataplane's end has no forwarding
	must(t, netlink.LinkDel(mustFind(t, "weft0")))
	l.resync()
	mustLook(t, "weft0", want.MAC, want)
	l.quiet()
	l.mustCommit(object{wire.SysctlKey(veth.key, forwarding4), nil}, object{veth.key, nil})
	if isThere("weft0") || isThere(want.HostName) {
		t.Error("a deleted veth exists")
	}
}

func TestVethIsDeletedWithoutThePathOfItsNamespace(t *testing.T) {
	l := newLab(t)
	veth := l.veth()
	l.mustCommit(l.namespace(), veth)
	held, err := os.Open(l.path) // like a process in the namespace
	must(t, err)
	defer held.Close()
	netnstest.Remove(t, l.path)
	if !slices.Contains(l.different(), veth.key) {
		t.Error("the loss is not found")
	}
	if !isThere(hostEnd) {
		t.Fatal("the host's end is missing, but its namespace exists")
	}
	l.mustCommit(object{veth.key, nil})
	if isThere(hostEnd) {
		t.Error("the host's end is left")
	}
}

func TestVethEndsWithItsNamespace(t *testing.T) {
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

// A veth that an earlier agent made and did not record is found by its alias and pruned, or without one if the agent
// was killed before it set the alias. A foreign veth stays.
func TestUnrecordedVethIsPruned(t *testing.T) {
	l := newLab(t)
	l.mustCommit(append(l.ground(), l.veth())...)
	for name, tt := range map[string]struct {
		vethName func(host, alias string, mac netaddr.MAC) (object, ifName string, ok bool)
		unmarked bool
		stays    bool
	}{
		"a foreign veth": {
			vethName: func(string, string, netaddr.MAC) (string, string, bool) { return "", "", false }, stays: true,
		},
		"a veth of a pod": {vethName: func(host, is string, _ netaddr.MAC) (string, string, bool) {
			return "pod-a", "eth1", host == hostEnd && is == alias
		}},
		"a veth without an alias": {vethName: func(host, is string, mac netaddr.MAC) (string, string, bool) {
			return host, "", host == hostEnd && is == "" && mac == mac2
		}, unmarked: true},
	} {
		if tt.unmarked {
			must(t, netlink.LinkSetAlias(mustFind(t, hostEnd), ""))
		}
		next := kvscheduler.New(kvscheduler.Config{Sources: []string{"test"}})
		err := Register(next, Options{VethName: tt.vethName})
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
			t.Errorf("%s: the veth exists: %t", name, isThere(hostEnd))
		}
		l.resync() // recreates it
	}
}

// queued returns the veth with queues.
func (l *lab) queued(rx, tx int) object {
	return l.veth(func(v *wire.Veth) {
		v.RxQueues = rx
		v.TxQueues = tx
	})
}

// mustHaveQueues fails the test unless the pod's end has these queues and the host's end the reverse.
func (l *lab) mustHaveQueues(rx, tx int) {
	l.Helper()
	if r, w := netnstest.Queues(l.T, l.path, "eth1"); r != rx || w != tx {
		l.Errorf("the pod has %d RX and %d TX queues, want %d and %d", r, w, rx, tx)
	}
	if r, w := netnstest.Queues(l.T, "", hostEnd); r != tx || w != rx {
		l.Errorf("the host has %d RX and %d TX queues, want %d and %d", r, w, tx, rx)
	}
}

func TestVethIsRecreatedForOtherQueues(t *testing.T) {
	l := newLab(t)
	l.mustCommit(l.namespace(), l.veth())
	l.mustHaveQueues(1, 1)
	for _, q := range []struct{ rx, tx int }{{2, 3}, {4, 0}, {1, 2}, {16, 16}, {0, 0}} {
		l.mustCommit(l.queued(q.rx, q.tx))
		l.mustHaveQueues(max(q.rx, 1), max(q.tx, 1))
		l.quiet()
	}
	l.mustCommit(object{l.veth().key, nil})
	if isThere(hostEnd) || l.isInPod("eth1") {
		t.Error("an end is left behind")
	}
}

func TestVethWithOtherQueuesIsRecreatedByResync(t *testing.T) {
	l := newLab(t)
	l.mustCommit(l.namespace(), l.queued(2, 2))
	must(t, netlink.LinkDel(mustFind(t, hostEnd)))
	fd, err := unix.Open(l.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	other := netlink.NewVeth(netlink.LinkAttrs{
		Name:         hostEnd,
		HardwareAddr: mac2[:],
		TxQLen:       1000,
		NumRxQueues:  3,
		NumTxQueues:  3,
	})
	other.PeerName = "eth1"
	other.PeerNamespace = netlink.NsFd(fd)
	must(t, netlink.LinkAdd(other))
	must(t, netlink.LinkSetAlias(mustFind(t, hostEnd), alias))
	l.inside(func() { must(t, netlink.LinkSetAlias(mustFind(t, "eth1"), alias)) })
	if _, err := l.s.Resync(t.Context(), kvscheduler.ResyncOpt{}); err != nil {
		t.Errorf("repair: %v", err)
	}
	l.mustHaveQueues(2, 2)
	l.mustBe(l.queued(2, 2).value.(wire.Veth))
}

// addPairs makes veths with both ends in this namespace, and items for their deletion.
func addPairs(t *testing.T, count int) []vethItem {
	t.Helper()
	var batch []vethItem
	for i := range count {
		v := wire.Veth{Name: fmt.Sprintf("in-pod%d", i), HostName: fmt.Sprintf("on-node%d", i), Alias: alias}
		pair := netlink.NewVeth(netlink.NewLinkAttrs())
		pair.Name = v.HostName
		pair.PeerName = v.Name
		pair.Alias = v.Alias
		must(t, netlink.LinkAdd(pair))
		must(t, netlink.LinkSetAlias(pair, alias))
		batch = append(batch, kvscheduler.Item[wire.Veth, netnsID]{Name: v.HostName, Have: v})
	}
	return batch
}

// TestNamesOfDeletedVethsAreFreeAtOnce creates links while the kernel is still deleting those with the same names.
func TestNamesOfDeletedVethsAreFreeAtOnce(t *testing.T) {
	newLab(t)
	for range 3 {
		batch := addPairs(t, 2*maxDeletions+1)
		must(t, netlink.LinkDel(mustFind(t, batch[3].Have.HostName))) // deleted already
		vethDescriptor(Options{}).Backend.Delete(t.Context(), batch)
		for _, it := range batch {
			if it.Err != nil {
				t.Errorf("delete %s: %v", it.Name, it.Err)
			}
			if isThere(it.Have.HostName) || isThere(it.Have.Name) {
				t.Errorf("%s or its peer still exists", it.Name)
			}
		}
	}
}

// addPair makes a veth pair with its other end in the lab's namespace, without the configuration of Weft's veths.
func (l *lab) addPair(name, nameInPod string, mac netaddr.MAC) {
	l.Helper()
	pair := netlink.NewVeth(netlink.NewLinkAttrs())
	pair.Name = name
	pair.PeerName = nameInPod
	pair.HardwareAddr = mac[:]
	must(l.T, netlink.LinkAdd(pair))
	l.Cleanup(func() { _ = netlink.LinkDel(pair) })
	fd, _, err := open(l.path)
	must(l.T, err)
	must(l.T, netlink.LinkSetNsFd(mustFind(l.T, nameInPod), fd))
}

// tryVeth returns the error of one direct Create.
func (l *lab) tryVeth() error {
	l.Helper()
	netns := netnsID{}
	netns.Inode, netns.Device, _ = InspectNamespace(l.path)
	batch := []kvscheduler.Item[wire.Veth, netnsID]{
		{Name: "pod-a", Want: l.veth().value.(wire.Veth), Handles: []any{netns}},
	}
	vethDescriptor(Options{}).Backend.Create(l.Context(), batch)
	return batch[0].Err
}

func TestForeignLinksAreNotEndsOfAVeth(t *testing.T) {
	mark := func(l *lab, name string) { must(l.T, netlink.LinkSetAlias(mustFind(l.T, name), "another owner")) }
	for _, tt := range []struct {
		name string
		make func(l *lab)
		says string
	}{
		{"another type", func(l *lab) {
			addTap(l.T, hostEnd)
			link := mustFind(l.T, hostEnd)
			l.Cleanup(func() { _ = netlink.LinkDel(link) })
		}, hostEnd + " already exists: a tuntap"},
		{
			"another alias", func(l *lab) { l.addPair(hostEnd, "eth9", mac2); mark(l, hostEnd) },
			`belongs to "another owner"`,
		},
		{
			"no alias and another MAC", func(l *lab) { l.addPair(hostEnd, "eth9", mac1) },
			hostEnd + " already exists: a veth",
		},
		{
			"another link in the pod", func(l *lab) { l.inside(func() { addTap(l.T, "eth1") }) },
			"link eth1 already exists: a tuntap without an alias of Weft",
		},
		{
			"a foreign veth in the pod", func(l *lab) { l.addPair("veth-other", "eth1", mac1) },
			"link eth1 already exists: a veth",
		},
		{"a foreign veth with an alias in the pod", func(l *lab) {
			l.addPair("veth-other", "eth1", mac1)
			l.inside(func() { mark(l, "eth1") })
		}, `belongs to "another owner"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t)
			tt.make(l)
			before := isThere(hostEnd)
			inPod := l.isInPod("eth1")
			if err := l.tryVeth(); err == nil || !isPermanent(err) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v (permanent %v), want one that says %q", err, isPermanent(err), tt.says)
			}
			if isThere(hostEnd) != before || l.isInPod("eth1") != inPod {
				t.Error("a link was made or removed")
			}
			batch := []kvscheduler.Item[wire.Veth, netnsID]{{Name: "pod-a", Have: l.veth().value.(wire.Veth)}}
			vethDescriptor(Options{}).Backend.Delete(t.Context(), batch)
			if batch[0].Err != nil || isThere(hostEnd) != before || l.isInPod("eth1") != inPod {
				t.Errorf("the delete touched the foreign link: %v", batch[0].Err)
			}
		})
	}
}

func TestVethOfAnInterruptedCreateIsCompleted(t *testing.T) {
	for name, ruin := range map[string]func(l *lab){
		"before its alias": func(l *lab) { l.addPair(hostEnd, "eth1", mac2) },
		"with the alias of the host's end": func(l *lab) {
			l.addPair(hostEnd, "eth1", mac2)
			must(l.T, netlink.LinkSetAlias(mustFind(l.T, hostEnd), alias))
		},
		"with its other end under another name": func(l *lab) { l.addPair(hostEnd, "eth7", mac2) },
		"with its host's end under another name": func(l *lab) {
			l.addPair("weft-old", "eth1", mac2)
			l.inside(func() { must(l.T, netlink.LinkSetAlias(mustFind(l.T, "eth1"), alias)) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			ruin(l)
			veth := l.veth()
			l.mustCommit(l.namespace(), veth)
			l.mustBe(veth.value.(wire.Veth))
			if err := l.tryVeth(); err != nil {
				t.Errorf("create what is there: %v", err)
			}
			l.mustBe(veth.value.(wire.Veth))
			l.mustCommit(object{veth.key, nil})
			for _, link := range []string{hostEnd, "weft-old"} {
				if isThere(link) {
					t.Errorf("%s is left behind", link)
				}
			}
		})
	}
}

func TestVethThatCannotBeConfiguredIsRemoved(t *testing.T) {
	l := newLab(t)
	long := l.veth(func(v *wire.Veth) { v.Alias = strings.Repeat("a", maxAlias+1) }).value.(wire.Veth)
	netns := netnsID{}
	netns.Inode, netns.Device, _ = InspectNamespace(l.path)
	batch := []kvscheduler.Item[wire.Veth, netnsID]{{Name: "pod-a", Want: long, Handles: []any{netns}}}
	vethDescriptor(Options{}).Backend.Create(t.Context(), batch)
	if err := batch[0].Err; err == nil || !strings.Contains(err.Error(), "set alias of "+hostEnd) {
		t.Errorf("an alias that the kernel rejects: %v", err)
	}
	if isThere(hostEnd) || l.isInPod("eth1") {
		t.Error("an end is left behind")
	}
}
