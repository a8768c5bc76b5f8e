package blocks_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/internal/netaddr"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/blocks/blockstest"
)

// need runs the keeper until it answers a pod.
func need(t *testing.T, n *node, p blocks.PoolCIDR) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- n.Run(ctx) }()
	err := n.Need(ctx, p)
	cancel()
	if ended := <-done; !errors.Is(ended, context.Canceled) {
		t.Errorf("the keeper ended with %v", ended)
	}
	return err
}

func (l *lab) fail(verb string, fault blockstest.Fault) {
	l.store.Fault = func(v, _ string) blockstest.Fault {
		if v == verb {
			return fault
		}
		return blockstest.None
	}
}

func TestTheWatchFindsAClaimWhenTheAnswerIsLost(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/16", 26))
	n := l.node("n1")
	l.fail("create", blockstest.Lost)
	if err := n.Step(t.Context()); err == nil {
		t.Error("no error for a claim without an answer")
	}
	l.store.Fault = nil
	l.step(n)
	l.want(n, 1, "after the answer was lost")
	l.lease(n, 1)
	l.sound(n)
}

func TestABlockIsNotUsedAgainWhenTheAnswerToItsReleaseIsLost(t *testing.T) {
	for _, fault := range []blockstest.Fault{blockstest.Lost, blockstest.Unavailable} {
		l := newLab(t, pool("10.1.0.0/26", 26))
		n := l.node("n1")
		other := l.node("n2")
		l.step(n)
		l.pools[0].Closed = true
		l.now = l.now.Add(time.Hour)
		l.fail("delete", fault)
		if err := n.Step(t.Context()); err == nil {
			t.Error("no error for a release without an answer")
		}
		l.pools[0].Closed = false
		if a := n.local.Lease(); a.IsValid() {
			t.Errorf("%s is given out although its block may be gone", a)
		}
		l.store.Fault = nil
		if fault == blockstest.Lost {
			l.step(other)
		}
		_ = n.Step(t.Context()) // with the block gone to n2 it finds none
		l.sound(n, other)
	}
}

func TestABlockThatIsBeingReleasedIsNotStored(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/26", 26))
	n := l.node("n1")
	other := l.node("n2")
	l.step(n)
	l.pools[0].Closed = true
	l.now = l.now.Add(time.Hour)
	l.store.Fault = func(string, string) blockstest.Fault {
		n.keepFails = true // from now on: the node ends
		return blockstest.Lost
	}
	_ = n.Step(t.Context())
	l.store.Fault = nil
	l.pools[0].Closed = false
	l.step(other)
	n.local.Crash()
	n.away = true // there is no API server when it starts again
	l.restart(n, n.kept...)
	if a := n.local.Lease(); a.IsValid() {
		t.Errorf("%s is given out, and its block is n2's", a)
	}
	l.sound(n, other)
}

func TestABlockThatChangedWhileItWasReleasedStays(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/26", 26))
	n := l.node("n1")
	l.step(n)
	l.pools[0].Closed = true
	l.now = l.now.Add(time.Hour)
	conflicts := 0
	l.store.Fault = func(verb, _ string) blockstest.Fault {
		if conflicts++; verb == "delete" && conflicts == 1 {
			return blockstest.Conflict
		}
		return blockstest.None
	}
	l.step(n)
	l.want(n, 0, "after a conflict and a second try")
	l.sound(n)
}

func TestANodeWithALostDiskKeepsNoStaleClaim(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/16", 26))
	n := l.node("n1")
	l.step(n)
	for range 3 {
		l.lease(n, 60)
		l.step(n)
	}
	l.want(n, 4, "before the disk is lost")
	n.local = &blockstest.Node{Name: "n1", Judge: l.judge, Now: l.clock}
	l.restart(n)
	l.step(n)
	l.now = l.now.Add(time.Hour)
	l.step(n)
	l.want(n, 1, "with a new disk and no pods")
	l.sound(n)
}

func TestBlocksOfAnEarlierNodeOfTheSameName(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/16", 26))
	n := l.node("n1")
	l.step(n)
	l.lease(n, 50)
	l.step(n)
	l.want(n, 2, "before the node is made again")
	n.uid = ""
	l.step(n)
	if a := n.local.Lease(); a.IsValid() {
		t.Errorf("without a Node %s is given out", a)
	}
	l.want(n, 2, "while there is no Node")
	n.uid = "a new uid"
	l.step(n)
	l.want(n, 2, "after the node is made again")
	l.lease(n, 10)
	l.sound(n)
}

// No other node claims a block that is being deleted while it has a finalizer.
func TestABlockThatIsBeingDeletedIsNotTaken(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/16", 26))
	n := l.node("n1")
	n.taken = func(_ netaddr.Block, by string) bool { t.Errorf("taken by %s", by); return true }
	l.restart(n)
	l.step(n)
	l.lease(n, 2)
	b := l.store.All()[0]
	b.DeletionTimestamp = &metav1.Time{Time: l.now}
	l.store.Put(b)
	l.restart(n, n.kept...)
	l.step(n)
	l.store.Drop(b.Name)
	l.step(n)
	l.sound(n)
}

// Kubernetes deletes a block within seconds after its owner, the Node, while the node's pods run.
func TestBlocksHaveNoOwner(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/16", 26))
	n := l.node("n1")
	l.step(n)
	b := l.store.All()[0]
	if len(b.OwnerReferences) > 0 {
		t.Errorf("it is owned by %v", b.OwnerReferences)
	}
	b.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: "n1", UID: "1"}} // of an older version
	l.store.Put(b)
	l.lease(n, 10)
	l.restart(n, n.kept...)
	l.step(n)
	l.sound(n)
}

