package blocks_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/blocks/blockstest"
)

// static steps nodes until one of them has an address for a pod of that name, or is refused.
func (l *lab) static(n *node, address, pod string, others ...*node) error {
	l.t.Helper()
	s := &blocks.Static{Pool: l.pools[0], Address: netip.MustParseAddr(address), Namespace: "shop", Pod: pod}
	for range 10 {
		claimed, err := n.TryClaim(l.t.Context(), s)
		if err != nil {
			return err
		}
		if claimed {
			if !n.local.LeaseThis("", s.Address) {
				l.t.Fatalf("%s claimed %s and does not give it out", n.local.Name, address)
			}
			return nil
		}
		for _, o := range append(others, n) {
			_ = o.Step(l.t.Context())
		}
	}
	return errors.New("it is not answered")
}

// contextThatEnds makes a claim give up soon.
func contextThatEnds(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), 300*time.Millisecond)
}

func (l *lab) blockNamed(name string) v1.IPBlockSpec {
	l.t.Helper()
	b, err := l.store.Get(l.t.Context(), name)
	if err != nil {
		l.t.Fatal(err)
	}
	return b.Spec
}

func TestStaticAddressOfAFreeBlockClaimsTheBlock(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/24", 26))
	n := l.node("n1")
	other := l.node("n2")
	if err := l.static(n, "10.1.0.70", "web-0"); err != nil {
		t.Fatal(err)
	}
	if owner := l.blockNamed("10.1.0.64-26").Node; owner != "n1" {
		t.Errorf("the block is that of node %q", owner)
	}
	b, _ := l.store.Get(t.Context(), "10.1.0.64-26")
	b.Spec.Node = "" // freed by the controller
	l.store.Put(*b)
	if err := l.static(other, "10.1.0.71", "web-1"); err != nil {
		t.Fatal(err)
	}
	if owner := l.blockNamed("10.1.0.64-26").Node; owner != "n2" {
		t.Errorf("the freed block is that of node %q", owner)
	}
}

func TestStaticAddressMovesWithItsPodFromNodeToNode(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/26", 26)) // one block, and no borrowing ahead of need
	owner := l.node("n1")
	second := l.node("n2")
	third := l.node("n3")
	all := []*node{owner, second, third}
	l.step(owner)
	if err := l.static(owner, "10.1.0.7", "web-0", all...); err != nil {
		t.Fatal(err)
	}
	for i, n := range []*node{second, third, owner, third, second} {
		from := slices.IndexFunc(all, func(o *node) bool {
			return slices.Contains(o.local.Pods(), netip.MustParseAddr("10.1.0.7"))
		})
		if from < 0 {
			t.Fatalf("move %d: no node has a pod with the address", i)
		}
		l.now = l.now.Add(2 * time.Minute) // the pod has run for some time
		all[from].end([]netip.Addr{netip.MustParseAddr("10.1.0.7")})
		if err := l.static(n, "10.1.0.7", "web-0", all...); err != nil {
			t.Fatalf("move %d, from %s to %s: %v", i, all[from].local.Name, n.local.Name, err)
		}
		l.sound(all...)
	}
	if b := l.blockNamed("10.1.0.0-26"); len(b.Requested) != 0 || len(b.Borrowed) != 1 ||
		b.Borrowed[0] != (v1.Loan{Address: "10.1.0.7", Node: "n2", Namespace: "shop", Pod: "web-0"}) {
		t.Errorf("in the end %+v is requested, and %+v borrowed", b.Requested, b.Borrowed)
	}
}

// A pod that ended soon after its ADD does not keep its address from the next one.
func TestStaticAddressMovesOnWhenItsPodEndedSoon(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/26", 26))
	owner := l.node("n1")
	second := l.node("n2")
	third := l.node("n3")
	all := []*node{owner, second, third}
	l.step(owner)
	from := second
	if err := l.static(from, "10.1.0.7", "web-0", all...); err != nil {
		t.Fatal(err)
	}
	for _, to := range []*node{owner, third, second} {
		l.now = l.now.Add(time.Second)
		from.end([]netip.Addr{netip.MustParseAddr("10.1.0.7")})
		if err := l.static(to, "10.1.0.7", "web-0", all...); err != nil {
			t.Fatalf("from %s to %s: %v", from.local.Name, to.local.Name, err)
		}
		l.sound(all...)
		from = to
	}
}

