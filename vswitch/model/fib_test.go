package model

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weftnet/weft/vswitch/forward"
)

func TestRouteUsesUsablePathsOfLowestPreference(t *testing.T) {
	b := newTestModel()
	one := b.tap(t)
	two := b.tap(t)
	spare := b.tap(t)
	b.route(t, "10.1.0.0/16", Path{Interface: one}, Path{Interface: two}, Path{Interface: spare, Preference: 1})
	check := func(when string, want ...uint32) {
		t.Helper()
		r, _ := b.forwarded(0, "10.1.0.0/16")
		if got := over(r); !slices.Equal(got, want) || (r.Action == forward.Drop) != (len(want) == 0) {
			t.Fatalf("%s: over %v, wanted %v", when, got, want)
		}
	}
	check("all up", one, two)
	do(t, b.SetAdminUp(one, false))
	check("one down", two)
	b.Handle(forward.Event{Kind: forward.PortDown, Interface: two})
	check("port of two failed", spare)
	do(t, b.SetAdminUp(spare, false))
	check("all down")
	b.Handle(forward.Event{Kind: forward.PortUp, Interface: two})
	check("port of two recovered", two)
}

func TestRouteOverDeletedInterfaceStaysAndDrops(t *testing.T) {
	b := newTestModel()
	index := b.tap(t)
	b.route(t, "10.1.0.0/16", Path{Interface: index})
	do(t, b.Taps.Delete(index))
	b.Interfaces.lastIndex = index - 1 // as after 65,536 more interfaces
	if again := b.tap(t); again != index {
		t.Fatalf("index is %d, want %d", again, index)
	}
	if r, ok := b.forwarded(0, "10.1.0.0/16"); !ok || r.Action != forward.Drop {
		t.Fatalf("the route uses the new interface of the index: %+v", r)
	}
	routes := b.Routes.List(forward.TableKey{Family: forward.IP4}, SourceAPI)
	if len(routes) != 1 || routes[0].Paths[0].Interface != index {
		t.Fatalf("the dump: %+v", routes)
	}
}

func TestTableExistsWhileARouteLooksUpInIt(t *testing.T) {
	b := newTestModel()
	k := forward.TableKey{Family: forward.IP4, ID: 5}
	b.Tables.Add(k, "")
	b.route(t, "10.1.0.0/16", Path{Interface: NoIndex, Table: 5})
	b.Tables.Delete(k)
	if len(b.Tables.List()) != 3 {
		t.Fatal("the table was deleted while a route looks up in it")
	}
	do(t,
		b.Routes.Delete(RouteChange{
			Table:  forward.TableKey{Family: forward.IP4},
			Prefix: netip.MustParsePrefix("10.1.0.0/16"),
		}))
	if len(b.Tables.List()) != 2 {
		t.Fatal("the table was not deleted")
	}
}

func TestNextHopInDeletedTableDropsUntilTableIsAddedAgain(t *testing.T) {
	b := newTestModel()
	k := forward.TableKey{Family: forward.IP4, ID: 5}
	b.Tables.Add(k, "")
	b.route(t, "10.1.0.0/16", Path{Interface: NoIndex, Table: 5, NextHop: netip.MustParseAddr("10.5.0.1")})
	b.Tables.Delete(k)
	if r, _ := b.forwarded(0, "10.1.0.0/16"); r.Action != forward.Drop {
		t.Fatalf("%+v", r)
	}
	b.Tables.Add(k, "")
	if r, _ := b.forwarded(0, "10.1.0.0/16"); r.Action != forward.Forward {
		t.Fatalf("%+v", r)
	}
}

func TestAddressHasConnectedRoutesWhileInterfaceIsUp(t *testing.T) {
	b := newTestModel()
	index := b.loopback(t, "10.0.0.1/24", "10.0.9.0/31")
	want := map[string]forward.Action{
		"10.0.0.1/32":   forward.Local,
		"10.0.0.0/24":   forward.Forward,
		"10.0.0.0/32":   forward.Drop,
		"10.0.0.255/32": forward.Drop, "10.0.9.0/32": forward.Local, "10.0.9.1/32": forward.Forward,
		"10.0.9.0/31": forward.Forward,
	}
	for prefix, action := range want {
		if r, ok := b.forwarded(0, prefix); !ok || r.Action != action {
			t.Errorf("%s: %v, %v; wanted %v", prefix, r, ok, action)
		}
	}
	do(t, b.SetAdminUp(index, false))
	for prefix := range want {
		if r, ok := b.forwarded(0, prefix); ok {
			t.Errorf("down: %s: %v", prefix, r)
		}
	}
}

func TestRouteOfTheAPIIsUsedUnlessABetterSourceHasOne(t *testing.T) {
	b := newTestModel()
	index := b.loopback(t, "10.0.0.1/24")
	b.route(t, "10.0.0.0/24", Path{Kind: PathUnreachable, Interface: NoIndex})
	b.route(t, "0.0.0.0/0", Path{Kind: PathUnreachable, Interface: NoIndex})
	if r, _ := b.forwarded(0, "10.0.0.0/24"); r.Action != forward.Forward {
		t.Error("not the connected route:", r)
	}
	if r, _ := b.forwarded(0, "0.0.0.0/0"); r.Action != forward.Unreachable {
		t.Error("not the route of the API:", r)
	}
	do(t, b.Addresses.DeleteAll(index))
	if r, _ := b.forwarded(0, "10.0.0.0/24"); r.Action != forward.Unreachable {
		t.Error("not the route of the API after delete of the address:", r)
	}
}
