package blocks_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/blocks/blockstest"
)

// A node with the most blocks and no free address: to wait for a further block is in vain.
func TestNodeWithTheMostBlocksIsFull(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/16", 26))
	l.marks.MaxBlocks = 1
	n := l.node("n1")
	l.step(n)
	l.want(n, 1, "at first")
	if n.IsFull(l.pools[0]) {
		t.Error("full with 64 free addresses")
	}
	l.lease(n, 64)
	if err := need(t, n, l.pools[0]); err == nil ||
		!strings.Contains(err.Error(), "the most blocks that it may have, 1") {
		t.Errorf("error %v, want one that says that the node has the most blocks", err)
	}
	if !n.IsFull(l.pools[0]) {
		t.Error("not full, although no further block may be claimed and no address is free")
	}
	l.marks.MaxBlocks = 2
	if n.IsFull(l.pools[0]) {
		t.Error("full, although a second block may be claimed")
	}
}

// taken makes another node hold all four blocks of the pool.
func (l *lab) taken() {
	for _, cidr := range []v1.CIDR{"10.1.0.0/26", "10.1.0.64/26", "10.1.0.128/26", "10.1.0.192/26"} {
		l.store.Put(v1.IPBlock{
			ObjectMeta: metav1.ObjectMeta{Name: blocks.Name("", cidr.Prefix())},
			Spec:       v1.IPBlockSpec{CIDR: cidr, Pool: "pods", Node: "n2"},
		})
	}
}

// A refused request says nothing about the pool: another node may have released a block since.
func TestARefusedRequestDoesNotSayThatThePoolIsExhausted(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/24", 26))
	l.taken()
	n := l.node("n1")
	p := l.pools[0]
	if err := need(t, n, p); !errors.As(err, &blocks.ErrNoBlocks{}) || !n.Exhausted(p) {
		t.Fatalf("error %v, exhausted %t", err, n.Exhausted(p))
	}
	l.store.Drop(blocks.Name("", netip.MustParsePrefix("10.1.0.64/26")))
	l.fail("create", blockstest.Unavailable)
	if err := need(t, n, p); err == nil || n.Exhausted(p) {
		t.Errorf("error %v, exhausted %t", err, n.Exhausted(p))
	}
	l.store.Fault = nil
	if err := need(t, n, p); err != nil {
		t.Error(err)
	}
}

// A step for one of the pods that wait is one for all of them, whatever it finds.
func TestPodsThatWaitForAnExhaustedPoolShareItsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, pool("10.1.0.0/24", 26))
		l.taken()
		n := l.node("n1")
		lists := func(pods int) int {
			before := l.store.Calls()["list"]
			ctx, cancel := context.WithCancel(t.Context())
			var waiting sync.WaitGroup
			for range pods {
				waiting.Go(func() {
					if err := n.Need(ctx, l.pools[0]); !errors.As(err, &blocks.ErrNoBlocks{}) {
						t.Error(err)
					}
				})
			}
			synctest.Wait() // all wait for the keeper
			ended := make(chan error, 1)
			go func() { ended <- n.Run(ctx) }()
			waiting.Wait()
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			return l.store.Calls()["list"] - before
		}
		if one, hundred := lists(1), lists(100); one == 0 || hundred > 2*one {
			t.Errorf("%d lists for a pod, %d for a hundred", one, hundred)
		}
	})
}
