package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weftnet/weft/agent/cluster"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/ipam"
)

// admission decides whether pods are served.
type admission struct {
	health  *health.Conditions
	monitor *statefile.Monitor
	member  *cluster.Member // nil without a cluster
	network *ipnet.Network

	// exhaustedIsUnavailable means that the node is unavailable while the network default has no free address.
	exhaustedIsUnavailable bool
}

// Ready returns the reason why pods cannot be served yet, or nil.
func (d *admission) Ready() error { return d.health.Missing() }

// Started reports whether the first resync has ended.
func (d *admission) Started() bool { return d.health.Holds(health.Started) }

// Paused reports whether and why ADDs are refused: the administrator paused them, or the state file cannot be written.
// DELs are served.
func (d *admission) Paused() (reason string, paused bool) {
	if d.member != nil {
		reason = d.member.View.View().Paused
	}
	if reason == "" && d.monitor.Try() != nil {
		reason = d.health.Failure(health.State)
	}
	return reason, reason != ""
}

// Exhausted returns the pools of a family that have no address for another pod, if the configuration says that the node
// is unavailable then. A cooling address counts as free.
func (d *admission) Exhausted() string {
	if !d.exhaustedIsUnavailable {
		return ""
	}
	byFamily := make(map[netaddr.Family][]ipam.Stats)
	for _, s := range d.network.Networks.Allocator("").Stats() {
		if !s.Disabled {
			family := netaddr.FamilyOf(s.Prefix.Addr())
			byFamily[family] = append(byFamily[family], s)
		}
	}
	for _, family := range []netaddr.Family{netaddr.IP4, netaddr.IP6} {
		stats := byFamily[family]
		if len(stats) > 0 && !slices.ContainsFunc(stats, d.hasMore) {
			return "pool exhausted: " + heldOf(stats) + "; delete pods, or add a pool"
		}
	}
	return ""
}

// hasMore reports whether a pool has, or can soon get, an address for another pod.
func (d *admission) hasMore(s ipam.Stats) bool {
	return s.Free+s.Cooling > 0 || d.member != nil && d.member.Blocks.CanGrow(s)
}

// occupiedOf says how many addresses of a pool nodes have; "" if nodes have no address of it.
func occupiedOf(s ipam.Stats) string {
	if s.Occupied == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d more are skipped: nodes have them, or IPAMClaims hold them)", s.Occupied)
}

func heldOf(stats []ipam.Stats) string {
	var texts []string
	for _, s := range stats {
		texts = append(texts,
			fmt.Sprintf("all %d addresses that this node has of pool %s (%s) are held", s.Used+s.Leased, s.Name,
				s.Prefix)+
				occupiedOf(s))
	}
	return strings.Join(texts, ", ")
}
