package blocks_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/blocks/blockstest"
)

func TestANodeClaimsABlockAheadOfNeedInOneCall(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/16", 26))
	n := l.node("n1")
	l.step(n)
	l.want(n, 1, "at first")
	if calls := l.store.Calls(); calls[""] != 1 {
		t.Errorf("calls %v, want one create", calls)
	}
	for range 10 {
		l.step(n)
	}
	if calls := l.store.Calls(); calls[""] != 1 {
		t.Errorf("an idle node calls on: %v", calls)
	}
	l.sound(n)
}

func TestTheNextBlockIsClaimedBeforeTheFirstOneIsFull(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/16", 26))
	n := l.node("n1")
	l.step(n)
	l.lease(n, 48)
	l.step(n)
	l.want(n, 1, "with 16 free addresses")
	l.lease(n, 1)
	l.step(n)
	l.want(n, 2, "with 15 free addresses")
	l.lease(n, 16) // 65 pods on 64 addresses a block, without a step between
	l.sound(n)
}

func TestWholeBlocksCanBeKeptReady(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/16", 26))
	l.marks.WarmBlocks = 2
	n := l.node("n1")
	l.step(n)
	l.want(n, 2, "at first")
	pods := l.lease(n, 1)
	l.step(n)
	l.want(n, 3, "with a pod")
	pods = append(pods, l.lease(n, 63)...)
	l.step(n)
	l.want(n, 3, "with a block's addresses in use")
	pods = append(pods, l.lease(n, 1)...)
	l.step(n)
	l.want(n, 4, "with one more")
	n.end(pods)
	for range 3 { // the addresses rest, the grace passes
		l.now = l.now.Add(l.marks.Grace + time.Minute)
		l.step(n)
	}
	l.want(n, 2, "without pods")
	l.idles(n)
	l.sound(n)
}

func TestEmptyBlocksAreReleasedOnceAfterTheGrace(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/16", 26))
	n := l.node("n1")
	l.step(n)
	var pods []netip.Addr
	for range 20 {
		pods = append(pods, l.lease(n, 10)...)
		l.step(n)
	}
	l.want(n, 4, "with 200 pods")
	n.end(pods)
	l.step(n)
	l.now = l.now.Add(31 * time.Second) // the addresses have rested: the grace begins
	l.step(n)
	l.now = l.now.Add(l.marks.Grace - time.Second)
	l.step(n)
	l.want(n, 4, "just before the end of the grace")
	l.now = l.now.Add(2 * time.Second)
	l.step(n)
	l.want(n, 1, "after the grace")
	l.idles(n)
	l.sound(n)
}

func TestACoolingAddressKeepsItsBlock(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/16", 26))
	l.marks.Grace = 0
	l.marks.Low = 1
	l.marks.High = 1
	n := l.node("n1")
	l.step(n)
	a := l.lease(n, 1)[0]
	n.local.Release(a)
	l.marks.Low = 0
	l.marks.High = 0
	l.step(n)
	l.want(n, 1, "while the address rests")
	l.now = l.now.Add(time.Minute)
	l.step(n)
	l.want(n, 0, "when it has rested")
}

func TestAClosedPoolReleasesEmptyBlocksAndClaimsNone(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/16", 26))
	n := l.node("n1")
	l.step(n)
	pods := l.lease(n, 60)
	l.pools[0].Closed = true
	l.step(n)
	l.want(n, 1, "with pods")
	n.end(pods)
	l.now = l.now.Add(time.Minute)
	l.step(n)
	l.now = l.now.Add(time.Hour)
	l.step(n)
	l.want(n, 0, "without pods")
}

func TestBlocksOfADeletedPoolAreReleased(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/16", 26))
	n := l.node("n1")
	l.step(n)
	l.pools = nil
	l.now = l.now.Add(time.Hour)
	l.step(n)
	l.want(n, 0, "without the pool")
}

func TestADeletedPoolKeepsOnlyBlocksInUse(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/16", 26))
	n := l.node("n1")
	l.step(n)
	pods := l.lease(n, 60)
	l.step(n)
	l.want(n, 2, "with 60 pods")
	l.pools = nil
	l.step(n)
	l.want(n, 1, "as soon as the pool is gone")
	l.now = l.now.Add(time.Hour)
	l.step(n)
	l.want(n, 1, "while pods have its addresses")
	n.end(pods)
	l.step(n)
	l.want(n, 1, "while their addresses rest")
	l.now = l.now.Add(31 * time.Second)
	l.step(n)
	l.want(n, 0, "when they have rested")
	if faults := l.judge.Faults(); len(faults) > 0 {
		t.Error(faults)
	}
}

func TestAnUnknownPoolKeepsItsBlocksForTheGrace(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/16", 26))
	n := l.node("n1")
	l.step(n)
	l.pools = nil
	l.unknown = true
	l.step(n)
	l.want(n, 1, "before all pools are known")
	l.unknown = false
	l.step(n)
	l.want(n, 0, "when it is known to be gone")
}

// A network may be unknown for a moment while its pods run.
func TestADeletedNetworkKeepsItsBlocksForTheGrace(t *testing.T) {
	p := blocks.PoolCIDR{Network: "blue", Prefix: netip.MustParsePrefix("10.5.0.0/16"), Bits: 26}
	l := newLab(t, p)
	n := l.node("n1")
	l.step(n)
	l.pools = nil
	l.now = l.now.Add(l.marks.Grace - time.Second)
	l.step(n)
	l.want(n, 1, "within the grace")
	l.now = l.now.Add(time.Second)
	l.step(n)
	l.want(n, 0, "after the grace")
}

