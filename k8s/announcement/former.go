package announcement

import (
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
)

// Former is the grants of deleted objects that pods still use: the blocks of a deleted pool exist until they are empty,
// and a node that joined again with other podCIDRs still has pods with addresses of the earlier ones. Only this node's
// own observations add grants, announcements never do.
type Former struct {
	// UIDs of former blocks of a pool, by name of the IPBlock
	Blocks map[string]string         `json:"blocks,omitempty"`
	Ranges map[string][]netip.Prefix `json:"ranges,omitempty"` // former podCIDRs, by node
}

// Learn adds the current grants, and drops those that are useless or belong to another node now.
func (f Former) Learn(c Cluster) Former {
	next := Former{Blocks: make(map[string]string), Ranges: make(map[string][]netip.Prefix)}
	for _, b := range c.Blocks {
		prefix, err := blocks.Parse(b)
		if err != nil {
			continue
		}
		isBlock := func(p blocks.PoolCIDR) bool { return p.Owns(b, prefix) }
		if slices.ContainsFunc(c.Pools, isBlock) || f.Blocks[b.Name] == string(b.UID) {
			next.Blocks[b.Name] = string(b.UID)
		}
	}
	var current bart.Lite
	for _, n := range c.Nodes {
		for _, r := range n.Ranges {
			current.Insert(r)
		}
	}
	for name, ranges := range f.Ranges { // also of deleted nodes, which may join again
		for _, r := range ranges {
			if !current.OverlapsPrefix(r) {
				next.Ranges[name] = append(next.Ranges[name], r)
			}
		}
	}
	for name, n := range c.Nodes {
		if len(n.Ranges) > 0 {
			next.Ranges[name] = append(next.Ranges[name], n.Ranges...)
		}
	}
	return next
}

// Used returns the former grants that the accepted announcements depend on.
func (v *Validator) Used() Former { return v.used }

// wasBlock reports whether a block was a block of its deleted pool, and overlaps no current pool.
func (v *Validator) wasBlock(b *v1.IPBlock, prefix netip.Prefix) bool {
	uid, known := v.cluster.Former.Blocks[b.Name]
	if !known || uid != string(b.UID) || v.isPooled(string(b.Spec.Network), prefix) {
		return false
	}
	if v.used.Blocks == nil {
		v.used.Blocks = make(map[string]string)
	}
	v.used.Blocks[b.Name] = uid
	return true
}

// wasRange reports whether an address is in a former podCIDR of a node, and in no current podCIDR or pool.
func (v *Validator) wasRange(node string, address netip.Prefix) bool {
	i := slices.IndexFunc(v.cluster.Former.Ranges[node], func(r netip.Prefix) bool {
		return r.Contains(address.Addr())
	})
	if i < 0 || v.isPooled("", address) {
		return false
	}
	for _, other := range v.cluster.Nodes {
		if within(other.Ranges, address) {
			return false
		}
	}
	if v.used.Ranges == nil {
		v.used.Ranges = make(map[string][]netip.Prefix)
	}
	used := append(slices.Clone(v.used.Ranges[node]), v.cluster.Former.Ranges[node][i])
	slices.SortFunc(used, netip.Prefix.Compare)
	v.used.Ranges[node] = slices.Compact(used)
	return true
}

// isPooled reports whether a prefix overlaps a pool or a network.
func (v *Validator) isPooled(network string, p netip.Prefix) bool {
	return slices.ContainsFunc(v.cluster.Pools, func(o blocks.PoolCIDR) bool {
		return o.Network == network && o.Prefix.Overlaps(p)
	})
}
