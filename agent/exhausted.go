package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/wire"
)

// exhausted says which pools of one family have no address for another pod, where that is to make the node unavailable. An
// address that cools down will be free soon.
func (a *Agent) exhausted() string {
	if !a.config.ExhaustedIsUnavailable {
		return ""
	}
	byFamily := make(map[wire.Family][]ipam.Stats)
	for _, s := range a.network.Allocator("").Stats() {
		if !s.Disabled {
			family := wire.FamilyOf(s.Prefix.Addr())
			byFamily[family] = append(byFamily[family], s)
		}
	}
	for _, family := range []wire.Family{wire.IP4, wire.IP6} {
		stats := byFamily[family]
		if len(stats) > 0 && !slices.ContainsFunc(stats, a.hasMore) {
			return "pool exhausted: " + heldOf(stats) + "; delete pods, or add a pool"
		}
	}
	return ""
}

// hasMore reports whether a pool has, or can soon get, an address for another pod.
func (a *Agent) hasMore(s ipam.Stats) bool {
	if s.Free+s.Cooling > 0 {
		return true
	}
	return s.Blocks && !slices.ContainsFunc(a.claimedFrom(), func(p blocks.Pool) bool {
		return nameOfPool(p) == s.Name && p.Prefix == s.Prefix && a.keeper.Exhausted(p)
	})
}

func heldOf(stats []ipam.Stats) string {
	var texts []string
	for _, s := range stats {
		texts = append(texts, fmt.Sprintf("all %d addresses that this node has of pool %s (%s) are held", s.Used+s.Leased, s.Name, s.Prefix))
	}
	return strings.Join(texts, ", ")
}