func TestStaticAddressOfAnotherNodesPodNamesPodAndNode(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/26", 26))
	owner := l.node("n1")
	n := l.node("n2")
	third := l.node("n3")
	l.step(owner)
	if err := l.static(owner, "10.1.0.7", "web-0"); err != nil {
		t.Fatal(err)
	}
	b, _ := l.store.Get(t.Context(), "10.1.0.0-26") // as the node publishes it
	b.Status.Used = 1
	b.Status.Allocations = []v1.Allocation{
		{Address: "10.1.0.7", Namespace: "shop", Pod: "web-0", Attachment: "weft/c/eth0"},
	}
	l.store.Put(*b)
	var held blocks.ErrHeld
	if err := l.static(n, "10.1.0.7", "web-1", owner); !errors.As(err, &held) ||
		!strings.Contains(err.Error(), "address 10.1.0.7 is held by pod shop/web-0 on node n1") {
		t.Errorf("error %v", err)
	}
	if err := l.static(n, "10.1.0.8", "web-1", owner); err != nil {
		t.Fatal(err)
	}
	claim := blocks.Static{Pool: l.pools[0], Address: netip.MustParseAddr("10.1.0.8"), Namespace: "shop", Pod: "web-2"}
	ctx, cancel := contextThatEnds(t)
	defer cancel()
	if err := third.Claim(ctx, claim); !errors.As(err, &held) ||
		held != (blocks.ErrHeld{Address: claim.Address, Node: "n2", Namespace: "shop", Pod: "web-1"}) {
		t.Errorf("of a borrowed address: error %v", err)
	}
	if b := l.blockNamed("10.1.0.0-26"); len(b.Requested) != 0 {
		t.Errorf("what was refused is still requested: %v", b.Requested)
	}
	l.sound(owner, n, third)
}

func TestClaimWithdrawsItsRequestWhenTheNodeDoesNotAnswer(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/26", 26))
	owner := l.node("n1")
	n := l.node("n2")
	l.step(owner)
	owner.cut = true
	ctx, cancel := contextThatEnds(t)
	defer cancel()
	err := n.Claim(ctx, blocks.Static{
		Pool:      l.pools[0],
		Address:   netip.MustParseAddr("10.1.0.7"),
		Namespace: "shop",
		Pod:       "web-0",
	})
	if err == nil || !strings.Contains(err.Error(), "node n1 did not answer") {
		t.Errorf("error %v", err)
	}
	if b := l.blockNamed("10.1.0.0-26"); len(b.Requested)+len(b.Borrowed) != 0 {
		t.Errorf("requested %v, borrowed %v", b.Requested, b.Borrowed)
	}
}

func TestUnusedRequestExpires(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/26", 26))
	owner := l.node("n1")
	n := l.node("n2")
	l.step(owner)
	s := &blocks.Static{Pool: l.pools[0], Address: netip.MustParseAddr("10.1.0.7"), Namespace: "shop", Pod: "web-0"}
	if _, err := n.TryClaim(t.Context(), s); err != nil { // and the node ends
		t.Fatal(err)
	}
	l.step(owner)
	if b := l.blockNamed("10.1.0.0-26"); len(b.Offered) != 1 || b.Offered[0] != "10.1.0.7" ||
		owner.local.LeaseThis("", s.Address) {
		t.Errorf("the owner offers %v of the requested addresses, or allocates one itself", b.Offered)
	}
	l.now = l.now.Add(2 * time.Minute)
	l.step(owner)
	if b := l.blockNamed("10.1.0.0-26"); len(b.Offered)+len(b.Requested) != 0 || !owner.local.LeaseThis("", s.Address) {
		t.Errorf("offered %v, requested %v", b.Offered, b.Requested)
	}
}

func TestStaticAddressIsNotGivenBackBeforeItsPodHasStarted(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/26", 26))
	owner := l.node("n1")
	n := l.node("n2")
	l.step(owner)
	if err := l.static(n, "10.1.0.7", "web-0", owner); err != nil {
		t.Fatal(err)
	}
	n.local.Release(netip.MustParseAddr("10.1.0.7")) // its ADD failed for another reason, and is tried again
	for range 3 {
		l.now = l.now.Add(10 * time.Second)
		_ = n.Step(t.Context()) // finds no block
	}
	if !n.local.LeaseThis("", netip.MustParseAddr("10.1.0.7")) {
		t.Error("the address is not this node's any more")
	}
}

func TestStaticAddressBeyondMaxBlocksIsRefused(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/24", 26))
	l.marks.MaxBlocks = 1
	n := l.node("n1")
	l.step(n)
	own, _ := netip.ParsePrefix(string(l.store.All()[0].Spec.CIDR))
	address := l.pools[0].Block(0).Addr().Next()
	if own.Contains(address) {
		address = l.pools[0].Block(1).Addr().Next()
	}
	if err := l.static(n, address.String(), "web-0"); err == nil ||
		!strings.Contains(err.Error(), "has 1 blocks of pool pods, which is the most") {
		t.Errorf("error %v", err)
	}
}

