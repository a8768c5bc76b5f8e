package linux

import (
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// addPair makes a veth pair with its other end in the lab's namespace, without the configuration of Weft's veths.
func (l *lab) addPair(name, nameInPod string, mac wire.MAC) {
	l.Helper()
	pair := netlink.NewVeth(netlink.NewLinkAttrs())
	pair.Name, pair.PeerName, pair.HardwareAddr = name, nameInPod, mac[:]
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
	batch := []kvscheduler.Item[wire.Veth, netnsID]{{Name: "pod-a", Want: l.veth().value.(wire.Veth), Handles: []any{netns}}}
	veths{}.Create(l.Context(), batch)
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
		{"another alias", func(l *lab) { l.addPair(hostEnd, "eth9", mac2); mark(l, hostEnd) }, `belongs to "another owner"`},
		{"no alias and another MAC", func(l *lab) { l.addPair(hostEnd, "eth9", mac1) }, hostEnd + " already exists: a veth"},
		{"another link in the pod", func(l *lab) { l.inside(func() { addTap(l.T, "eth1") }) }, "link eth1 already exists: a tuntap"},
		{"a foreign veth in the pod", func(l *lab) { l.addPair("veth-other", "eth1", mac1) }, "link eth1 already exists: a veth"},
		{"a foreign veth with an alias in the pod", func(l *lab) {
			l.addPair("veth-other", "eth1", mac1)
			l.inside(func() { mark(l, "eth1") })
		}, `belongs to "another owner"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t)
			tt.make(l)
			before, inPod := isThere(hostEnd), l.isInPod("eth1")
			if err := l.tryVeth(); err == nil || !isPermanent(err) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v (permanent %v), want one that says %q", err, isPermanent(err), tt.says)
			}
			if isThere(hostEnd) != before || l.isInPod("eth1") != inPod {
				t.Error("a link was made or removed")
			}
			batch := []kvscheduler.Item[wire.Veth, netnsID]{{Name: "pod-a", Have: l.veth().value.(wire.Veth)}}
			veths{}.Delete(t.Context(), batch)
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
	veths{}.Create(t.Context(), batch)
	if err := batch[0].Err; err == nil || !strings.Contains(err.Error(), "set alias of "+hostEnd) {
		t.Errorf("an alias that the kernel rejects: %v", err)
	}
	if isThere(hostEnd) || l.isInPod("eth1") {
		t.Error("an end is left behind")
	}
}
