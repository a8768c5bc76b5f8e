package linux

import (
	"errors"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

const (
	card     = "card0"
	vlanLink = "weftvlan"
)

// plug gives the node a network card, which another component made.
func plug(t *testing.T) netlink.Link {
	t.Helper()
	pair := netlink.NewVeth(netlink.NewLinkAttrs())
	pair.Name, pair.PeerName = card, card+"p"
	must(t, netlink.LinkAdd(pair))
	t.Cleanup(func() { _ = netlink.LinkDel(pair) })
	return mustFind(t, card)
}

func unplug(t *testing.T) {
	t.Helper()
	must(t, netlink.LinkDel(mustFind(t, card)))
}

func linkObject() object { return object{wire.LinkKey(card), wire.Link{Name: card, Up: true}} }

func vlanObject(change ...func(*wire.VLAN)) object {
	v := wire.VLAN{Parent: card, ID: 5, Name: vlanLink, Alias: "weft:external:a", Up: true}
	for _, f := range change {
		f(&v)
	}
	return object{wire.VLANKey("a"), v}
}

// requireVLAN skips the test where the kernel has no links of VLANs.
func requireVLAN(t *testing.T) {
	t.Helper()
	parent := plug(t)
	vlan := &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "probe", ParentIndex: parent.Attrs().Index}, VlanId: 1}
	err := netlink.LinkAdd(vlan)
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("needs links of VLANs, which this kernel does not have (module 8021q)")
	}
	must(t, err)
	must(t, netlink.LinkDel(vlan))
	unplug(t)
}

func TestALinkOfOthersIsFoundSetUpAndLeftToThem(t *testing.T) {
	l := newLab(t)
	if err := l.commit(linkObject()); err == nil || !strings.Contains(err.Error(), "link card0: no such link") {
		t.Errorf("without the link: %v", err)
	}
	alias := "somebody else's"
	must(t, netlink.LinkSetAlias(plug(t), alias))
	l.mustCommit(linkObject())
	l.quiet()
	if link := mustFind(t, card); !isUp(link) || link.Attrs().Alias != alias {
		t.Errorf("the link is %+v", link.Attrs())
	}
	must(t, netlink.LinkSetDown(mustFind(t, card)))
	if got := l.different(); len(got) != 1 || LinkFault(card) == nil {
		t.Errorf("a link that is down is not seen: %v, %v", got, LinkFault(card))
	}
	l.lookAgain()
	l.quiet()
	if err := LinkFault(card); err != nil {
		t.Error(err)
	}
	l.mustCommit(object{wire.LinkKey(card), nil})
	if link := mustFind(t, card); !isUp(link) || link.Attrs().Alias != alias {
		t.Errorf("what is left of the link is %+v", link.Attrs())
	}
}

// lookAgain repairs links, as far as that goes now.
func (l *lab) lookAgain() {
	l.Helper()
	if _, err := l.s.Resync(l.Context(), kvscheduler.ResyncOpt{Kinds: []kvscheduler.Kind{wire.KindLink, wire.KindVLAN}}); err != nil {
		l.Log("not all is repaired: ", err)
	}
}

func TestALinkThatGoesIsTakenUpAgainWhenItComesBack(t *testing.T) {
	l := newLab(t)
	plug(t)
	l.mustCommit(linkObject())
	unplug(t)
	l.lookAgain()
	if status, _ := l.s.View().Status(kvscheduler.Ref{Kind: wire.KindLink, Name: card}); status.Phase == kvscheduler.InSync || status.RetryAt.IsZero() {
		t.Errorf("without its link the object is %+v", status)
	}
	plug(t)
	l.lookAgain()
	l.quiet()
	if err := LinkFault(card); err != nil {
		t.Error(err)
	}
}

