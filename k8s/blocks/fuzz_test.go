package blocks_test

import (
	"encoding/json"
	"net/netip"
	"testing"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
)

// FuzzCheck reads any IPBlocks: the name of a valid one follows from its prefix, and a valid list has each address
// once.
func FuzzCheck(f *testing.F) {
	for _, text := range []string{
		`[{"metadata":{"name":"10.9.2.0-26"},"spec":{"cidr":"10.9.2.0/26","pool":"pods","node":"n1"},"status":{"used":1,"allocations":[{"address":"10.9.2.5","attachment":"a"}]}}]`,
		`[{"metadata":{"name":"10.9.2.0-26"},"spec":{"cidr":"10.9.2.0/26","pool":"pods","node":"n2","offered":["10.9.2.9"],"borrowed":[{"address":"10.9.2.9","node":"n1"}]}}]`,
		`[{"metadata":{"name":"10.9.2.0-26"},"spec":{"cidr":"10.9.2.0/26","pool":"pods"}},{"metadata":{"name":"10.9.0.0-16"},"spec":{"cidr":"10.9.0.0/16","pool":"pods"}}]`,
		`[{"metadata":{"name":"blue.fd00-0"},"spec":{"cidr":"fd00::/122","network":"blue","node":"x"}}]`, `[{},null]`,
	} {
		f.Add([]byte(text))
	}
	pools := []blocks.PoolCIDR{
		{Name: "pods", Prefix: netip.MustParsePrefix("10.9.0.0/16"), Bits: 26},
		{Network: "blue", Prefix: netip.MustParsePrefix("fd00::/112"), Bits: 122},
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var list []v1.IPBlock
		if json.Unmarshal(raw, &list) != nil {
			return
		}
		for i := range list {
			b := &list[i]
			if p, err := blocks.Parse(b); err == nil &&
				(p != p.Masked() || blocks.Name(string(b.Spec.Network), p) != b.Name) {
				t.Errorf("block %s is taken for %v", b.Name, p)
			}
		}
		violations := blocks.Check(pools, list, blocks.Nodes{"n1": "u1", "n2": "u2"})
		if len(violations) == 0 && overlapping(list) {
			t.Errorf("%s has nothing wrong, and blocks that overlap", raw)
		}
		total := 0
		for _, s := range blocks.Shares(pools, list) {
			total += s.Blocks
		}
		if total != len(list) {
			t.Errorf("nodes have %d of %d blocks", total, len(list))
		}
		blocks.CheckLeases(pools, list, "n1", []blocks.Lease{{Pool: "pods", Address: netip.MustParseAddr("10.9.2.9")}})
	})
}

// overlapping compares all pairs.
func overlapping(list []v1.IPBlock) bool {
	for i := range list {
		for j := range i {
			x, errX := netip.ParsePrefix(string(list[i].Spec.CIDR))
			y, errY := netip.ParsePrefix(string(list[j].Spec.CIDR))
			if errX == nil && errY == nil && list[i].Spec.Network == list[j].Spec.Network && x.Overlaps(y) {
				return true
			}
		}
	}
	return false
}
