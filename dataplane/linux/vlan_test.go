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

// plug makes a foreign network card.
func plug(t *testing.T) netlink.Link {
	t.Helper()
	pair := netlink.NewVeth(netlink.NewLinkAttrs())
	pair.Name = card
	pair.PeerName = card + "p"
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

// requireVLAN skips the test if the kernel does not support VLAN links.
func requireVLAN(t *testing.T) {
	t.Helper()
	parent := plug(t)
	vlan := &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "probe", ParentIndex: parent.Attrs().Index}, VlanId: 1}
	err := netlink.LinkAdd(vlan)
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("needs VLAN links (kernel module 8021q)")
	}
	must(t, err)
	must(t, netlink.LinkDel(vlan))
	unplug(t)
}

func TestForeignLinkIsFoundSetUpAndKept(t *testing.T) {
	l := newLab(t)
	if err := l.commit(linkObject()); err == nil || !strings.Contains(err.Error(), "link card0: no such link") {
		t.Errorf("without the link: %v", err)
	}
	alias := "another owner"
	must(t, netlink.LinkSetAlias(plug(t), alias))
	l.mustCommit(linkObject())
	l.quiet()
	if link := mustFind(t, card); !isUp(link) || link.Attrs().Alias != alias {
		t.Errorf("the link is %+v", link.Attrs())
	}
	must(t, netlink.LinkSetDown(mustFind(t, card)))
	if got := l.different(); len(got) != 1 || CheckLinkUp(card) == nil {
		t.Errorf("a link that is down is not found to differ: %v, %v", got, CheckLinkUp(card))
	}
	l.repair()
	l.quiet()
	if err := CheckLinkUp(card); err != nil {
		t.Error(err)
	}
	l.mustCommit(object{wire.LinkKey(card), nil})
	if link := mustFind(t, card); !isUp(link) || link.Attrs().Alias != alias {
		t.Errorf("after the delete the link is %+v", link.Attrs())
	}
}

// repair resyncs links and VLANs.
func (l *lab) repair() {
	l.Helper()
	if _, err := l.s.Resync(l.Context(), kvscheduler.ResyncOpt{
		Kinds: []kvscheduler.Kind{wire.KindLink, wire.KindVLAN},
	}); err != nil {
		l.Log("resync: ", err)
	}
}

func TestALinkThatComesBackIsUsedAgain(t *testing.T) {
	l := newLab(t)
	plug(t)
	l.mustCommit(linkObject())
	unplug(t)
	l.repair()
	if status, _ := l.s.View().Status(kvscheduler.Ref{
		Kind: wire.KindLink,
		Name: card,
	}); status.Phase == kvscheduler.InSync || status.RetryAt.IsZero() {
		t.Errorf("without the link the status is %+v", status)
	}
	plug(t)
	l.repair()
	l.quiet()
	if err := CheckLinkUp(card); err != nil {
		t.Error(err)
	}
}

// VPP sets a link down when it releases it.
func TestDeleteOfALinkLeavesItUp(t *testing.T) {
	l := newLab(t)
	plug(t)
	l.mustCommit(linkObject())
	must(t, netlink.LinkSetDown(mustFind(t, card)))
	l.mustCommit(object{key: wire.LinkKey(card)})
	if err := CheckLinkUp(card); err != nil {
		t.Error(err)
	}
}

func TestALinkThatIsNotEthernetIsAnError(t *testing.T) {
	l := newLab(t)
	if err := l.commit(object{wire.LinkKey("lo"), wire.Link{Name: "lo"}}); err == nil ||
		!strings.Contains(err.Error(), "link lo has type loopback, not Ethernet") {
		t.Errorf("lo: %v", err)
	}
}

func TestAVLANNeedsItsParent(t *testing.T) {
	l := newLab(t)
	if err := l.commit(vlanObject()); err == nil || !strings.Contains(err.Error(), wire.LinkKey(card)) {
		t.Errorf("without the parent: %v, want an error with %q", err, wire.LinkKey(card))
	}
}

func TestAVLANWithTheNameOfAnotherLinkIsAnError(t *testing.T) {
	l := newLab(t)
	plug(t)
	other := netlink.NewVeth(netlink.NewLinkAttrs())
	other.Name = vlanLink
	other.PeerName = vlanLink + "p"
	must(t, netlink.LinkAdd(other))
	t.Cleanup(func() { _ = netlink.LinkDel(other) })
	err := l.commit(linkObject(), vlanObject())
	if err == nil || !strings.Contains(err.Error(), "link weftvlan already exists: a veth") {
		t.Errorf("with another link of that name: %v", err)
	}
	if !isThere(vlanLink) {
		t.Error("the other link was deleted")
	}
}

func TestVLANIsCreatedReadUpdatedAndDeleted(t *testing.T) {
	l := newLab(t)
	requireVLAN(t)
	plug(t)
	l.mustCommit(linkObject(), vlanObject())
	l.quiet()
	for _, change := range []func(*wire.VLAN){
		func(v *wire.VLAN) { v.Alias = "weft:external:b" }, func(v *wire.VLAN) { v.ID = 6 }, func(v *wire.VLAN) {
			v.Name = "weftother"
		},
	} {
		l.mustCommit(vlanObject(change))
		l.quiet()
	}
	l.mustCommit(vlanObject())
	if vlan, is := mustFind(t, vlanLink).(*netlink.Vlan); !is || vlan.VlanId != 5 || !isIsolated(vlan) ||
		isThere("weftother") {
		t.Errorf("the link is %+v", vlan)
	}
	must(t, netlink.LinkDel(mustFind(t, vlanLink)))
	l.repair()
	l.quiet()
	unplug(t)
	plug(t)
	l.repair()
	l.quiet()
	must(t, RemoveVLANs("weft:others:"))
	l.quiet()
	must(t, RemoveVLANs("weft:external:"))
	if isThere(vlanLink) {
		t.Error("the VLAN link is left after RemoveVLANs")
	}
	l.repair()
	l.mustCommit(object{wire.VLANKey("a"), nil})
	if isThere(vlanLink) || !isThere(card) {
		t.Error("the VLAN link exists, or the other link does not")
	}
}