// The node may find a block of a network that it does not have: the network was deleted during the claim, or while the
// agent was not running.
func TestABlockOfANetworkThatTheNodeDoesNotHave(t *testing.T) {
	p := blocks.PoolCIDR{Network: "blue", Prefix: netip.MustParsePrefix("10.5.0.0/16"), Bits: 26}
	found := func(t *testing.T, known bool) (*lab, *node) {
		l := newLab(t, p)
		n := l.node("n1")
		l.step(n)
		l.want(n, 1, "before")
		n.local.Lacks = "blue"
		n.local.Crash()
		l.pools = nil
		if known {
			return l, l.restart(n, n.kept...)
		}
		n = l.restart(n)
		if err := n.Step(t.Context()); !errors.Is(err, blocks.ErrNoNetwork) {
			t.Errorf("the node finds the block, error %v", err)
		}
		return l, n
	}
	for when, known := range map[string]bool{"with its state": true, "without its state": false} {
		t.Run("is released after the grace, "+when, func(t *testing.T) {
			l, n := found(t, known)
			l.step(n)
			l.want(n, 1, "within the grace")
			l.now = l.now.Add(l.marks.Grace)
			l.step(n)
			l.want(n, 0, "after the grace")
		})
		t.Run("is used when the network is back, "+when, func(t *testing.T) {
			l, n := found(t, known)
			l.step(n)
			l.pools = []blocks.PoolCIDR{p} // before the node has it
			l.step(n)
			l.want(n, 1, "while it cannot use a block")
			n.local.Lacks = ""
			l.step(n)
			l.step(n)
			l.want(n, 1, "with the network")
			if !n.local.LeaseThis("blue", netip.MustParseAddr(firstOf(n.Blocks()[0]))) {
				t.Error("a pod has no address of the block")
			}
		})
	}
}

// firstOf returns an address of a block for a pod.
func firstOf(b v1.IPBlock) string {
	return netip.MustParsePrefix(string(b.Spec.CIDR)).Addr().Next().String()
}

func TestAnUnclaimedObjectIsClaimedByCompareAndSwap(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/26", 26))
	block := netip.MustParsePrefix("10.1.0.0/26")
	b := v1.IPBlock{Spec: v1.IPBlockSpec{CIDR: "10.1.0.0/26", Pool: "pods"}}
	b.Name = blocks.Name("", block)
	l.store.Put(b)
	faster := l.node("n2")
	first := true
	l.store.Fault = func(verb, _ string) blockstest.Fault {
		if verb == "update" && first {
			first = false
			return blockstest.Conflict
		}
		return blockstest.None
	}
	n := l.node("n1")
	l.step(n)
	l.want(n, 1, "after a conflict and another look")
	if err := faster.Step(t.Context()); !errors.As(err, &blocks.ErrNoBlocks{}) {
		t.Errorf("the slower node got %v, want that no block is left", err)
	}
	l.sound(n, faster)
}

func TestAPoolWithoutBlocksIsReportedAndRarelyTried(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/25", 26))
	a := l.node("n1")
	b := l.node("n2")
	c := l.node("n3")
	l.step(a)
	l.step(b)
	err := c.Step(t.Context())
	if !errors.As(err, &blocks.ErrNoBlocks{}) || !strings.Contains(err.Error(), "pool pods") {
		t.Fatalf("error %v, want one that names the exhausted pool", err)
	}
	calls := l.store.Calls()[""]
	l.now = l.now.Add(10 * time.Second)
	l.step(c)
	if l.store.Calls()[""] != calls {
		t.Error("an exhausted pool is checked again at once")
	}
	l.pools[0].Closed = true
	l.now = l.now.Add(time.Hour)
	l.step(a)
	l.pools[0].Closed = false
	l.step(c)
	l.want(c, 1, "after n1 gave its block back")
	l.sound(a, b, c)
}

// A pool is not exhausted if other nodes are faster each time: the next step comes soon, and claims.
func TestAContendedPoolIsNotExhausted(t *testing.T) {
	l := newLab(t, borrowable("10.1.0.0/16", 26))
	n := l.node("n1")
	l.store.Freeze() // the node lists what there was before the others came
	contended := true
	l.store.Fault = func(verb, name string) blockstest.Fault {
		if contended && verb == "create" {
			b := v1.IPBlock{Spec: v1.IPBlockSpec{CIDR: "10.1.0.0/26", Pool: "pods", Node: "n2"}}
			b.Name = name
			l.store.Put(b)
		}
		return blockstest.None
	}
	if err := n.Step(t.Context()); err == nil || errors.As(err, &blocks.ErrNoBlocks{}) {
		t.Errorf("error %v, expected one that does not say that the pool is exhausted", err)
	}
	contended = false
	l.step(n)
	l.want(n, 1, "at the next look")
}

func TestAPoolOnDemandClaimsNoBlockUntilAPodNeedsIt(t *testing.T) {
	p := blocks.PoolCIDR{Network: "blue", Prefix: netip.MustParsePrefix("fd00:5::/64"), Bits: 122, OnDemand: true}
	l := newLab(t, p)
	n := l.node("n1")
	l.step(n)
	l.want(n, 0, "at first")
	if err := need(t, n, p); err != nil {
		t.Fatal(err)
	}
	l.want(n, 1, "when a pod needs it")
	l.now = l.now.Add(time.Hour)
	l.step(n)
	l.want(n, 0, "when no pod used it")
	l.sound(n)
}
