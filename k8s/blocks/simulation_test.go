package blocks_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/weftnet/weft/k8s/blocks"
)

// TestAThousandNodesClaimAtOnce starts a cluster: all nodes claim a block at the same time, and then a second one.
func TestAThousandNodesClaimAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name   string
		prefix string
		nodes  int
		most   float64 // calls a claim
	}{
		{"a pool with eight times the blocks", "10.0.0.0/13", 1000, 1.5},
		{"a pool with hardly a block more", "10.0.0.0/15", 1000, 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t, pool(tt.prefix, 26))
			var nodes []*node
			for i := range tt.nodes {
				nodes = append(nodes, l.node(fmt.Sprintf("node-%d", i)))
			}
			l.all(nodes)
			for _, n := range nodes {
				l.lease(n, 60)
			}
			l.all(nodes)
			claims := len(l.store.All())
			if claims != 2*tt.nodes {
				t.Errorf("%d blocks are claimed, want %d", claims, 2*tt.nodes)
			}
			calls := l.store.Calls()
			share := float64(calls[""]) / float64(claims)
			t.Logf("%d nodes, %d claims of %d blocks: %.2f calls a claim %v", tt.nodes, claims, l.pools[0].Blocks(),
				share, calls)
			if share > tt.most {
				t.Errorf("%.2f calls a claim, want %.1f at most", share, tt.most)
			}
			l.sound(nodes...)
		})
	}
}

// TestMoreNodesThanBlocks has a pool that is too small: each block has one node, and the other nodes get an error.
func TestMoreNodesThanBlocks(t *testing.T) {
	l := newLab(t, pool("10.0.0.0/20", 26))
	var nodes []*node
	for i := range 200 {
		nodes = append(nodes, l.node(fmt.Sprintf("node-%d", i)))
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	without := 0
	for _, n := range nodes {
		wg.Go(func() {
			err := n.Step(t.Context())
			for err != nil && !errors.As(err, &blocks.ErrNoBlocks{}) { // others were faster
				err = n.Step(t.Context())
			}
			if err != nil {
				mu.Lock()
				without++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if got := len(l.store.All()); got != 64 || without != 200-64 {
		t.Errorf("%d of 64 blocks are claimed, %d of 136 nodes got the error that none is left", got, without)
	}
	l.sound(nodes...)
}

// all steps all nodes at the same time, and again those that were overtaken.
func (l *lab) all(nodes []*node) {
	l.t.Helper()
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() {
			for range 20 {
				if n.Step(l.t.Context()) == nil {
					return
				}
			}
			l.t.Errorf("%s does not come to an end", n.local.Name)
		})
	}
	wg.Wait()
}
