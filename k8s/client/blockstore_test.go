package client_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/yaml"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/blocks/blockstest"
	"github.com/weftnet/weft/k8s/nodeview"
)

// TestNodesClaimBlocksOfTheAPIServer covers objects, watches and writes of several concurrent nodes.
func TestNodesClaimBlocksOfTheAPIServer(t *testing.T) {
	l := newLab(t)
	l.Pool("pods", "10.1.0.0/24", 0, nil)
	judge := blockstest.NewJudge()
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer wg.Wait()
	defer cancel()
	var nodes []*blockstest.Node
	for i := range 4 {
		name := fmt.Sprintf("n%d", i+1)
		l.Node(name, nil)
		c := l.Known(func(c *nodeview.Config) { c.Node = name })
		n := &blockstest.Node{Name: name, Judge: judge}
		k, err := blocks.New(blocks.Config{
			Node:  name,
			Owner: func() string { return c.View().Node.UID },
			Store: l.Client().BlockStore(),
			Local: n,
			Watch: c,
			Pools: func() ([]blocks.PoolCIDR, bool) { v := c.View(); return v.ClaimedFrom(), true },
		})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { _ = k.Run(ctx) })
		nodes = append(nodes, n)
	}
	for i := range 4 {
		l.Eventually("each node has a block", func() bool { return nodes[i].Lease().IsValid() })
	}
	list, err := l.Client().BlockStore().List(t.Context(), blocks.PoolCIDR{Name: "pods"}, true)
	if err != nil || len(list) != 4 {
		t.Fatalf("%d blocks, error %v", len(list), err)
	}
	there := blocks.Nodes{}
	for _, n := range nodes {
		there[n.Name] = "uid of " + n.Name
	}
	p := blocks.PoolCIDR{Name: "pods", Prefix: netip.MustParsePrefix("10.1.0.0/24"), Bits: 26}
	for _, v := range blocks.Check([]blocks.PoolCIDR{p}, list, there) {
		t.Error(v)
	}
	for _, fault := range judge.Faults() {
		t.Error(fault)
	}
}

func TestWritesFailWhenTheVersionHasChanged(t *testing.T) {
	l := newLab(t)
	s := l.Client().BlockStore()
	made, err := s.Create(t.Context(), &v1.IPBlock{
		Spec:       v1.IPBlockSpec{CIDR: "10.1.0.0/26", Pool: "pods", Node: "n1"},
		ObjectMeta: named("10.1.0.0-26"),
	})
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

func TestTheAPIServerConforms(t *testing.T) {
	blockstest.Conform(t, newLab(t).Client().BlockStore())
}

func TestABlockIsFoundByItsAddressesItsNodeAndItsPool(t *testing.T) {
	l := newLab(t)
	s := l.Client().BlockStore()
	for i, node := range []v1.NodeName{"n1", "n2", "n1"} {
		p := blocks.PoolCIDR{Name: "pods", Prefix: netip.MustParsePrefix("10.1.0.0/16"), Bits: 26}
		b := &v1.IPBlock{ObjectMeta: named(blocks.Name("", p.Block(uint64(i))))}
		b.Spec = v1.IPBlockSpec{CIDR: v1.CIDR(p.Block(uint64(i)).String()), Pool: "pods", Node: node}
		if _, err := s.Create(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := s.Get(t.Context(), blocks.Name("", netip.MustParsePrefix("10.1.0.64/26"))); err != nil ||
		b.Spec.Node != "n2" {
		t.Errorf("by its addresses: %+v, error %v", b, err)
	}
	of := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.node", "n1").String()}
	if list, err := l.Client().Blocks().List(t.Context(), of); err != nil || len(list.Items) != 2 {
		t.Errorf("by its node: %d blocks, error %v", len(list.Items), err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Name             string
				Storage          bool
				SelectableFields []struct{ JSONPath string }
			}
		}
	}
	if text, err := os.ReadFile("../manifests/crds/contivpp.io_ipblocks.yaml"); err != nil ||
		yaml.Unmarshal(text, &crd) != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(crd.Spec.Versions); got != "[{v1 true [{.spec.node} {.spec.pool} {.spec.network}]}]" {
		t.Errorf("versions, and what they can be found by: %s", got)
	}
}
