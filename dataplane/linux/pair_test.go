package linux

import (
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// addPair makes a veth pair with its other end in the lab's namespace, and nothing else of what ours get.
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

// tryVeth is the error of one direct Create.
func (l *lab) tryVeth() error {
	l.Helper()
	place := Place{}
	place.Inode, place.Device, _ = Inspect(l.path)
	batch := []kvscheduler.Item[wire.Veth, Place]{{Name: "pod-a", Want: l.veth().value.(wire.Veth), Handles: []any{place}}}
	veths{}.Create(l.Context(), batch)
	return batch[0].Err
}

func TestLinksOfOthersAreNotTakenForAnEnd(t *testing.T) {
	mark := func(l *lab, name string) { must(l.T, netlink.LinkSetAlias(mustFind(l.T, name), "somebody else")) }
	for _, tt := range []struct {
		name string
		make func(l *lab)
		says string
	}{
		{"another type", func(l *lab) {
			addTap(l.T, hostEnd)
			link := mustFind(l.T, hostEnd)
			l.Cleanup(func() { _ = netlink.LinkDel(link) })
		}, hostEnd + " is there already, a tuntap"},
		{"another alias", func(l *lab) { l.addPair(hostEnd, "eth9", mac2); mark(l, hostEnd) }, `belongs to "somebody else"`},
		{"no alias and another MAC", func(l *lab) { l.addPair(hostEnd, "eth9", mac1) }, hostEnd + " is there already, a veth"},
		{"another link in the pod", func(l *lab) { l.inside(func() { addTap(l.T, "eth1") }) }, "eth1 in network namespace"},
		{"another's veth in the pod", func(l *lab) { l.addPair("veth-other", "eth1", mac1) }, "eth1 in network namespace"},
		{"another's veth with an alias in the pod", func(l *lab) {
			l.addPair("veth-other", "eth1", mac1)
			l.inside(func() { mark(l, "eth1") })
		}, `belongs to "somebody else"`},
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
			batch := []kvscheduler.Item[wire.Veth, Place]{{Name: "pod-a", Have: l.veth().value.(wire.Veth)}}
			veths{}.Delete(t.Context(), batch)
			if batch[0].Err != nil || isThere(hostEnd) != before || l.isInPod("eth1") != inPod {
				t.Errorf("deletion of ours touches the link of others: %v", batch[0].Err)
			}
		})
	}
}

func TestVethThatDiedHalfMadeIsFinished(t *testing.T) {
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

func TestVethThatCannotBeFinishedIsRemoved(t *testing.T) {
	l := newLab(t)
	long := l.veth(func(v *wire.Veth) { v.Alias = strings.Repeat("a", maxAlias+1) }).value.(wire.Veth)
	place := Place{}
	place.Inode, place.Device, _ = Inspect(l.path)
	batch := []kvscheduler.Item[wire.Veth, Place]{{Name: "pod-a", Want: long, Handles: []any{place}}}
	veths{}.Create(t.Context(), batch)
	if err := batch[0].Err; err == nil || !strings.Contains(err.Error(), "set alias of "+hostEnd) {
		t.Errorf("an alias that the kernel does not take: %v", err)
	}
	if isThere(hostEnd) || l.isInPod("eth1") {
		t.Error("an end is left behind")
	}
}

func TestInvalidVethsAreFoundBeforeTheKernelSeesThem(t *testing.T) {
	veth := func(change func(*wire.Veth)) string {
		v := wire.Veth{Namespace: "/run/netns/a", Name: "eth1", HostName: hostEnd, Alias: alias}
		change(&v)
		return fault(validateVeth, "pod-a", v)
	}
	for _, tt := range []struct{ name, got, want string }{
		{"a good pair", veth(func(*wire.Veth) {}), ""},
		{"two ends of one name in one namespace", veth(func(v *wire.Veth) { v.Namespace, v.HostName = "", v.Name }), "both ends are named"},
		{"a pair without alias", veth(func(v *wire.Veth) { v.Alias = "" }), "1 to 255 bytes"},
		{"a long name in the pod", veth(func(v *wire.Veth) { v.Name = "sixteen-bytes-xx" }), "1 to 15 bytes"},
		{"a host's end without name", veth(func(v *wire.Veth) { v.HostName = "" }), "1 to 15 bytes"},
		{"a multicast MAC", veth(func(v *wire.Veth) { v.HostMAC[0] = 1 }), "not that of one interface"},
		{"a small MTU", veth(func(v *wire.Veth) { v.MTU = 60 }), "not within"},
	} {
		if tt.want == "" && tt.got != "" || !strings.Contains(tt.got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, tt.got, tt.want)
		}
	}
}
