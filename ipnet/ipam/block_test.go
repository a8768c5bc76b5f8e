package ipam_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/ipam"
)

// cluster is a pool that nodes share; the blocks are its.
var (
	cluster = netaddr.Pool{Name: "cluster", Prefix: netip.MustParsePrefix("10.8.0.0/16"), Blocks: true}
	lowest  = netip.MustParsePrefix("10.8.0.0/30")     // pods: .2, .3
	middle  = netip.MustParsePrefix("10.8.7.0/30")     // pods: all four
	highest = netip.MustParsePrefix("10.8.255.252/30") // pods: the first three
)

func addBlock(t fataler, a *ipam.Allocator, block netip.Prefix, withheld ...netip.Addr) {
	t.Helper()
	if err := a.AddBlock(block, withheld...); err != nil {
		t.Fatalf("add block: %v", err)
	}
}

func TestSharedPoolGrantsAddressesOfItsBlocksOnly(t *testing.T) {
	a := newAllocator(t, newClock(), cluster)
	_, err := a.Lease(request("early"))
	if want := (ipam.ErrExhausted{Pool: "cluster", NoBlock: true}); !errors.Is(err, want) {
		t.Errorf("without a block: %v, want %v", err, want)
	}
	for _, b := range []netip.Prefix{lowest, middle, highest} {
		addBlock(t, a, b)
	}
	checkStats(t, a, ipam.Stats{Pool: cluster, Free: 2 + 4 + 3})
	var got []string
	for _, holder := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"} {
		got = append(got, use(t, a, holder)...)
	}
	want := "10.8.0.2 10.8.0.3 10.8.7.0 10.8.7.1 10.8.7.2 10.8.7.3 10.8.255.252 10.8.255.253 10.8.255.254"
	if strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	for _, address := range []string{"10.8.0.1", "10.8.0.0", "10.8.255.255", "10.8.9.9"} {
		if _, err := a.Lease(request("j", address)); !errors.As(err, &ipam.ErrOutside{}) {
			t.Errorf("%s: error %v", address, err)
		}
	}
}

