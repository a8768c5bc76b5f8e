package k8s_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/weftnet/weft/k8s"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/blocks/blockstest"
)

// TestNodesClaimBlocksOfTheAPIServer is the whole road: objects, watches and writes, by several nodes at a time.
func TestNodesClaimBlocksOfTheAPIServer(t *testing.T) {
	l := newLab(t)
	l.pool("pods", "10.1.0.0/24", 0, nil)
	judge := blockstest.NewJudge()
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer wg.Wait()
	defer cancel()
	var nodes []*blockstest.Node
	for i := range 4 {
		name := fmt.Sprintf("n%d", i+1)
		l.node(name, nil)
		c := l.known(func(c *k8s.Config) { c.Node = name })
		n := &blockstest.Node{Name: name, Judge: judge}
		k, err := blocks.New(blocks.Config{
			Node: name, Owner: func() string { return c.View().Node.UID }, Store: l.client().BlockStore(), Local: n, Observed: c.Blocks, Foreign: c.ForeignBlock,
			Pools: func() []blocks.Pool { v := c.View(); return v.ClaimedFrom() },
		})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { _ = k.Run(ctx) })
		nodes = append(nodes, n)
	}
	for i := range 4 {
		l.eventually("each node has a block", func() bool { return nodes[i].Lease().IsValid() })
	}
	list, err := l.client().BlockStore().List(t.Context(), blocks.Pool{Name: "pods"}, true)
	if err != nil || len(list) != 4 {
		t.Fatalf("%d blocks, error %v", len(list), err)
	}
	there := blocks.Nodes{}
	for _, n := range nodes {
		there[n.Name] = "uid of " + n.Name
	}
	p := blocks.Pool{Name: "pods", Prefix: netip.MustParsePrefix("10.1.0.0/24"), Bits: 26}
	for _, v := range blocks.Check([]blocks.Pool{p}, list, there) {
		t.Error(v)
	}
	for _, fault := range judge.Faults() {
		t.Error(fault)
	}
}

func TestWritesAreOfTheVersionThatWasRead(t *testing.T) {
	l := newLab(t)
	s := l.client().BlockStore()
	made, err := s.Create(t.Context(), &v1.IPBlock{Spec: v1.IPBlockSpec{CIDR: "10.1.0.0/26", Pool: "pods", Node: "n1"}, ObjectMeta: named("10.1.0.0-26")})
	if err != nil {
		t.Fatal(err)
	}
	made.Status.Used = 3
	newer, err := s.UpdateStatus(t.Context(), made)
	if err != nil || newer.Status.Used != 3 {
		t.Fatalf("status %+v, error %v", newer.Status, err)
	}
	if _, err := s.Update(t.Context(), made); err == nil {
		t.Error("an old version was written")
	}
	if err := s.Delete(t.Context(), made); err == nil {
		t.Error("an old version was deleted")
	}
	if err := s.Delete(t.Context(), newer); err != nil {
		t.Error(err)
	}
}

// rows: IPM-15
func TestTheAPIServerIsWhatKeepersNeed(t *testing.T) {
	blockstest.Conform(t, newLab(t).client().BlockStore())
}
