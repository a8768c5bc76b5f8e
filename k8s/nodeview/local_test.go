package nodeview_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/ipam"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/blocks/blockstest"
	"github.com/weftnet/weft/k8s/nodeview"
)

// TestAKeepersBlocksFeedTheAllocator allocates addresses without a request, claims the next block before the first one
// is full, and releases it.
func TestAKeepersBlocksFeedTheAllocator(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	clock := func() time.Time { return now }
	prefix := netip.MustParsePrefix("10.1.0.0/16")
	a, err := ipam.New(ipam.Config{Pools: []netaddr.Pool{{Name: "pods", Prefix: prefix, Blocks: true}}, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	store := blockstest.NewStore()
	k, err := blocks.New(blocks.Config{
		Node: "n1", Owner: func() string { return "1" }, Store: store, Now: clock,
		Local: nodeview.Local{Allocator: func(network string) *ipam.Allocator {
			if network == "" {
				return a
			}
			return nil
		}},
		Pools: func() ([]blocks.PoolCIDR, bool) {
			return []blocks.PoolCIDR{{Name: "pods", Prefix: prefix, Bits: 26, Borrowing: true}}, true
		},
		Watch:   blockstest.Watch{Own: func() ([]*v1.IPBlock, bool) { return store.Of("n1"), true }},
		Durable: blocks.Durable{Keep: func([]v1.IPBlock) error { return nil }},
	})
	if err != nil {
		t.Fatal(err)
	}
	step := func() {
		t.Helper()
		if err := k.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	step()
	var holders []string
	for i := range 200 {
		holder := string(rune('a'+i%26)) + time.Duration(i).String()
		if _, err := a.Lease(ipam.Request{Holder: holder}); err != nil {
			t.Fatalf("pod %d: %v", i, err)
		}
		a.Commit(holder)
		holders = append(holders, holder)
		step()
	}
	if n := len(store.All()); n < 4 {
		t.Errorf("%d blocks for 200 pods", n)
	}
	for _, h := range holders {
		a.Release(h)
	}
	for range 3 {
		now = now.Add(10 * time.Minute)
		step()
	}
	if n := len(store.All()); n != 1 {
		t.Errorf("%d blocks without pods, want one warm block", n)
	}
	pools := []blocks.PoolCIDR{{Name: "pods", Prefix: prefix, Bits: 26}}
	for _, v := range blocks.Check(pools, store.All(), blocks.Nodes{
		"n1": "1",
	}) {
		t.Error(v)
	}
}

func TestABlockOfAnUnknownNetworkIsRefused(t *testing.T) {
	l := nodeview.Local{Allocator: func(string) *ipam.Allocator { return nil }}
	b := netaddr.Block{Network: "blue", Prefix: netip.MustParsePrefix("10.1.0.0/26")}
	if err := l.Add(b); err == nil {
		t.Error("it was added")
	}
	if !l.Remove(b) || l.Usage(b) != (blocks.Usage{}) || l.Withhold(b, netip.Addr{}, "").IsValid() {
		t.Error("it has addresses")
	}
}

func TestTheAllocatorConforms(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	a, err := ipam.New(ipam.Config{
		Pools: []netaddr.Pool{{Name: "pods", Prefix: netip.MustParsePrefix("10.1.0.0/16"), Blocks: true}},
		Now:   func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	pods := make(map[netip.Addr]string)
	blockstest.ConformGiver(t, blockstest.Giver{
		Local: nodeview.Local{Allocator: func(string) *ipam.Allocator { return a }},
		Lease: func() netip.Addr {
			holder := fmt.Sprint("pod ", len(pods))
			leases, err := a.Lease(ipam.Request{Holder: holder})
			if err != nil {
				return netip.Addr{}
			}
			a.Commit(holder)
			pods[leases[0].Address] = holder
			return leases[0].Address
		},
		Release: func(address netip.Addr) { a.Release(pods[address]) },
		Wait:    func(d time.Duration) { now = now.Add(d) },
	})
}