// lendTo makes the owner lend an address to a node, for a pod.
func (l *lab) lendTo(n *node, address string, owner *node) {
	l.t.Helper()
	l.step(owner)
	if err := l.static(n, address, "web-0", owner); err != nil {
		l.t.Fatal(err)
	}
}

func TestNodeThatLostABorrowedAddressIsolatesItsPod(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/26", 26))
	owner := l.node("n1")
	var isolated []netip.Prefix
	n := &node{
		local: &blockstest.Node{Name: "n2", Judge: blockstest.NewJudge(), Now: l.clock},
		uid:   "uid of n2",
		taken: func(b netaddr.Block, by string) bool {
			if by != "n1" {
				t.Errorf("taken by %q", by)
			}
			isolated = append(isolated, b.Prefix)
			return true
		},
	}
	l.restart(n)
	l.lendTo(n, "10.1.0.7", owner)
	b, _ := l.store.Get(t.Context(), "10.1.0.0-26")
	b.Spec.Borrowed = nil // the controller's, after the node was gone for long
	l.store.Put(*b)
	l.step(owner)
	_ = n.Step(t.Context()) // finds no block
	if len(isolated) == 0 || isolated[0] != netip.MustParsePrefix("10.1.0.7/32") {
		t.Errorf("isolated are the pods of %v", isolated)
	}
	if list := n.Blocks(); len(list) != 0 {
		t.Errorf("the node still has %v", list)
	}
	n.local.Release(netip.MustParseAddr("10.1.0.7"))
	_ = n.Step(t.Context())
	if n.local.LeaseThis("", netip.MustParseAddr("10.1.0.7")) {
		t.Error("the node gives the lost address to another pod")
	}
}

func TestNodeWithoutANodeObjectAllocatesNoBorrowedAddress(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/26", 26))
	owner := l.node("n1")
	n := l.node("n2")
	l.lendTo(n, "10.1.0.7", owner)
	n.local.Release(netip.MustParseAddr("10.1.0.7"))
	n.uid = ""
	l.step(n)
	if n.local.LeaseThis("", netip.MustParseAddr("10.1.0.7")) {
		t.Error("a pod gets the address")
	}
	if _, err := n.TryClaim(t.Context(), &blocks.Static{
		Pool:    l.pools[0],
		Address: netip.MustParseAddr("10.1.0.8"),
	}); err == nil {
		t.Error("the node claims another one")
	}
	n.uid = "uid of n2"
	_ = n.Step(t.Context()) // finds no block
	if !n.local.LeaseThis("", netip.MustParseAddr("10.1.0.7")) {
		t.Error("no pod gets the address after the Node is back")
	}
}

func TestBlockOfADeletedNodeStaysWhileOtherNodesBorrowFromIt(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/26", 26))
	owner := l.node("n1")
	n := l.node("n2")
	heir := l.node("n3")
	l.lendTo(n, "10.1.0.7", owner)
	owner.uid = ""
	l.step(owner)
	c := &blocks.Collector{
		Store: l.store,
		Pools: func() []blocks.PoolCIDR { return l.pools },
		Now:   l.clock,
		NodeUID: func(_ context.Context, name string) (string, error) {
			return map[string]string{"n1": owner.uid, "n2": n.uid, "n3": heir.uid}[name], nil
		},
	}
	for range 2 {
		if _, err := c.Collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.now = l.now.Add(blocks.DefaultLeakGrace)
	}
	if b := l.blockNamed("10.1.0.0-26"); b.Node != "" || len(b.Borrowed) != 1 {
		t.Errorf("the block is that of %q, and lends %v", b.Node, b.Borrowed)
	}
	_ = n.Step(t.Context()) // borrows of the block, so it does not claim it
	l.step(heir)
	for range 63 {
		if a := heir.local.Lease(); a == netip.MustParseAddr("10.1.0.7") {
			t.Errorf("%s gives %s out, which n2 borrows", heir.local.Name, a)
		}
	}
	l.sound(n, heir)
}

