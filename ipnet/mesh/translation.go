package mesh

import (
	"net/netip"
	"slices"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
	"github.com/weftnet/weft/wire"
)

// masquerade translates the sources of packets that leave the cluster. Pods of other nodes see the addresses of pods.
// Without tunnels the nodes see them too, because they have routes back. With tunnels no route of a node leads into a
// tunnel, so packets to nodes are translated and replies return the same way.
func (m *Mesh) masquerade() desired.Values {
	is := wire.Masquerade{
		Link:    m.config.HostLink,
		Egress:  m.config.IPMasq,
		Exclude: slices.Clone(m.config.IPMasqExclude),
	}
	for _, p := range m.networks.Pools().All {
		is.Pods = append(is.Pods, p.Prefix)
	}
	for _, name := range m.others() {
		is.Pods = append(is.Pods, m.overlays.main().blocksOf(m.nodes.peers[name])...)
		if !m.networks.Config.HasTunnels() {
			for _, a := range m.nodes.peers[name].Addresses {
				is.Exclude = append(is.Exclude, netaddr.Single(a))
			}
		}
	}
	is.Pods = outermost(is.Pods)
	is.Clients = m.serviceClients()
	is.Guard = m.tunnelGuard()
	var v desired.Values
	v.Add(wire.MasqueradeKey(), is)
	return v
}

// serviceClients gives the pods of this node client addresses at the pods of this node and, by tunnels, of nodes that
// route the replies to this node. Without tunnels the connections to pods of other nodes leave by the uplink with the
// address of the pod.
func (m *Mesh) serviceClients() wire.ServiceClients {
	self := clientRangesOf(m.nodes.self)
	var is wire.ServiceClients
	for _, part := range m.nodes.self.Parts {
		if part.Network != pod.DefaultNetwork {
			continue
		}
		for _, block := range part.Blocks {
			if addresses, has := self.Of(block); has {
				is.Pods = append(is.Pods, block)
				is.Addresses = append(is.Addresses, addresses)
			}
		}
	}
	if len(is.Pods) == 0 {
		return is
	}
	is.Ranges = self.Prefixes()
	is.Endpoints = slices.Clone(is.Pods)
	if m.networks.Config.HasTunnels() {
		for _, name := range m.others() {
			peer := m.nodes.peers[name]
			common := m.nodes.clientRangesWith(m.nodes.peers[name])
			is.Endpoints = append(is.Endpoints,
				slices.DeleteFunc(m.overlays.main().blocksOf(peer), func(block netip.Prefix) bool {
					_, has := common.Of(block)
					return !has
				})...)
		}
	}
	is.Pods = outermost(is.Pods)
	is.Addresses = outermost(is.Addresses)
	is.Endpoints = outermost(is.Endpoints)
	return is
}

// clientRangesOf returns the ranges of client addresses of a node.
func clientRangesOf(node pod.Node) policy.ClientRanges {
	r, err := policy.NewClientRanges(node.ClientRanges)
	if err != nil {
		return policy.ClientRanges{} // of another node; the ranges of this node are valid
	}
	return r
}

// clientRangesWith returns the ranges of client addresses that this node and another one have in common: each uses them
// only for connections to the other that routes the replies.
func (n *nodes) clientRangesWith(node pod.Node) policy.ClientRanges {
	return clientRangesOf(n.self).Common(clientRangesOf(node))
}

// tunnelGuard drops packets of pods to the tunnels of all nodes. Pods of this dataplane cannot reach the port even
// before the other nodes are known.
func (m *Mesh) tunnelGuard() wire.TunnelGuard {
	if !m.networks.Config.HasTunnels() {
		return wire.TunnelGuard{}
	}
	guard := wire.TunnelGuard{Port: m.config.VXLANPort}
	if !m.config.ownsCard() {
		guard.Link = m.config.TunnelLink
	}
	if !m.isPart() {
		return guard
	}
	addresses := slices.Clone(m.nodes.self.Addresses)
	for _, node := range m.nodes.peers {
		addresses = append(addresses, node.Addresses...)
	}
	for _, a := range addresses {
		if networks.IsHost(a) {
			guard.Nodes = append(guard.Nodes, netaddr.Single(a))
		}
	}
	slices.SortFunc(guard.Nodes, netip.Prefix.Compare)
	guard.Nodes = slices.Compact(guard.Nodes)
	return guard
}

// others lists the names of the nodes that this node reaches.
func (m *Mesh) others() []string {
	if !m.isPart() {
		return nil
	}
	return m.nodes.names(m.nodes)
}

// outermost lists, in order, the prefixes that no other prefix contains.
func outermost(prefixes []netip.Prefix) (outer []netip.Prefix) {
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	for _, p := range prefixes { // a prefix precedes those that it contains
		if end := len(outer) - 1; end < 0 || !outer[end].Overlaps(p) {
			outer = append(outer, p)
		}
	}
	return outer
}

// tunnelNAT translates the addresses of all tunnels. It has no value without tunnels, and where the dataplane owns the
// card.
func (m *Mesh) tunnelNAT() desired.Values {
	if !m.isPart() || !m.networks.Config.HasTunnels() || m.config.ownsCard() {
		return nil
	}
	self := m.networks.Config.EndOf(m.nodes.self)
	is := wire.TunnelNAT{Link: m.config.TunnelLink, Port: m.config.VXLANPort, Inner: innerEnd(self), Node: self}
	for _, node := range m.nodes.peers {
		is.Peers = append(is.Peers, m.networks.Config.EndOf(node))
	}
	slices.SortFunc(is.Peers, netip.Addr.Compare)
	is.VNIs = m.overlays.vnis()
	var v desired.Values
	v.Add(wire.TunnelNATKey(), is)
	return v
}
