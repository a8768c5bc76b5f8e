package ipam_test

import (
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/ipam"
)

func TestNeverUsedAddressesAreGrantedFirst(t *testing.T) {
	c := newClock()
	a := newAllocator(t, c, four)
	if got := use(t, a, "a")[0]; got != "10.1.0.2" {
		t.Errorf("first lease is %s", got)
	}
	a.Release("a")
	c.pass(time.Hour)
	for i, want := range []string{"10.1.0.3", "10.1.0.4", "10.1.0.5", "10.1.0.6", "10.1.0.2"} {
		if got := use(t, a, string(rune('b'+i)))[0]; got != want {
			t.Errorf("lease %d is %s, want %s", i, got, want)
		}
	}
}

func TestLongestIdleAddressIsReusedFirst(t *testing.T) {
	c := newClock()
	a := newAllocator(t, c, four)
	for _, h := range []string{"a", "b", "c", "d", "e"} {
		use(t, a, h)
	}
	for _, h := range []string{"d", "a", "c"} {
		a.Release(h)
		c.pass(time.Second)
	}
	c.pass(coolDown)
	for _, want := range []string{"10.1.0.5", "10.1.0.2", "10.1.0.4"} {
		if got := use(t, a, "holder of "+want)[0]; got != want {
			t.Errorf("lease is %s, want %s", got, want)
		}
	}
}

func TestCoolingAddressIsNotGrantedEvenIfItIsTheOnlyOne(t *testing.T) {
	c := newClock()
	a := newAllocator(t, c, next)
	use(t, a, "old")
	a.Release("old")
	freeAt := c.now.Add(coolDown)
	c.pass(coolDown - time.Nanosecond)
	_, err := a.Lease(request("new"))
	if want := (ipam.ErrExhausted{Pool: "next", Cooling: 1, NextFree: freeAt}); !errors.Is(err, want) {
		t.Errorf("error %#v, want %#v", err, want)
	}
	checkStats(t, a, ipam.Stats{Pool: next, Cooling: 1})
	c.pass(time.Nanosecond)
	checkStats(t, a, ipam.Stats{Pool: next, Free: 1})
	if got := lease(t, a, "new")[0]; got != "10.2.0.2" {
		t.Errorf("lease after the cool-down is %s", got)
	}
}

func TestExhaustedPoolIsSkippedAndTheErrorNamesAllPools(t *testing.T) {
	c := newClock()
	other := netaddr.Pool{Name: "other", Prefix: netip.MustParsePrefix("10.3.0.0/30")}
	a := newAllocator(t, c, next, other)
	use(t, a, "a")
	if got := use(t, a, "b")[0]; got != "10.3.0.2" {
		t.Errorf("second lease is %s, want that of the second pool", got)
	}
	if _, err := a.Lease(request("c")); !errors.Is(err, ipam.ErrExhausted{Pool: "next, other"}) {
		t.Errorf("error %#v", err)
	}
	a.Release("b")
	a.Release("a")
	c.pass(time.Second)
	want := ipam.ErrExhausted{Pool: "next, other", Cooling: 2, NextFree: c.now.Add(coolDown - time.Second)}
	if _, err := a.Lease(request("c")); !errors.Is(err, want) {
		t.Errorf("error %#v, want %#v", err, want)
	}
}

func TestStaticAddressIsGrantedOrRefused(t *testing.T) {
	tests := []struct {
		name   string
		wanted []string
		want   error // nil = granted
	}{
		{"a free one is granted", []string{"10.1.0.5"}, nil},
		{"one of each family is granted", []string{"10.1.0.5", "2001:db8::7"}, nil},
		{
			"one that is used names its holder", []string{"10.1.0.2"},
			ipam.ErrInUse{Address: netip.MustParseAddr("10.1.0.2"), Holder: "used"},
		},
		{
			"one that is leased names its holder", []string{"10.1.0.3"},
			ipam.ErrInUse{Address: netip.MustParseAddr("10.1.0.3"), Holder: "leased"},
		},
		{"a cooling address is granted if it is requested", []string{"10.1.0.4"}, nil},
		{
			"the node's own is the node's", []string{"10.1.0.1"},
			ipam.ErrInUse{Address: netip.MustParseAddr("10.1.0.1"), Holder: ipam.InternalHolder},
		},
		{
			"the network's is reserved", []string{"10.1.0.0"},
			ipam.ErrOutside{Address: netip.MustParseAddr("10.1.0.0"), Pool: "four"},
		},
		{
			"the broadcast is reserved", []string{"10.1.0.7"},
			ipam.ErrOutside{Address: netip.MustParseAddr("10.1.0.7"), Pool: "four"},
		},
		{"one of no pool is outside", []string{"10.9.0.2"}, ipam.ErrOutside{Address: netip.MustParseAddr("10.9.0.2")}},
		{
			"a mapped one is outside", []string{"::ffff:10.1.0.5"},
			ipam.ErrOutside{Address: netip.MustParseAddr("::ffff:10.1.0.5")},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := newAllocator(t, newClock(), four, six)
			use(t, a, "used")
			lease(t, a, "leased")
			use(t, a, "cooling")
			a.Release("cooling")
			before := a.Leases()
			leases, err := a.Lease(request("asking", tt.wanted...))
			if !errors.Is(err, tt.want) {
				t.Fatalf("error %#v, want %#v", err, tt.want)
			}
			if tt.want != nil && !reflect.DeepEqual(a.Leases(), before) {
				t.Errorf("a refused request left %v, was %v", a.Leases(), before)
			}
			if tt.want == nil && leases[0].Address.String() != tt.wanted[0] {
				t.Errorf("granted %v", leases)
			}
		})
	}
}

