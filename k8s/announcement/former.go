package announcement

import (
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
)

// Former are grants of objects that are gone, which pods still use: a pool that was deleted leaves its blocks until they are
// empty, and a node that joined again with other podCIDRs still has pods of the earlier ones. Only this node's own
// observation gets something in here, never an announcement.
type Former struct {
	Blocks map[string]string         `json:"blocks,omitempty"` // by name of an IPBlock, its UID: it was a block of a pool
	Ranges map[string][]netip.Prefix `json:"ranges,omitempty"` // by node, podCIDRs that its Node had
}

// Learn adds what a state of the cluster grants now to what is remembered, and drops what has become useless or another's.
func (f Former) Learn(c Cluster) Former {
	next := Former{Blocks: make(map[string]string), Ranges: make(map[string][]netip.Prefix)}
	for _, b := range c.Blocks {
		prefix, err := blocks.Parse(b)
		if err != nil {
			continue
		}
		isBlock := slices.ContainsFunc(c.Pools, func(p blocks.Pool) bool {
			return p.Name == b.Spec.Pool && p.Network == string(b.Spec.Network) && p.Has(prefix)
		})
		if isBlock || f.Blocks[b.Name] == string(b.UID) {
			next.Blocks[b.Name] = string(b.UID)
		}
	}
	var current bart.Lite
	for _, n := range c.Nodes {
		for _, r := range n.Ranges {
			current.Insert(r)
		}
	}
	for name, ranges := range f.Ranges { // of nodes that are gone too: they may join again
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

// Used are the remembered grants that the accepted announcements rest on.
func (v *Validator) Used() Former { return v.used }

// wasBlock reports whether a block of a pool that is gone was a block of that pool when it was there, and overlaps no pool
// that is there now.
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

// wasRange reports whether an address is of a former podCIDR of a node, which no other node and no pool has now.
func (v *Validator) wasRange(node string, address netip.Prefix) bool {
	i := slices.IndexFunc(v.cluster.Former.Ranges[node], func(r netip.Prefix) bool { return r.Contains(address.Addr()) })
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

// isPooled reports whether a prefix overlaps a pool or a network that is there.
func (v *Validator) isPooled(network string, p netip.Prefix) bool {
	return slices.ContainsFunc(v.cluster.Pools, func(o blocks.Pool) bool { return o.Network == network && o.Prefix.Overlaps(p) })
}
