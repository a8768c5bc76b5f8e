package blocks_test

import (
	"context"
	"testing"
	"time"

	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/blocks/blockstest"
)

func (l *lab) collector(alive map[string]string) *blocks.Collector {
	return &blocks.Collector{
		Store: l.store, Pools: func() []blocks.PoolCIDR { return l.pools }, Now: l.clock,
		NodeUID: func(_ context.Context, name string) (string, error) { return alive[name], nil },
	}
}

func (l *lab) collect(c *blocks.Collector, want int, when string) {
	l.t.Helper()
	freed, err := c.Collect(l.t.Context())
	if err != nil || len(freed) != want {
		l.t.Fatalf("%s: freed %v, error %v, want %d", when, freed, err, want)
	}
}

func TestABlockOfADeletedNodeIsFreedAfterTheGrace(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/16", 26))
	gone := l.node("n1")
	there := l.node("n2")
	l.step(gone)
	l.step(there)
	c := l.collector(map[string]string{"n2": "2"})
	l.now = l.now.Add(time.Hour)
	l.collect(c, 0, "at the first observation, however late")
	l.now = l.now.Add(blocks.DefaultLeakGrace - time.Second)
	l.collect(c, 0, "before the grace is over")
	l.now = l.now.Add(time.Second)
	l.collect(c, 1, "after the grace")
	l.want(gone, 0, "in the end")
	l.want(there, 1, "in the end")
}

func TestANodeThatComesBackKeepsItsBlock(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/16", 26))
	n := l.node("n1")
	l.step(n)
	alive := map[string]string{}
	c := l.collector(alive)
	l.collect(c, 0, "while it is away")
	alive["n1"] = "1"
	l.now = l.now.Add(time.Hour)
	l.collect(c, 0, "when it is back")
	delete(alive, "n1")
	l.collect(c, 0, "when it is deleted again: the time restarts")
	l.want(n, 1, "in the end")
}

func TestTheNodeIsCheckedAgainJustBeforeItsBlockIsFreed(t *testing.T) {
	l := newLab(t, pool("10.1.0.0/16", 26))
	n := l.node("n1")
	l.step(n)
	c := l.collector(nil)
	l.collect(c, 0, "at first")
	l.now = l.now.Add(time.Hour)
	asked := 0
	c.NodeUID = func(context.Context, string) (string, error) {
		if asked++; asked == 1 {
			return "", nil
		}
		return "1", nil
	}
	l.collect(c, 0, "when it comes back between two questions")
	c.NodeUID = func(context.Context, string) (string, error) { return "", nil }
	l.fail("delete", blockstest.Conflict)
	l.collect(c, 0, "when another client writes the block")
	l.want(n, 1, "in the end")
}

func TestALoanOfADeletedNodeIsFreed(t *testing.T) {
	l := newLab(t, borrowable("10.1.0.0/26", 26))
	lender := l.node("n1")
	borrower := l.node("n2")
	l.step(lender)
	l.step(borrower)
	c := l.collector(map[string]string{"n1": "1"})
	l.collect(c, 0, "at first")
	l.now = l.now.Add(time.Hour)
	for range 2 { // one write a look: the object of the second loan has changed
		_, _ = c.Collect(t.Context())
		l.now = l.now.Add(time.Hour)
	}
	if lent := l.store.All()[0].Spec.Borrowed; len(lent) != 0 {
		t.Errorf("still lent: %v", lent)
	}
}
