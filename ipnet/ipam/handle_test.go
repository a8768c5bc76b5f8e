package ipam

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
)

// Faults compares the handles with the holders of the blocks.
func (a *Allocator) Faults() []string {
	var faults []string
	count := 0
	for _, b := range a.blocksLocked() {
		count += len(b.holders)
		for holder := range b.holders {
			if there := times(a.ofHolderLocked(holder), b); there != 1 {
				faults = append(faults,
					fmt.Sprintf("%s is known %d times to hold an address of %s", holder, there, b.block))
			}
		}
	}
	known := 0
	for holder := range a.handles {
		known += len(a.ofHolderLocked(holder))
	}
	if known != count {
		faults = append(faults, fmt.Sprintf("%d addresses are found by their holders, %d are held", known, count))
	}
	return faults
}

// Next returns the address at which the search for one that was never used begins, in the first block.
func (a *Allocator) Next() netip.Addr { return a.pools[0].blocks[0].next }

func times(blocks []*blockState, b *blockState) (n int) {
	for _, o := range blocks {
		if o == b {
			n++
		}
	}
	return n
}

func TestReleaseSearchesOnlyTheBlocksOfItsHolder(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	a, err := New(Config{Now: func() time.Time { return now }, Pools: []netaddr.Pool{
		{Name: "four", Prefix: netip.MustParsePrefix("10.1.0.0/16"), Blocks: true}, {
			Name:   "six",
			Prefix: netip.MustParsePrefix("2001:db8::/64"),
			Blocks: true,
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	sound := func(when string) {
		t.Helper()
		for _, fault := range a.Faults() {
			t.Errorf("%s: %s", when, fault)
		}
	}
	stray := Lease{Pool: "four", Address: netip.MustParseAddr("10.1.9.9"), Holder: "early", State: Used}
	if err := a.Restore([]Lease{stray}); err != nil {
		t.Fatal(err)
	}
	sound("with an address of no block yet")
	blocks := []string{"10.1.9.0/26", "2001:db8::/122"}
	for i := range 60 {
		blocks = append(blocks, fmt.Sprintf("10.1.%d.64/26", i))
	}
	for _, b := range blocks {
		if err := a.AddBlock(netip.MustParsePrefix(b)); err != nil {
			t.Fatal(err)
		}
	}
	sound("with the block around it")
	for i := range 2000 {
		holder := fmt.Sprint("pod ", i)
		if _, err := a.Lease(Request{Holder: holder}); err != nil {
			break // of IPv6 there are few
		}
		if i%3 == 0 {
			a.Undo(holder)
			continue
		}
		a.Commit(holder)
	}
	if _, err := a.Lease(Request{
		Holder:    "young",
		Addresses: []netip.Addr{stray.Address},
		Pools:     []string{"four"},
		From:      []string{"early"},
	}); err != nil {
		t.Fatal(err)
	}
	sound("with an address that changes hands")
	a.Undo("young")
	sound("with one that did not")
	if blocks := a.ofHolderLocked("pod 1"); len(blocks) != 2 || blocks[0].Name != "four" || blocks[1].Name != "six" {
		t.Errorf("pod 1 has addresses in %d blocks, want one of each family", len(blocks))
	}
	if got := a.Held("early"); len(got) != 1 || got[0].Address != stray.Address {
		t.Errorf("early has %v", got)
	}
	a.Release("pod 1")
	a.Release("early")
	if blocks := a.ofHolderLocked("pod 1"); len(blocks) != 0 || len(a.Held("early")) != 0 {
		t.Errorf("%d blocks after the release", len(blocks))
	}
	sound("after releases")
}