func TestLoansOfNetworksWithTheSameAddressesAreSeparate(t *testing.T) {
	of := func(network string) blocks.PoolCIDR {
		return blocks.PoolCIDR{Network: network, Prefix: netip.MustParsePrefix("10.1.0.0/26"), Bits: 26}
	}
	l := newLab(t, of("blue"), of("red"))
	owner := l.node("n1")
	n := l.node("n2")
	l.step(owner)
	for _, p := range l.pools {
		s := &blocks.Static{Pool: p, Address: netip.MustParseAddr("10.1.0.7")}
		for range 3 {
			if _, err := n.TryClaim(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			l.step(owner)
		}
		if !n.local.LeaseThis(p.Network, s.Address) {
			t.Errorf("the address of network %s is not given out", p.Network)
		}
	}
	if list := n.Blocks(); len(list) != 2 {
		t.Errorf("the node borrows of %d blocks, want 2", len(list))
	}
}

func TestRequestedAddressIsNotLentToAnotherNode(t *testing.T) {
	l := newLab(t, borrowable("10.1.0.0/26", 26))
	l.marks.Low = 64
	l.marks.High = 64 // the owner has none to spare, and offers what is requested only
	owner := l.node("n1")
	n := l.node("n2")
	other := l.node("n3")
	l.step(owner)
	s := &blocks.Static{Pool: l.pools[0], Address: netip.MustParseAddr("10.1.0.60")}
	if _, err := n.TryClaim(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	l.step(owner)
	writes := l.store.Calls()["update"]
	for range 3 {
		_ = other.Step(t.Context()) // finds no block
	}
	if other.local.LeaseThis("", s.Address) || l.store.Calls()["update"] > writes {
		t.Error("the requested address was lent to another node, if only for a moment")
	}
	if claimed, err := n.TryClaim(t.Context(), s); !claimed || err != nil {
		t.Errorf("claimed %v, error %v", claimed, err)
	}
}

func TestLoanIsReturnedWhenTheAnswerWasLost(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/26", 26))
	owner := l.node("n1")
	n := l.node("n2")
	l.step(owner)
	_ = n.Step(t.Context())
	l.now = l.now.Add(time.Minute)
	_ = n.Step(t.Context()) // looks for loans of an earlier life
	s := &blocks.Static{Pool: l.pools[0], Address: netip.MustParseAddr("10.1.0.7")}
	if _, err := n.TryClaim(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	l.step(owner)
	l.store.Fault = func(string, string) blockstest.Fault { return blockstest.Lost }
	if _, err := n.TryClaim(t.Context(), s); err == nil {
		t.Fatal("the claim succeeded")
	}
	l.store.Fault = nil
	if b := l.blockNamed("10.1.0.0-26"); len(b.Borrowed) != 1 {
		t.Fatalf("borrowed %v", b.Borrowed)
	}
	for range 4 { // no pod asks for it again
		l.now = l.now.Add(time.Minute)
		_ = n.Step(t.Context()) // finds no block
	}
	if b := l.blockNamed("10.1.0.0-26"); len(b.Borrowed) != 0 {
		t.Errorf("still borrowed: %v", b.Borrowed)
	}
}

func TestStaticAddressThatAnotherNodeBorrowsWithoutAPodReturnsToItsOwner(t *testing.T) {
	l := newLab(t, borrowable("10.1.0.0/26", 26))
	owner := l.node("n1")
	n := l.node("n2")
	l.step(owner)
	l.step(n)
	lent := l.blockNamed("10.1.0.0-26").Borrowed
	if len(lent) == 0 {
		t.Fatal("nothing is borrowed ahead of need")
	}
	if err := l.static(owner, string(lent[0].Address), "web-0", n); err != nil {
		t.Error(err)
	}
	l.sound(owner, n)
}

// The borrower returns addresses of a deleted network, and so their block can be released.
func TestBlockOfADeletedNetworkIsReleasedAfterItsLoan(t *testing.T) {
	blue := blocks.PoolCIDR{Network: "blue", Prefix: netip.MustParsePrefix("10.5.0.0/26"), Bits: 26}
	for when, restart := range map[string]bool{"in one run": false, "after a restart": true} {
		t.Run(when, func(t *testing.T) {
			l := newLab(t, blue)
			owner := l.node("n1")
			borrower := l.node("n2")
			l.step(owner)
			s := &blocks.Static{Pool: blue, Address: netip.MustParseAddr("10.5.0.7"), Namespace: "shop", Pod: "web-0"}
			for claimed := false; !claimed; l.step(owner) {
				var err error
				if claimed, err = borrower.TryClaim(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}
			borrower.local.LeaseThis("blue", s.Address)
			l.pools = nil
			if restart {
				owner = l.restart(owner, owner.kept...)
				borrower = l.restart(borrower, borrower.kept...)
			}
			for range 3 {
				l.now = l.now.Add(l.marks.Grace)
				l.step(borrower)
				l.step(owner)
			}
			l.want(owner, 1, "while a pod has the address")
			borrower.end([]netip.Addr{s.Address})
			for range 4 {
				l.now = l.now.Add(l.marks.Grace)
				l.step(borrower)
				l.step(owner)
			}
			l.want(owner, 0, "after the pod")
			if faults := l.judge.Faults(); len(faults) > 0 || len(borrower.Blocks()) > 0 {
				t.Errorf("faults %v, the borrower knows %v", faults, borrower.Blocks())
			}
		})
	}
}