// VPP sets a link down when it lets go of it.
func TestALinkIsUpWhenItIsForgotten(t *testing.T) {
	l := newLab(t)
	plug(t)
	l.mustCommit(linkObject())
	must(t, netlink.LinkSetDown(mustFind(t, card)))
	l.mustCommit(object{key: wire.LinkKey(card)})
	if err := LinkFault(card); err != nil {
		t.Error(err)
	}
}

func TestALinkThatIsNotEthernetIsRefused(t *testing.T) {
	l := newLab(t)
	if err := l.commit(object{wire.LinkKey("lo"), wire.Link{Name: "lo"}}); err == nil || !strings.Contains(err.Error(), "link lo is of type loopback, and not Ethernet") {
		t.Errorf("lo: %v", err)
	}
}

func TestAVLANNeedsItsLinkAndWhatItIsMadeOf(t *testing.T) {
	l := newLab(t)
	for name, tt := range map[string]struct {
		change func(*wire.VLAN)
		want   string
	}{
		"no ID":           {func(v *wire.VLAN) { v.ID = 0 }, "VLAN 0 is not within 1 and 4094"},
		"a reserved ID":   {func(v *wire.VLAN) { v.ID = 4095 }, "VLAN 4095 is not within 1 and 4094"},
		"no alias":        {func(v *wire.VLAN) { v.Alias = "" }, "alias: it has 1 to 255 bytes"},
		"a long name":     {func(v *wire.VLAN) { v.Name = "a.name.of.no.link" }, "a link's name has 1 to 15 bytes"},
		"no other link":   {func(v *wire.VLAN) { v.Parent = "" }, "a link's name has 1 to 15 bytes"},
		"nothing desired": {func(*wire.VLAN) {}, wire.LinkKey(card)},
	} {
		if err := l.commit(vlanObject(tt.change)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

func TestAVLANThatTheKernelDoesNotMakeIsAnErrorThatSaysSo(t *testing.T) {
	l := newLab(t)
	plug(t)
	other := netlink.NewVeth(netlink.NewLinkAttrs())
	other.Name, other.PeerName = vlanLink, vlanLink+"p"
	must(t, netlink.LinkAdd(other))
	t.Cleanup(func() { _ = netlink.LinkDel(other) })
	err := l.commit(linkObject(), vlanObject())
	if err == nil || !strings.Contains(err.Error(), "link weftvlan is there already, a veth") {
		t.Errorf("in the place of another link: %v", err)
	}
	if !isThere(vlanLink) {
		t.Error("the other link is gone")
	}
}

func TestAVLANIsMadeReadBackChangedAndRemoved(t *testing.T) {
	l := newLab(t)
	requireVLAN(t)
	plug(t)
	l.mustCommit(linkObject(), vlanObject())
	l.quiet()
	for _, change := range []func(*wire.VLAN){
		func(v *wire.VLAN) { v.Alias = "weft:external:b" }, func(v *wire.VLAN) { v.ID = 6 }, func(v *wire.VLAN) { v.Name = "weftother" },
	} {
		l.mustCommit(vlanObject(change))
		l.quiet()
	}
	l.mustCommit(vlanObject())
	if vlan, is := mustFind(t, vlanLink).(*netlink.Vlan); !is || vlan.VlanId != 5 || !isSealed(vlan) || isThere("weftother") {
		t.Errorf("the link is %+v", vlan)
	}
	must(t, netlink.LinkDel(mustFind(t, vlanLink)))
	l.lookAgain()
	l.quiet()
	unplug(t)
	plug(t)
	l.lookAgain()
	l.quiet()
	must(t, RemoveVLANs("weft:others:"))
	l.quiet()
	must(t, RemoveVLANs("weft:external:"))
	if isThere(vlanLink) {
		t.Error("the VLAN's link outlived the agent")
	}
	l.lookAgain()
	l.mustCommit(object{wire.VLANKey("a"), nil})
	if isThere(vlanLink) || !isThere(card) {
		t.Error("the VLAN's link is there still, or the other one is not")
	}
}
