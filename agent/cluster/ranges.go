package cluster

import (
	"slices"
	"strings"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/k8s/nodeview"
)

// RangesOf returns the podCIDRs of a node as pools. A pool is named by its prefix: a node that joins again gets other
// podCIDRs, which are other pools, and pods may have addresses of both.
func RangesOf(node nodeview.Node) []netaddr.Pool {
	var ranges []netaddr.Pool
	for _, r := range node.PodCIDRs {
		ranges = append(ranges, netaddr.Pool{
			Name:   "pod-cidr-" + strings.NewReplacer(":", "-", "/", "-").Replace(r.String()),
			Prefix: r,
		})
	}
	return ranges
}

// WithRanges returns the pools to start with: the node's ranges, and ranges of an earlier run that it no longer has.
// The latter are closed, and are removed when no pod has an address of them.
func WithRanges(c config.Config, ranges []netaddr.Pool, kept networks.SavedPools) *networks.SavedPools {
	pools := slices.Clone(ranges)
	for _, p := range kept.Pools {
		isRange := slices.ContainsFunc(pools, func(o netaddr.Pool) bool { return o.Prefix == p.Prefix })
		if !isRange && !p.Blocks {
			p.Disabled = true
			pools = append(pools, p)
		}
	}
	return &networks.SavedPools{
		Pools:          pools,
		NamespacePools: c.Addresses.NamespacePools,
		NodePools:      c.Addresses.NodePools,
	}
}
