package agent

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/k8s"
	"github.com/weftnet/weft/pod"
)

// wantsRanges reports whether pools are to be the node's ranges.
func (a *Agent) wantsRanges() bool {
	return len(a.config.Pools) == 0 && a.config.Kubernetes.Mode == config.InCluster && a.config.Kubernetes.Addresses == config.OfPodCIDR
}

// rangesOf are the pools that are a node's ranges. Their names are the prefixes', so that ranges of a node that joined again
// are other pools than those it had: pods may have addresses of both.
func rangesOf(node k8s.Node) []config.Pool {
	var ranges []config.Pool
	for _, r := range node.PodCIDRs {
		ranges = append(ranges, config.Pool{Name: "pod-cidr-" + strings.NewReplacer(":", "-", "/", "-").Replace(r.String()), Prefix: r})
	}
	return ranges
}

// podPools are pools in the words of an event.
func podPools(pools []config.Pool) []pod.Pool {
	list := make([]pod.Pool, len(pools))
	for i, p := range pools {
		list[i] = pod.Pool{Name: p.Name, Prefix: p.Prefix, Disabled: p.Disabled, Namespaces: p.Namespaces}
	}
	return list
}

// besideRanges are the pools to start with: the node's ranges, and those of an earlier run that are its no more. These are
// closed, and go when no pod has an address of them.
func (a *Agent) besideRanges(kept ipnet.SavedPools) *ipnet.SavedPools {
	pools := podPools(a.ranges)
	for _, p := range kept.Pools {
		isRange := slices.ContainsFunc(pools, func(o pod.Pool) bool { return o.Prefix == p.Prefix })
		if !isRange && !p.Blocks {
			p.Disabled = true
			pools = append(pools, p)
		}
	}
	return &ipnet.SavedPools{Pools: pools, NamespacePools: a.config.NamespacePools, NodePools: a.config.NodePools}
}

// inRanges are the prefixes by which others lead packets to pods with addresses of ranges: these, and of ranges that are the
// node's no more each address that a pod has still.
func (a *Agent) inRanges() []netip.Prefix {
	addresses := a.network.Allocator("")
	var list, closed []netip.Prefix
	for _, p := range addresses.Pools() {
		if p.Disabled {
			closed = append(closed, p.Prefix)
			continue
		}
		list = append(list, p.Prefix)
	}
	for _, l := range addresses.Leases() {
		isClosed := slices.ContainsFunc(closed, func(p netip.Prefix) bool { return p.Contains(l.Address) })
		if isClosed && (l.State == ipam.Used || l.State == ipam.Leased) {
			list = append(list, netip.PrefixFrom(l.Address, l.Address.BitLen()))
		}
	}
	return list
}
