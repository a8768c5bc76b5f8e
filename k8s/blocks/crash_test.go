package blocks_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/blocks/blockstest"
)

// life is a sequence of all operations of nodes on blocks. One write fails, and the node that makes it ends.
type life struct {
	*lab
	nodes  []*node
	alive  map[string]string // UIDs by name
	at     int               // the number of the write, from 1
	fault  blockstest.Fault
	writes int
	struck bool  // the write was made, and the node has ended at it
	down   *node // it has ended, and was not started again
}

func newLife(t *testing.T, at int, fault blockstest.Fault) *life {
	l := &life{lab: newLab(t, borrowable("10.1.0.0/27", 29)), alive: make(map[string]string), at: at, fault: fault}
	l.marks = blocks.Marks{Low: 2, High: 4, Grace: 20 * time.Second, MaxBlocks: 3}
	for _, name := range []string{"n1", "n2", "n3"} {
		n := l.node(name)
		n.local.Rest = 5 * time.Second
		l.alive[name] = n.uid
		l.nodes = append(l.nodes, n)
	}
	return l
}

// look is a step of a node. At the failing write the node ends: nothing after it has an effect. It restarts at its next
// look, and before that it allocates addresses without the API server.
func (l *life) look(n *node) {
	l.t.Helper()
	if l.down == n { // the others had their time meanwhile
		l.down = nil
		l.restart(n, n.kept...)
		l.noDuplicates()
	}
	ended := false
	l.store.Fault = func(string, string) blockstest.Fault {
		if ended {
			return blockstest.Unavailable
		}
		l.writes++
		if l.writes != l.at || l.struck {
			return blockstest.None
		}
		l.struck = true
		if l.fault == blockstest.Conflict {
			return l.fault // the node lives on
		}
		ended = true
		n.keepFails = true
		return l.fault
	}
	if _, lives := l.alive[n.local.Name]; lives {
		_ = n.Step(l.t.Context()) // its errors are the fault, and that no block is left
	}
	l.store.Fault = nil
	if ended {
		n.local.Crash()
		l.down = n
		n.keepFails = false
	}
	l.noDuplicates()
}

// noDuplicates lets leaks pass.
func (l *life) noDuplicates() {
	l.t.Helper()
	for _, fault := range l.judge.Faults() {
		l.t.Fatal(fault)
	}
	for _, v := range blocks.Check(l.pools, l.store.All(), l.alive) {
		if !slices.Contains([]blocks.Rule{blocks.RuleNode, blocks.RuleBorrower}, v.Rule) {
			l.t.Fatal(v)
		}
	}
}

func (l *life) all() {
	for _, n := range l.nodes {
		l.look(n)
	}
}

// live claims, fills, borrows, returns and releases.
func (l *life) live() {
	l.all()
	for range 3 { // until all blocks are claimed, and addresses are lent
		for _, n := range l.nodes {
			for range 5 {
				n.local.Lease()
			}
			l.look(n)
		}
	}
	l.store.Arrive()
	l.empty()
	for range 5 {
		l.now = l.now.Add(30 * time.Second)
		l.all()
	}
}

// empty ends all pods.
func (l *life) empty() {
	for _, n := range l.nodes {
		n.end(n.local.Pods())
	}
}

// faults lists the failures of a write.
var faults = map[string]blockstest.Fault{
	"conflict": blockstest.Conflict, "not written": blockstest.Unavailable,
	"written without an answer": blockstest.Lost, "written later": blockstest.Late,
}

func TestANodeThatEndsAtAnyWriteContinuesAfterARestart(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			at := 1
			for ; ; at++ {
				l := newLife(t, at, fault)
				l.live()
				l.live()
				if !l.struck {
					break
				}
				if left := blocks.Check(l.pools, l.store.All(), l.alive); left != nil {
					t.Fatalf("after write %d: %v", at, left)
				}
			}
			t.Logf("%d writes", at-1)
			if at < 20 {
				t.Errorf("%d writes are too few to be a life", at-1)
			}
		})
	}
}

func TestLeaksOfADeletedNodeAreCollected(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			leaks := 0
			for at := 1; ; at++ {
				l := newLife(t, at, fault)
				l.live()
				if !l.struck {
					break
				}
				leaks += l.bury(at)
			}
			if leaks == 0 {
				t.Error("nothing was ever left")
			}
		})
	}
}

// bury fills and deletes the second node. Its blocks and loans are freed, and other nodes get them.
func (l *life) bury(at int) (leaks int) {
	l.t.Helper()
	gone := l.nodes[1]
	for gone.local.Lease().IsValid() {
		continue
	}
	l.look(gone)
	delete(l.alive, gone.local.Name)
	l.noDuplicates()
	leaks = len(blocks.Check(l.pools, l.store.All(), l.alive))
	l.empty()
	l.now = l.now.Add(time.Minute) // its pods are gone, and their addresses have rested
	gone.local.Crash()
	c := l.collector(l.alive)
	c.NodeUID = func(_ context.Context, name string) (string, error) { return l.alive[name], nil }
	for range 8 {
		if _, err := c.Collect(l.t.Context()); err != nil {
			l.t.Fatalf("after write %d: %v", at, err)
		}
		l.now = l.now.Add(time.Hour)
		l.all()
	}
	if left := blocks.Check(l.pools, l.store.All(), l.alive); left != nil {
		l.t.Fatalf("after write %d and the collection: %v", at, left)
	}
	if n := l.blocksOf(gone); n != 0 {
		l.t.Fatalf("after write %d and the collection: %d blocks of a deleted node", at, n)
	}
	return leaks
}
