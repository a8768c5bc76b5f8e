package ipam_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/ipam"
)

// throughJSON returns leases as the state file returns them.
func throughJSON(t *testing.T, leases []ipam.Lease) []ipam.Lease {
	t.Helper()
	b, err := json.Marshal(leases)
	if err != nil {
		t.Fatal(err)
	}
	var back []ipam.Lease
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	return back
}

func ofPods(a *ipam.Allocator) []ipam.Lease {
	return slices.DeleteFunc(a.Leases(), func(l ipam.Lease) bool { return l.State == ipam.Internal })
}

func TestRestoreKeepsAddressesStatesAndOrder(t *testing.T) {
	c := newClock()
	a := newAllocator(t, c, four, six)
	for _, h := range []string{"a", "b", "c", "d"} {
		use(t, a, h)
	}
	a.Release("c")
	c.pass(coolDown) // c is idle
	a.Release("a")   // a cools
	c.pass(time.Second)
	kept := a.Leases()
	for _, address := range []string{"10.1.0.4", "2001:db8::4"} { // leases of idle addresses are stored too
		kept = append(kept, ipam.Lease{
			Address: netip.MustParseAddr(address),
			Holder:  "c",
			State:   ipam.Cooling,
			FreeAt:  c.now.Add(-time.Second),
		})
	}
	slices.Reverse(kept)

	b := newAllocator(t, c, four, six)
	if err := b.Restore(throughJSON(t, kept)); err != nil {
		t.Fatal(err)
	}
	if got, want := ofPods(b), ofPods(a); !reflect.DeepEqual(got, want) {
		t.Errorf("restored\n%v\nwant\n%v", got, want)
	}
	for range 3 {
		h := "new " + c.now.String()
		before, errBefore := a.Lease(request(h))
		after, errAfter := b.Lease(request(h))
		if !reflect.DeepEqual(before, after) || !reflect.DeepEqual(errBefore, errAfter) {
			t.Errorf("next lease: %v, %v; restored: %v, %v", before, errBefore, after, errAfter)
		}
		c.pass(coolDown / 2)
	}
}

func TestRestoreSkipsInvalidLeases(t *testing.T) {
	c := newClock()
	at := func(address, holder string, state ipam.State) ipam.Lease {
		return ipam.Lease{
			Address: netip.MustParseAddr(address),
			Holder:  holder,
			State:   state,
			Since:   c.now,
			FreeAt:  c.now.Add(time.Second),
		}
	}
	tests := []struct {
		name  string
		lease ipam.Lease
		want  string
	}{
		{
			"an address that another has", at("10.1.0.2", "b", ipam.Used),
			"restore lease of b: address 10.1.0.2 is held by a",
		},
		{
			"a second address of a holder", at("10.1.0.3", "a", ipam.Used),
			`restore lease of "a" on 10.1.0.3: it holds 10.1.0.2`,
		},
		{
			"an address whose pool is gone", at("10.9.0.2", "b", ipam.Used),
			"restore lease of b: address 10.9.0.2 is in no pool",
		},
		{
			"a cooling address whose pool is gone", at("10.9.0.2", "b", ipam.Cooling),
			"restore cooling lease of b: address 10.9.0.2 is in no pool",
		},
		{"the node's own", at("10.1.0.1", "b", ipam.Used), "restore lease of b: address 10.1.0.1 is held by node"},
		{"a state of a later version", at("10.1.0.4", "b", "frozen"), `restore 10.1.0.4: unknown state "frozen"`},
		{"no holder", at("10.1.0.4", "", ipam.Used), `restore lease of "" on 10.1.0.4: it holds invalid IP`},
		{"a cooling one that was granted again needs no word", at("10.1.0.2", "b", ipam.Cooling), ""},
		{"the node's own is claimed already", at("10.1.0.1", ipam.InternalHolder, ipam.Internal), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := newAllocator(t, c, four)
			err := a.Restore([]ipam.Lease{at("10.1.0.2", "a", ipam.Used), tt.lease, at("10.1.0.6", "z", ipam.Leased)})
			if err == nil && tt.want != "" || err != nil && err.Error() != tt.want {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			checkStats(t, a, ipam.Stats{Pool: four, Used: 2, Free: 3})
		})
	}
}

func TestClockSetBackDoesNotProlongTheCoolDown(t *testing.T) {
	c := newClock()
	a := newAllocator(t, c, next)
	tomorrow := c.now.Add(24 * time.Hour)
	if err := a.Restore([]ipam.Lease{
		{Address: netip.MustParseAddr("10.2.0.2"), Holder: "a", State: ipam.Cooling, FreeAt: tomorrow},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Lease(request("b")); !errors.Is(err, ipam.ErrExhausted{
		Pool:     "next",
		Cooling:  1,
		NextFree: c.now.Add(coolDown),
	}) {
		t.Errorf("error %#v", err)
	}
}

// As below, with an address that this node lent to another one: it is not lent again, and no pod of this node gets it.
func TestBlocksKeepLentAddressesThatAreReservedNow(t *testing.T) {
	c := newClock()
	pool := six
	pool.Blocks = true
	pool.Reserved = netaddr.Ranges{{First: six.First(), Last: six.Last()}}
	a := newAllocator(t, c, pool)
	lent := six.First()
	if err := a.AddBlock(six.Prefix, lent); err != nil {
		t.Fatal(err)
	}
	if got := a.Withhold(six.Prefix, lent.Next(), ""); got.IsValid() {
		t.Errorf("the reserved address %s is lent", got)
	}
	pool.Reserved = nil
	if refused := a.SetPools([]netaddr.Pool{pool}); len(refused) > 0 {
		t.Fatal(refused)
	}
	if got := lease(t, a, "a"); got[0] != lent.Next().String() {
		t.Errorf("a pod gets %s, want the first that is not lent", got)
	}
}

// A pod has an address, its network reserves it, the agent restarts, and the network needs it no more: the pod still
// has it, so no other pod gets it. The cool-down of an address outlives the same steps.
func TestRestoreKeepsAddressesThatAreReservedNow(t *testing.T) {
	c := newClock()
	a := newAllocator(t, c, six)
	use(t, a, "a")
	use(t, a, "b")
	held := a.Held("a")[0].Address
	a.Release("b")
	reserved := six
	reserved.Reserved = netaddr.Ranges{{First: six.First(), Last: six.Last()}}
	b := newAllocator(t, c, reserved)
	if err := b.Restore(throughJSON(t, ofPods(a))); err != nil {
		t.Fatal(err)
	}
	if refused := b.SetPools([]netaddr.Pool{six}); len(refused) > 0 {
		t.Fatal(refused)
	}
	if got, want := ofPods(b), ofPods(a); !reflect.DeepEqual(got, want) {
		t.Errorf("restored\n%v\nwant\n%v", got, want)
	}
	if _, err := b.Lease(request("c", held.String())); !errors.Is(err, ipam.ErrInUse{Address: held, Holder: "a"}) {
		t.Errorf("another pod requests the address: %v", err)
	}
}
