package blocks_test

import (
	"net/netip"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
)

// sound is a valid cluster; each case of the test breaks one thing.
func sound() ([]blocks.PoolCIDR, []v1.IPBlock) {
	block := v1.IPBlock{
		ObjectMeta: metav1.ObjectMeta{Name: "10.1.0.0-26"},
		Spec: v1.IPBlockSpec{
			CIDR: "10.1.0.0/26", Pool: "pods", Node: "n1", Offered: []v1.IP{"10.1.0.9"},
			Borrowed: []v1.Loan{{Address: "10.1.0.9", Node: "n2"}},
		},
		Status: v1.IPBlockStatus{
			Used:        1,
			Allocations: []v1.Allocation{{Address: "10.1.0.3", Attachment: "weft/c1/eth0"}},
		},
	}
	other := *block.DeepCopy()
	other.Name = "10.1.0.64-26"
	other.Spec.CIDR = "10.1.0.64/26"
	other.Spec.Offered = nil
	other.Spec.Borrowed = nil
	other.Status = v1.IPBlockStatus{}
	return []blocks.PoolCIDR{pool("10.1.0.0/16", 26)}, []v1.IPBlock{block, other}
}

func TestEachViolationIsFound(t *testing.T) {
	for _, tt := range []struct {
		rule    blocks.Rule
		destroy func(*[]blocks.PoolCIDR, *v1.IPBlock, *v1.IPBlock)
	}{
		{"", func(*[]blocks.PoolCIDR, *v1.IPBlock, *v1.IPBlock) {}},
		{blocks.RuleOverlap, func(p *[]blocks.PoolCIDR, _, b *v1.IPBlock) {
			b.Name = "10.1.0.0-24"
			b.Spec.CIDR = "10.1.0.0/24"
			*p = append(*p, blocks.PoolCIDR{Name: "pods", Prefix: netip.MustParsePrefix("10.1.0.0/16"), Bits: 24})
		}},
		{blocks.RuleTwice, func(_ *[]blocks.PoolCIDR, a, _ *v1.IPBlock) {
			a.Status.Used = 2
			a.Status.Allocations = append(a.Status.Allocations, a.Status.Allocations[0])
		}},
		{
			blocks.RuleTwice,
			func(_ *[]blocks.PoolCIDR, a, _ *v1.IPBlock) { a.Status.Allocations[0].Address = "10.1.0.9" },
		},
		{
			blocks.RuleOutside,
			func(_ *[]blocks.PoolCIDR, a, _ *v1.IPBlock) { a.Status.Allocations[0].Address = "10.1.0.64" },
		},
		{blocks.RuleLoan, func(_ *[]blocks.PoolCIDR, a, _ *v1.IPBlock) { a.Spec.Offered = nil }},
		{blocks.RuleLoan, func(_ *[]blocks.PoolCIDR, a, _ *v1.IPBlock) { a.Spec.Borrowed[0].Node = "n1" }},
		{blocks.RuleLoan, func(_ *[]blocks.PoolCIDR, a, _ *v1.IPBlock) {
			a.Spec.Offered[0] = "10.9.0.9"
			a.Spec.Borrowed[0].Address = "10.9.0.9"
		}},
		{blocks.RuleNamed, func(_ *[]blocks.PoolCIDR, _, b *v1.IPBlock) { b.Name = "mine" }},
		{blocks.RulePools, func(p *[]blocks.PoolCIDR, _, _ *v1.IPBlock) {
			*p = append(*p, blocks.PoolCIDR{Name: "more", Prefix: netip.MustParsePrefix("10.1.128.0/17"), Bits: 26})
		}},
		{blocks.RulePool, func(_ *[]blocks.PoolCIDR, _, b *v1.IPBlock) { b.Spec.Pool = "gone" }},
		{blocks.RulePool, func(_ *[]blocks.PoolCIDR, _, b *v1.IPBlock) {
			b.Name = "10.1.0.64-27"
			b.Spec.CIDR = "10.1.0.64/27"
		}},
		{blocks.RuleNode, func(_ *[]blocks.PoolCIDR, _, b *v1.IPBlock) { b.Spec.Node = "n3" }},
		{blocks.RuleOwner, func(_ *[]blocks.PoolCIDR, _, b *v1.IPBlock) {
			b.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: "n1"}}
		}},
		{blocks.RuleBorrower, func(_ *[]blocks.PoolCIDR, a, _ *v1.IPBlock) { a.Spec.Borrowed[0].Node = "n3" }},
		{blocks.RuleAccounting, func(_ *[]blocks.PoolCIDR, a, _ *v1.IPBlock) { a.Status.Used = 5 }},
	} {
		t.Run(string(tt.rule), func(t *testing.T) {
			pools, list := sound()
			tt.destroy(&pools, &list[0], &list[1])
			found := blocks.Check(pools, list, blocks.Nodes{"n1": "1", "n2": "2"})
			if tt.rule == "" && len(found) > 0 || len(found) > 2 {
				t.Fatalf("found %v", found)
			}
			if !slices.ContainsFunc(found, func(v blocks.Violation) bool { return v.Rule == tt.rule }) &&
				tt.rule != "" {
				t.Errorf("found %v, want %s", found, tt.rule)
			}
		})
	}
}

