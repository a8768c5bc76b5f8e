package agent

import (
	"log/slog"
	"slices"

	"github.com/weftnet/weft/agent/cluster"
	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/uplink"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/ipnet/mesh"
	"github.com/weftnet/weft/ipnet/networks"
)

// networkSettings makes the configuration of ipnet from the agent's configuration and the machine.
type networkSettings struct {
	cluster *membership
	devices *devices
	uplink  *uplink.Keeper
	log     *slog.Logger
}

// of returns the configuration of ipnet for a configuration of the agent.
func (s networkSettings) of(c *config.Config) ipnet.Config {
	m := c.Devices.Memif
	var node cluster.Uplink
	pools := c.Addresses.Pools
	if s.cluster.member != nil {
		node = s.cluster.member.Uplink
		pools = slices.Concat(pools, s.cluster.member.Ranges)
	}
	n := ipnet.Config{
		Networks: networks.Config{
			Pools:          pools,
			NamespacePools: c.Addresses.NamespacePools,
			NodePools:      c.Addresses.NodePools,
			CoolDown:       orNone(c.Addresses.CoolDown),
			MTU:            c.Pods.MTU,
			Blocks:         s.cluster.member != nil,
			Tunnels:        networks.Tunnels{Tunnel: s.cluster.tunnelType(c), UplinkMTU: node.MTU},
			Log:            s.log.With("component", "ipnet"),
		},
		Mesh: mesh.Config{
			LinkTypes:     linkTypes(c, ""),
			HostLink:      c.Links.Host,
			MaxSegment:    maxSegment(c),
			VXLANPort:     c.Kubernetes.VXLANPort,
			TunnelLink:    c.Links.Tunnel,
			IPMasq:        c.Masquerade.Enabled,
			IPMasqExclude: c.Masquerade.Exclude,
			Uplink:        node.Name,
			Card:          s.uplink.Card(),
		},
		Pods: attach.Config{
			PodQueues:         c.Pods.Queues,
			MaxPodQueues:      c.Pods.MaxQueues,
			AllowIPForwarding: c.Pods.AllowIPForwarding,
			NoDefaultRoutes:   !c.Pods.IncludeDefaultRoutes,
			DelegatedCIDRs:    c.Addresses.DelegatedCIDRs,
			Memif: attach.MemifLimits{
				RingSize:   m.MaxRingSize,
				BufferSize: m.MaxBufferSize,
				Queues:     m.MaxQueues,
			},
		},
	}
	if s.devices.manager != nil {
		n.Pods.Secret = s.devices.manager.Secret
	}
	if s.cluster.enforces() {
		n.Pods.Policies = s.cluster.member.Enforced
	}
	return n
}
