package agent

import (
	"slices"

	"github.com/weftnet/weft/agent/cluster"
	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/ipnet/mesh"
	"github.com/weftnet/weft/ipnet/networks"
)

// networkConfig returns the configuration of ipnet, from a configuration of the agent and the machine.
func (a *Agent) networkConfig(c *config.Config) ipnet.Config {
	m := c.Devices.Memif
	var node cluster.Uplink
	pools := c.Addresses.Pools
	if a.member != nil {
		node = a.member.Uplink
		pools = slices.Concat(pools, a.member.Ranges)
	}
	n := ipnet.Config{
		Networks: networks.Config{
			Pools:          pools,
			NamespacePools: c.Addresses.NamespacePools,
			NodePools:      c.Addresses.NodePools,
			CoolDown:       orNone(c.Addresses.CoolDown),
			MTU:            c.Pods.MTU,
			Blocks:         a.member != nil,
			Tunnel:         a.tunnelType(c),
			UplinkMTU:      node.MTU,
			Log:            a.log.With("component", "ipnet"),
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
			Card:          a.uplink.Card(),
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
	if a.devices != nil {
		n.Pods.Secret = a.devices.Secret
	}
	if a.enforces() {
		n.Pods.Policies = a.member.Enforced
	}
	return n
}