func TestATakenBlockIsReportedAsLongAsPodsUseIt(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/16", 26))
	n := l.node("n1")
	told := 0
	n.taken = func(_ netaddr.Block, by string) bool {
		if told++; by != "n2" {
			t.Errorf("taken by %s", by)
		}
		return told > 1 // isolation takes a while
	}
	l.restart(n)
	l.step(n)
	pods := l.lease(n, 2)
	b := l.store.All()[0]
	prefix := netip.MustParsePrefix(string(b.Spec.CIDR))
	l.store.Drop(b.Name)
	b.Spec.Node = "n2"
	b.UID = "another"
	l.store.Put(b)
	for i := range 2 {
		if err := n.Step(t.Context()); (err != nil) != (i == 0) || told != i+1 {
			t.Errorf("look %d: error %v, told %d times", i, err, told)
		}
		kept := slices.ContainsFunc(n.kept, func(k v1.IPBlock) bool { return k.Name == b.Name })
		if isolated := i == 1; kept == isolated {
			t.Errorf("look %d: the block is kept: %v, its pods are isolated: %v", i, kept, isolated)
		}
	}
	n.local.Crash()
	l.restart(n, n.kept...)
	if a := n.local.Lease(); prefix.Contains(a) {
		t.Errorf("%s of the other node's block is given out", a)
	}
	n.end(pods)
	before := told
	l.now = l.now.Add(time.Hour)
	l.step(n)
	if told != before {
		t.Error("it is reported although no pod has its address")
	}
}

func TestWithoutANodeObjectNothingIsClaimed(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/16", 26))
	n := l.node("n1")
	n.uid = ""
	l.step(n)
	if calls := l.store.Calls(); calls[""] != 0 {
		t.Errorf("calls %v", calls)
	}
}

func TestADeletedBlockIsClaimedAgainForItsPods(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/26", 26))
	n := l.node("n1")
	l.step(n)
	l.lease(n, 10)
	l.store.Drop("10.1.0.0-26")
	l.step(n)
	l.want(n, 1, "after the block was deleted")
	l.lease(n, 1)
	l.sound(n)
}

func TestABlockOfAnotherNodeIsNotAllocatedAnyMore(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/26", 26))
	n := l.node("n1")
	l.step(n)
	l.lease(n, 1)
	l.store.Drop("10.1.0.0-26")
	taken := v1.IPBlock{Spec: v1.IPBlockSpec{CIDR: "10.1.0.0/26", Pool: "pods", Node: "n2"}}
	taken.Name = "10.1.0.0-26"
	l.store.Put(taken)
	err := n.Step(t.Context())
	if err == nil || !strings.Contains(err.Error(), "belongs to node n2") {
		t.Errorf("error %v, want one that names the other node", err)
	}
	if a := n.local.Lease(); a.IsValid() {
		t.Errorf("%s of n2's block is given out", a)
	}
}

func TestKnownBlocksServePodsWhileTheAPIServerIsAway(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/16", 26))
	n := l.node("n1")
	l.step(n)
	known := n.Blocks()
	n.local = &blockstest.Node{Name: "n1", Judge: l.judge, Now: l.clock}
	n.away = true
	calls := l.store.Calls()[""]
	l.restart(n, known...)
	l.step(n)
	l.lease(n, 64)
	if l.store.Calls()[""] != calls {
		t.Error("the API server was asked although it is away")
	}
	n.away = false
	l.step(n)
	l.want(n, 2, "when the API server is back")
	l.sound(n)
}

func TestAnOldListClaimsNothingTwice(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/24", 26))
	l.store.Freeze() // lists show an empty pool for ever, but for those that ask for a fresh one
	var nodes []*node
	for _, name := range []string{"n1", "n2", "n3", "n4"} {
		n := l.node(name)
		for range 20 {
			if err := n.Step(t.Context()); err == nil && l.blocksOf(n) == 1 {
				break
			}
		}
		l.want(n, 1, "with old lists")
		nodes = append(nodes, n)
	}
	l.sound(nodes...)
}

func TestNamesAndNumbersOfBlocks(t *testing.T) {
	for _, tt := range []struct {
		network, prefix string
		bits            int
		number          uint64
		block, name     string
	}{
		{"", "10.1.0.0/16", 26, 1, "10.1.0.64/26", "10.1.0.64-26"},
		{"blue", "10.1.0.0/16", 26, 1023, "10.1.255.192/26", "blue.10.1.255.192-26"},
		{"", "fd00:1::/48", 122, 1 << 31, "fd00:1::20:0:0/122", "fd00-0001-0000-0000-0000-0020-0000-0000-122"},
	} {
		p := blocks.PoolCIDR{Name: "pods", Prefix: netip.MustParsePrefix(tt.prefix), Bits: tt.bits}
		got := p.Block(tt.number)
		if got.String() != tt.block || blocks.Name(tt.network, got) != tt.name || !p.Has(got) {
			t.Errorf("block %d of %s: %s named %s, want %s named %s", tt.number, tt.prefix, got,
				blocks.Name(tt.network, got), tt.block, tt.name)
		}
	}
}

func TestABlockIsNotUsedWhenItCannotBeStored(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/16", 26))
	n := l.node("n1")
	n.keepFails = true
	if err := n.Step(t.Context()); err == nil {
		t.Error("no error")
	}
	if a := n.local.Lease(); a.IsValid() {
		t.Errorf("%s is given out, and a restart would not know of its block", a)
	}
	n.keepFails = false
	l.step(n)
	l.lease(n, 1)
	l.want(n, 1, "when it can be kept")
}
