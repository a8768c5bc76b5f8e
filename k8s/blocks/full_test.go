package blocks_test

import (
	"strings"
	"testing"
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