func TestNetworksMayUseTheSameAddresses(t *testing.T) {
	pools, list := sound()
	pools = append(pools, blocks.PoolCIDR{Network: "blue", Prefix: netip.MustParsePrefix("10.1.0.0/16"), Bits: 26})
	blue := *list[1].DeepCopy()
	blue.Name = "blue.10.1.0.64-26"
	blue.Spec.Network = "blue"
	blue.Spec.Pool = ""
	if found := blocks.Check(pools, append(list, blue), blocks.Nodes{"n1": "1", "n2": "2"}); found != nil {
		t.Errorf("found %v", found)
	}
}

func TestALeaseWithoutABlockIsFound(t *testing.T) {
	pools, list := sound()
	pools = append(pools, blocks.PoolCIDR{Network: "blue", Prefix: netip.MustParsePrefix("10.5.0.0/16"), Bits: 26})
	other := *list[1].DeepCopy()
	other.Name = "10.1.0.128-26"
	other.Spec.CIDR = "10.1.0.128/26"
	other.Spec.Node = "n2"
	blue := *list[1].DeepCopy()
	blue.Name = "blue.10.5.1.0-26"
	blue.Spec.CIDR = "10.5.1.0/26"
	blue.Spec.Network = "blue"
	blue.Spec.Pool = ""
	list = append(list, other, blue)
	for _, tt := range []struct {
		node, pool, address, why string
		found                    bool
		network                  string
	}{
		{"n1", "pods", "10.1.0.3", "of its own block", false, ""},
		{"n2", "pods", "10.1.0.9", "lent to the node", false, ""},
		{"n2", "pods", "10.1.0.10", "of the lender", true, ""},
		{"n1", "pods", "10.1.0.130", "of another node's block", true, ""},
		{"n1", "pods", "10.1.9.1", "of an unclaimed block", true, ""},
		{"n1", "pods", "10.5.1.1", "of a block of another network", false, ""},
		{"n1", "", "10.5.1.1", "of a network's block", false, "blue"},
		{"n2", "", "10.5.1.1", "of another node's block of a network", true, "blue"},
		{"n1", "", "10.5.0.1", "of no block of a network", true, "blue"},
		{"n1", "", "10.1.0.3", "of another range than the network's", false, "blue"},
		{"n1", "own", "10.7.0.1", "of a pool of the node alone", false, ""},
		{"n1", "pods", "10.7.0.1", "of an earlier pool of the name", false, ""},
	} {
		lease := blocks.Lease{
			Pool:    tt.pool,
			Network: tt.network,
			Address: netip.MustParseAddr(tt.address),
			Holder:  "weft/c/eth0",
		}
		got := blocks.CheckLeases(pools, list, tt.node, []blocks.Lease{lease})
		if want := tt.found; (len(got) == 1 && got[0].Rule == blocks.RuleLease) != want || len(got) > 1 {
			t.Errorf("%s %s: found %v, want %t", tt.address, tt.why, got, want)
		}
	}
}

func TestSharesAreInTheOrderOfThePools(t *testing.T) {
	pools, list := sound()
	lost := *list[1].DeepCopy()
	lost.Name = "10.9.0.0-26"
	lost.Spec.CIDR = "10.9.0.0/26"
	lost.Spec.Pool = "gone"
	lost.Spec.Node = ""
	pools = append(pools, blocks.PoolCIDR{Name: "a", Prefix: netip.MustParsePrefix("10.2.0.0/16"), Bits: 26})
	of := *list[1].DeepCopy()
	of.Name = "10.2.0.0-26"
	of.Spec.CIDR = "10.2.0.0/26"
	of.Spec.Pool = "a"
	want := []blocks.Share{
		{Pool: pools[0], Node: "n1", Blocks: 2, Used: 1, Offered: 1}, {Pool: pools[0], Node: "n2", Borrowed: 1},
		{Pool: pools[1], Node: "n1", Blocks: 1}, {Pool: blocks.PoolCIDR{Name: "gone"}, Blocks: 1},
	}
	if got := blocks.Shares(pools, append([]v1.IPBlock{lost, of}, list...)); !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