func TestInvalidRequestsAreRefused(t *testing.T) {
	a := newAllocator(t, newClock(), four)
	for want, r := range map[string]ipam.Request{
		"more than one address of a family": request("a", "10.1.0.3", "10.1.0.4"),
		`holder ""`:                         request(""),
		`holder "node"`:                     request(ipam.InternalHolder),
	} {
		if _, err := a.Lease(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want one with %q", r, err, want)
		}
	}
}

func TestHolderGetsItsAddressAgain(t *testing.T) {
	a := newAllocator(t, newClock(), four, six)
	first := lease(t, a, "a")
	if again := lease(t, a, "a"); !slices.Equal(first, again) {
		t.Errorf("pending: %v, then %v", first, again)
	}
	a.Commit("a")
	if again := lease(t, a, "a", first...); !slices.Equal(first, again) {
		t.Errorf("used and asked for: %v, then %v", first, again)
	}
	a.Undo("a")
	if held := a.Held("a"); len(held) != 2 || held[0].State != ipam.Used {
		t.Errorf("undo of what was committed before left %v", held)
	}
	want := ipam.ErrInUse{Address: netip.MustParseAddr(first[0]), Holder: "a"}
	if _, err := a.Lease(request("a", "10.1.0.6")); !errors.Is(err, want) {
		t.Errorf("a second address for the same holder: error %v, want %v", err, want)
	}
}

func TestExhaustedFamilyUndoesTheGrantOfTheOther(t *testing.T) {
	for _, order := range [][]netaddr.Pool{{four, tiny}, {tiny, four}} {
		c := newClock()
		a := newAllocator(t, c, order...)
		use(t, a, "a")
		use(t, a, "b")
		before := a.Stats()
		if _, err := a.Lease(request("c")); !errors.Is(err, ipam.ErrExhausted{Pool: "tiny"}) {
			t.Errorf("error %v", err)
		}
		if after := a.Stats(); !reflect.DeepEqual(before, after) {
			t.Errorf("stats before %v, after %v", before, after)
		}
		a.Release("a")
		c.pass(coolDown)
		if got := lease(t, a, "c"); got[0] != "10.1.0.4" {
			t.Errorf("the other family continued with %s", got[0])
		}
	}
}

func TestUndoRestoresThePlaceInTheQueue(t *testing.T) {
	c := newClock()
	a := newAllocator(t, c, four)
	first := lease(t, a, "a")
	lease(t, a, "b")
	a.Undo("a")
	if got := lease(t, a, "c"); !slices.Equal(got, first) {
		t.Errorf("never used: next lease is %v, want %v", got, first)
	}
	for _, h := range []string{"d", "e", "f", "c", "b"} {
		lease(t, a, h)
		a.Release(h)
		c.pass(time.Second)
	}
	c.pass(coolDown)
	idle := lease(t, a, "g")
	a.Undo("g")
	if got := lease(t, a, "h"); !slices.Equal(got, idle) {
		t.Errorf("idle longest: next lease is %v, want %v", got, idle)
	}
}

func TestUndoOfAStaticCoolingAddressContinuesItsCoolDown(t *testing.T) {
	c := newClock()
	a := newAllocator(t, c, next)
	use(t, a, "old")
	a.Release("old")
	before := a.Leases()
	c.pass(time.Second)
	lease(t, a, "new", "10.2.0.2")
	a.Undo("new")
	if after := a.Leases(); !reflect.DeepEqual(before, after) {
		t.Errorf("before %v, after %v", before, after)
	}
}

func TestReleasedReturnsTheLeasesThatReleaseLeaves(t *testing.T) {
	a := newAllocator(t, newClock(), four, six)
	use(t, a, "a")
	predicted := a.Released("a")
	if held := a.Held("a"); len(held) != 2 {
		t.Fatalf("Released changed what is held to %v", held)
	}
	a.Release("a")
	if got := ofPods(a); !reflect.DeepEqual(got, predicted) {
		t.Errorf("released %v, Released returned %v", got, predicted)
	}
	if again := a.Released("a"); again != nil {
		t.Errorf("released twice: %v", again)
	}
}

func TestHugePoolReusesReleasedAddresses(t *testing.T) {
	c := newClock()
	a := newAllocator(t, c, huge)
	seen := map[string]bool{}
	const pods = 20_000
	for range pods {
		seen[use(t, a, "a")[0]] = true
		a.Release("a")
		c.pass(time.Second)
	}
	if len(seen) == 1 || len(seen) > 5_000 {
		t.Errorf("%d pods one after the other used %d addresses", pods, len(seen))
	}
}

func TestWithoutCoolDownAnAddressIsFreeAtOnce(t *testing.T) {
	a, err := ipam.New(ipam.Config{Pools: []netaddr.Pool{next}, CoolDown: -1})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got := use(t, a, "a")[0]; got != "10.2.0.2" {
			t.Errorf("lease is %s", got)
		}
		a.Release("a")
	}
}
