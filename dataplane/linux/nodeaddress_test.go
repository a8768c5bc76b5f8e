package linux

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
)

func addTo(t *testing.T, l netlink.Link, prefix string) {
	t.Helper()
	if err := netlink.AddrAdd(l, kernelAddress(netip.MustParsePrefix(prefix))); err != nil {
		t.Fatal(err)
	}
}

func TestAddressesOfTheNodeAreThoseThatPacketsOfPodsReach(t *testing.T) {
	netnstest.Require(t)
	card := makeVeth(t, "card0")
	isolated := makeVeth(t, "vrf0")
	t.Cleanup(func() { _ = netlink.LinkDel(card); _ = netlink.LinkDel(isolated) })
	for _, prefix := range []string{"10.1.0.3/32", "10.200.0.1/24", "fd00:1::3/128", "169.254.9.9/32"} {
		addTo(t, card, prefix)
	}
	want := map[netip.Addr]string{}
	for _, address := range []string{"10.1.0.3", "10.200.0.1", "fd00:1::3"} {
		want[netip.MustParseAddr(address)] = "card0"
	}
	addTo(t, isolated, "10.1.0.4/32")
	vrf := &netlink.Vrf{LinkAttrs: netlink.LinkAttrs{Name: "blue0"}, Table: 1234}
	switch err := netlink.LinkAdd(vrf); {
	case errors.Is(err, unix.EOPNOTSUPP): // a kernel without VRFs: the link is not in one
		want[netip.MustParseAddr("10.1.0.4")] = "vrf0"
	case err != nil:
		t.Fatal(err)
	default:
		t.Cleanup(func() { _ = netlink.LinkDel(vrf) })
		if err := netlink.LinkSetMaster(isolated, vrf); err != nil {
			t.Fatal(err)
		}
		addTo(t, vrf, "10.1.0.5/32")
	}
	got, err := NodeAddresses()
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("addresses %v, %v, want %v", got, err, want)
	}
}

// A kernel of tests may have no VRFs.
func TestLinksInAVRFDoNotCount(t *testing.T) {
	at := func(index, master int, name string) netlink.LinkAttrs {
		return netlink.LinkAttrs{Index: index, MasterIndex: master, Name: name}
	}
	got := namesOutsideVRFs([]netlink.Link{
		&netlink.Dummy{LinkAttrs: at(2, 4, "member")}, &netlink.Vrf{LinkAttrs: at(4, 0, "vrf")},
		&netlink.Bridge{LinkAttrs: at(5, 0, "bridge")}, &netlink.Dummy{LinkAttrs: at(6, 5, "port")},
	})
	if want := map[int]string{5: "bridge", 6: "port"}; !maps.Equal(got, want) {
		t.Errorf("links %v, want %v", got, want)
	}
}

func TestChangesOfTheNodesAddressesAreNotified(t *testing.T) {
	netnstest.Require(t)
	card := makeVeth(t, "card0")
	t.Cleanup(func() { _ = netlink.LinkDel(card) })
	ctx, cancel := context.WithCancel(t.Context())
	notified := make(chan struct{}, 100)
	ended := make(chan error, 1)
	go func() { ended <- WatchNodeAddresses(ctx, func() { notified <- struct{}{} }) }()
	next := func(what string) {
		t.Helper()
		select {
		case <-notified:
		case <-time.After(30 * time.Second):
			t.Fatal("no notification of " + what)
		}
	}
	next("the begin")
	addTo(t, card, "10.1.0.3/32")
	next("an added address")
	if err := netlink.AddrDel(card, kernelAddress(netip.MustParsePrefix("10.1.0.3/32"))); err != nil {
		t.Fatal(err)
	}
	next("a deleted address")
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the end: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the watch did not end")
	}
}