func TestInvalidBlocksAreRefused(t *testing.T) {
	tests := []struct{ name, block, want string }{
		{"in no pool", "10.9.0.0/26", "it is in no pool"},
		{"of a pool of this node alone", "10.1.0.0/30", "this node owns the whole prefix"},
		{"larger than the pool", "10.0.0.0/8", "it is in no pool"},
		{"bits behind its length", "10.8.7.5/30", "it is not a block of pool cluster"},
		{"inside another", "10.8.7.0/31", "it overlaps block 10.8.7.0/30"},
		{"around another", "10.8.0.0/20", "it overlaps block 10.8.7.0/30"},
		{"one that is there", "10.8.7.0/30", ""},
		{"a single address", "10.8.9.9/32", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := newAllocator(t, newClock(), four, cluster)
			addBlock(t, a, middle)
			err := a.AddBlock(netip.MustParsePrefix(tt.block))
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestBlockWithAddressesInUseIsNotRemoved(t *testing.T) {
	c := newClock()
	a := newAllocator(t, c, cluster)
	addBlock(t, a, middle)
	use(t, a, "a")
	if a.RemoveBlock(middle) {
		t.Error("a block with a used address was removed")
	}
	if _, err := a.Lease(request("b")); !errors.Is(err, ipam.ErrExhausted{Pool: "cluster", NoBlock: true}) {
		t.Errorf("a closed block grants an address: %v", err)
	}
	if _, err := a.Lease(request("b", "10.8.7.3")); !errors.Is(err, ipam.ErrOutside{
		Address:   netip.MustParseAddr("10.8.7.3"),
		Pool:      "cluster",
		Elsewhere: true,
	}) {
		t.Errorf("a closed block grants a static address: %v", err)
	}
	handed := request("again", "10.8.7.0")
	handed.From = []string{"a"}
	if _, err := a.Lease(handed); err != nil {
		t.Errorf("a closed block does not hand over: %v", err)
	}
	a.Commit("again")
	a.Release("again")
	if a.RemoveBlock(middle) {
		t.Error("a block with a cooling address was removed")
	}
	c.pass(coolDown)
	if first, again := a.RemoveBlock(middle), a.RemoveBlock(middle); !first || !again {
		t.Error("an empty block stays")
	}
	addBlock(t, a, middle)
	if got := use(t, a, "b")[0]; got != "10.8.7.0" {
		t.Errorf("the block is open again and gives %s", got)
	}
}

func TestWithheldAddressesAreNotGranted(t *testing.T) {
	c := newClock()
	a := newAllocator(t, c, cluster)
	addBlock(t, a, middle, netip.MustParseAddr("10.8.7.0"))
	lent := a.Withhold(middle, netip.Addr{}, "")
	if lent.String() != "10.8.7.1" {
		t.Errorf("withheld %s", lent)
	}
	addBlock(t, a, middle, netip.MustParseAddr("10.8.7.0"), lent) // again
	if got := append(use(t, a, "a"), use(t, a, "b")...); !slices.Equal(got, []string{"10.8.7.2", "10.8.7.3"}) {
		t.Errorf("given out: %v", got)
	}
	if a.Withhold(middle, netip.Addr{}, "").IsValid() {
		t.Error("a used address was withheld")
	}
	if err := a.AddBlock(middle, netip.MustParseAddr("10.8.7.2")); !errors.As(err, &ipam.ErrInUse{}) {
		t.Errorf("a used address was withheld: %v", err)
	}
	checkStats(t, a, ipam.Stats{Pool: cluster, Used: 2})
	a.Return(lent)
	checkStats(t, a, ipam.Stats{Pool: cluster, Used: 2, Cooling: 1})
	c.pass(coolDown)
	if got := use(t, a, "c")[0]; got != lent.String() {
		t.Errorf("given out: %s", got)
	}
	if left := a.Remembered(); len(left) != 3 {
		t.Errorf("remembered of pods: %v", left)
	}
	for _, holder := range []string{"a", "b", "c"} {
		a.Release(holder)
	}
	c.pass(coolDown)
	if !a.RemoveBlock(middle) {
		t.Error("withheld addresses keep the block")
	}
}

func TestSingleAddressThatCoolsDownCanBeRemoved(t *testing.T) {
	pool := netaddr.Pool{Name: "shared", Prefix: netip.MustParsePrefix("10.8.0.0/24"), Blocks: true}
	a, err := ipam.New(ipam.Config{Pools: []netaddr.Pool{pool}})
	if err != nil {
		t.Fatal(err)
	}
	lent := netip.MustParsePrefix("10.8.0.70/32")
	if err := a.AddBlock(lent); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Lease(ipam.Request{Holder: "a", Addresses: []netip.Addr{lent.Addr()}}); err != nil {
		t.Fatal(err)
	}
	a.Commit("a")
	if a.RemoveBlock(lent) {
		t.Error("the borrowed address was removed although a pod has it")
	}
	a.Release("a")
	if !a.RemoveBlock(lent) {
		t.Error("the borrowed address was not removed")
	}
}

func TestInternalAddressKeepsItsBlock(t *testing.T) {
	a := newAllocator(t, newClock(), cluster)
	addBlock(t, a, lowest)
	own, err := a.ClaimInternal(lowest, netip.Addr{})
	if err != nil || own.String() != "10.8.0.2" {
		t.Fatalf("claimed %s: %v", own, err)
	}
	if b, _ := a.Block(lowest); b.Internal != own || b.Empty || b.Stats.Free != 1 {
		t.Errorf("block %+v", b)
	}
	if _, err := a.Lease(request("a", own.String())); !errors.Is(err, ipam.ErrInUse{
		Address: own,
		Holder:  ipam.InternalHolder,
	}) {
		t.Errorf("a pod got the internal address: %v", err)
	}
	if a.RemoveBlock(lowest) {
		t.Error("the block was removed")
	}
	a.ReturnInternal(own)
	if !a.RemoveBlock(lowest) {
		t.Error("the block was not removed although the internal address was returned")
	}
	addBlock(t, a, lowest)
	a.CloseBlock(lowest)
	if _, err := a.ClaimInternal(lowest, own); err != nil {
		t.Errorf("claim the same again: %v", err)
	}
	if _, err := a.ClaimInternal(middle, netip.Addr{}); err == nil {
		t.Error("claimed of a block that is not there")
	}
}

func TestUsedAddressOutsideOfBlocksStaysWithItsHolder(t *testing.T) {
	c := newClock()
	a := newAllocator(t, c, cluster)
	if err := a.Restore([]ipam.Lease{
		{Address: netip.MustParseAddr("10.8.7.1"), Holder: "old", State: ipam.Used},
	}); err != nil {
		t.Fatal(err)
	}
	checkStats(t, a, ipam.Stats{Pool: cluster, Used: 1})
	addBlock(t, a, middle)
	checkStats(t, a, ipam.Stats{Pool: cluster, Used: 1, Free: 3})
	if got := append(use(t, a, "a"), use(t, a, "b")...); !slices.Equal(got, []string{"10.8.7.0", "10.8.7.2"}) {
		t.Errorf("given out: %v", got)
	}
	a.Release("old")
	checkStats(t, a, ipam.Stats{Pool: cluster, Used: 2, Cooling: 1, Free: 1})
	if got := use(t, a, "old", "10.8.7.1")[0]; got != "10.8.7.1" {
		t.Errorf("granted %s", got)
	}
}

// tenants are pods with addresses of blocks.
type tenants struct {
	*ipam.Allocator
	open     map[netip.Prefix]bool
	held     map[string]netip.Addr
	withheld map[netip.Addr]bool
	gateway  netip.Addr
}

// TestBlockProperties adds, closes and removes blocks, and withholds addresses, while pods lease and release. No
// address is granted twice, or from a block that is not open, nor is the gateway, and a block with pods is never
// removed.
func TestBlockProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newClock()
		pool := cluster
		gateways := []string{"10.8.0.1", "10.8.0.2", "10.8.7.0", "10.8.7.2", "10.8.255.254", "10.8.99.1"}
		pool.Gateway = netip.MustParseAddr(rapid.SampledFrom(gateways).Draw(t, "gateway"))
		a := &tenants{
			newAllocator(t, c, pool), map[netip.Prefix]bool{}, map[string]netip.Addr{}, map[netip.Addr]bool{},
			pool.Gateway,
		}
		holder := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"})
		block := rapid.SampledFrom([]netip.Prefix{lowest, middle, highest})
		t.Repeat(map[string]func(*rapid.T){
			"add":    func(t *rapid.T) { b := block.Draw(t, "block"); addBlock(t, a.Allocator, b); a.open[b] = true },
			"close":  func(t *rapid.T) { b := block.Draw(t, "block"); a.CloseBlock(b); a.open[b] = false },
			"remove": func(t *rapid.T) { a.remove(t, block.Draw(t, "block")) },
			"withhold": func(t *rapid.T) {
				if address := a.Withhold(block.Draw(t, "block"), netip.Addr{}, ""); address.IsValid() {
					a.withheld[address] = true
				}
			},
			"return": func(t *rapid.T) {
				address := rapid.SampledFrom([]string{"10.8.0.2", "10.8.7.0", "10.8.7.1", "10.8.255.252"}).Draw(t,
					"address")
				a.Return(netip.MustParseAddr(address))
				delete(a.withheld, netip.MustParseAddr(address))
			},
			"lease":   func(t *rapid.T) { a.lease(t, holder.Draw(t, "holder")) },
			"release": func(t *rapid.T) { h := holder.Draw(t, "holder"); a.Release(h); delete(a.held, h) },
			"wait": func(t *rapid.T) {
				c.pass(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
			},
			"": func(t *rapid.T) {
				if s := a.Stats()[0]; int(s.Used) != len(a.held) || s.Leased != 0 || s.Free > 10 {
					t.Fatalf("stats %+v, held %v", s, a.held)
				}
				for _, fault := range a.Faults() {
					t.Fatal(fault)
				}
			},
		})
	})
}

func (a *tenants) remove(t *rapid.T, b netip.Prefix) {
	a.open[b] = false
	gone := a.RemoveBlock(b)
	for holder, address := range a.held {
		if gone && b.Contains(address) {
			t.Fatalf("block %s is gone, and %s has %s", b, holder, address)
		}
	}
	for address := range a.withheld {
		if gone && b.Contains(address) {
			delete(a.withheld, address)
		}
	}
}

func (a *tenants) lease(t *rapid.T, holder string) {
	leases, err := a.Lease(request(holder))
	if err != nil {
		return
	}
	address := leases[0].Address
	if rapid.Bool().Draw(t, "undo") {
		a.Undo(holder)
		return
	}
	if address == a.gateway {
		t.Fatalf("%s gets %s, the gateway", holder, address)
	}
	a.Commit(holder)
	before, had := a.held[holder]
	open := false
	for b, is := range a.open {
		open = open || is && b.Contains(address)
	}
	if had && before != address || !had && (!open || a.withheld[address]) {
		t.Fatalf("%s gets %s: it has %s; open %v, withheld %v", holder, address, before, a.open, a.withheld)
	}
	for other, taken := range a.held {
		if other != holder && taken == address {
			t.Fatalf("%s and %s both have %s", other, holder, address)
		}
	}
	a.held[holder] = address
}
