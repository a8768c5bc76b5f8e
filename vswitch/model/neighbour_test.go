package model

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/frame"
	"github.com/weftnet/weft/vswitch/model/modeltest"
)

func TestNeighbourHasHostRouteOnlyIfItsPrefixIsAttached(t *testing.T) {
	host := netip.MustParseAddr("10.0.0.9")
	for name, c := range map[string]struct {
		prepare func(t *testing.T, b *testModel, on uint32)
		want    bool
	}{
		"no covering prefix": {func(*testing.T, *testModel, uint32) {}, false},
		"the interface's own prefix": {func(t *testing.T, b *testModel, on uint32) {
			do(t, b.Addresses.Add(on, netip.MustParsePrefix("10.0.0.1/24")))
		}, true},
		"another interface's prefix": {
			func(t *testing.T, b *testModel, _ uint32) { b.loopback(t, "10.0.0.1/24") }, false,
		},
		"the donor's prefix": {func(t *testing.T, b *testModel, on uint32) {
			do(t, b.Addresses.SetUnnumbered(on, b.loopback(t, "10.0.0.1/24")))
		}, true},
		"a route attached to the interface": {func(t *testing.T, b *testModel, on uint32) {
			b.route(t, "10.0.0.0/24", Path{Interface: on})
		}, true},
		"a route with a next hop on the interface": {func(t *testing.T, b *testModel, on uint32) {
			b.route(t, "10.0.0.0/24", Path{Interface: on, NextHop: netip.MustParseAddr("10.0.0.2")})
		}, false},
		"an attached prefix with a longer drop prefix": {func(t *testing.T, b *testModel, on uint32) {
			do(t, b.Addresses.Add(on, netip.MustParsePrefix("10.0.0.1/24")))
			b.route(t, "10.0.0.8/30", Path{Kind: PathDrop, Interface: NoIndex})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, neighbourFirst := range []bool{true, false} {
				b := newTestModel()
				on := b.tap(t)
				if !neighbourFirst {
					c.prepare(t, b, on)
				}
				do(t, b.Neighbours.Add(Neighbour{Index: on, Addr: host, MAC: someMAC, Static: true}))
				if neighbourFirst {
					c.prepare(t, b, on)
				}
				r, ok := b.forwarded(0, "10.0.0.9/32")
				if ok != c.want || ok && !slices.Equal(over(r), []uint32{on}) {
					t.Fatalf("neighbour first %v: %+v, %v", neighbourFirst, r, ok)
				}
			}
		})
	}
}

func TestLearnedNeighbourDoesNotChangeStaticOne(t *testing.T) {
	b := newTestModel()
	on := b.tap(t)
	host := netip.MustParseAddr("10.0.0.9")
	do(t, b.Neighbours.Add(Neighbour{Index: on, Addr: host, MAC: someMAC, Static: true}))
	b.Handle(forward.Event{Kind: forward.NeighbourLearned, Interface: on, Addr: host, MAC: frame.MAC{2, 6, 6, 6, 6, 6}})
	if list := b.Neighbours.List(on, forward.IP4); len(list) != 1 || list[0].MAC != someMAC || !list[0].Static {
		t.Fatalf("%+v", list)
	}
	if err := b.Neighbours.Add(Neighbour{Index: on, Addr: host, MAC: frame.MAC{2, 6}}); !errors.Is(err,
		errStaticNeighbour) {
		t.Fatal(err)
	}
}

func TestLearnedNeighboursAreDeletedWithTheirPrefixAndOnLinkDown(t *testing.T) {
	b := newTestModel()
	on := b.loopback(t, "10.0.0.1/24", "10.1.0.1/24")
	learn := func(a string) {
		b.Handle(forward.Event{
			Kind:      forward.NeighbourLearned,
			Interface: on,
			Addr:      netip.MustParseAddr(a),
			MAC:       someMAC,
		})
	}
	learn("10.0.0.9")
	learn("10.1.0.9")
	do(t, b.Neighbours.Add(Neighbour{Index: on, Addr: netip.MustParseAddr("10.0.0.8"), MAC: someMAC, Static: true}))
	left := func() (list []string) {
		for _, n := range b.Neighbours.List(NoIndex, forward.IP4) {
			list = append(list, n.Addr.String())
		}
		return list
	}
	do(t, b.Addresses.Delete(on, netip.MustParsePrefix("10.0.0.1/24")))
	if got := left(); !slices.Equal(got, []string{"10.0.0.8", "10.1.0.9"}) {
		t.Fatal("after delete of the address:", got)
	}
	do(t, b.SetAdminUp(on, false))
	if got := left(); !slices.Equal(got, []string{"10.0.0.8"}) {
		t.Fatal("after set down:", got)
	}
}

func TestEventsOfDeletedInterfacesAreIgnored(t *testing.T) {
	b := newTestModel()
	for _, kind := range []forward.EventKind{forward.PortDown, forward.PortUp, forward.NeighbourLearned} {
		b.Handle(forward.Event{Kind: kind, Interface: 99, Addr: netip.MustParseAddr("10.0.0.9")})
	}
	if len(b.events) != 0 {
		t.Fatalf("%+v", b.events)
	}
	b.engine.Look(func(s modeltest.State) {
		if len(s.Neighbours) != 0 {
			t.Fatalf("%+v", s.Neighbours)
		}
	})
}

func TestPortFailureSetsLinkDownAndRecoveryUp(t *testing.T) {
	b := newTestModel()
	on := b.tap(t)
	b.events = nil
	for _, kind := range []forward.EventKind{forward.PortDown, forward.PortDown, forward.PortUp} {
		b.Handle(forward.Event{Kind: kind, Interface: on, Err: errors.New("port error")})
	}
	if want := []InterfaceEvent{{Index: on}, {Index: on, LinkUp: true}}; !slices.Equal(b.events, want) {
		t.Fatalf("%+v, wanted %+v", b.events, want)
	}
}

func TestNumberOfNeighboursIsLimited(t *testing.T) {
	b := newTestModel()
	on := b.tap(t)
	b.Model.Neighbours.count[forward.IP4] = maxNeighbours - 1
	do(t, b.Neighbours.Add(Neighbour{Index: on, Addr: netip.MustParseAddr("10.0.0.1"), MAC: someMAC}))
	err := b.Neighbours.Add(Neighbour{Index: on, Addr: netip.MustParseAddr("10.0.0.2"), MAC: someMAC})
	if !errors.Is(err, LimitExceeded) {
		t.Fatal(err)
	}
	do(t, b.Neighbours.Add(Neighbour{Index: on, Addr: netip.MustParseAddr("10.0.0.1"), MAC: frame.MAC{2, 9}}))
}
