package ipnet

import (
	"net/netip"
	"slices"

	"github.com/weftnet/weft/wire"
)

// forwarding are the settings by which a kernel's namespace, the node's or a pod's, forwards packets of a family.
var forwarding = map[wire.Family]string{
	wire.IP4: "net/ipv4/ip_forward",
	wire.IP6: "net/ipv6/conf/all/forwarding",
}

// kernelValues make the node's kernel a router between its link to the dataplane and the rest of the world.
func (n *Network) kernelValues(families []wire.Family) values {
	var v values
	host := n.hostLink()
	for _, f := range families {
		host.setting(&v, forwarding[f], "1")
	}
	return append(v, n.masquerade(n.mesh)...)
}

// masquerade is how the node translates what pods send. Pods of other nodes see pods as they are, and so do those nodes
// where routes lead back. Into tunnels no route of another node leads: its address is translated for, so that replies come
// the same way, whatever filters are there.
func (n *Network) masquerade(m *mesh) values {
	is := wire.Masquerade{Link: n.config.HostLink, Egress: n.config.IPMasq, Exclude: slices.Clone(n.config.IPMasqExclude)}
	for _, p := range n.pools.Load().all {
		is.Pods = append(is.Pods, p.Prefix)
	}
	for _, name := range n.others(m) {
		is.Pods = append(is.Pods, n.defaultOverlay().blocksOf(m.nodes[name])...)
		if !n.config.hasTunnels() {
			for _, a := range m.nodes[name].Addresses {
				is.Exclude = append(is.Exclude, single(a))
			}
		}
	}
	is.Pods = outermost(is.Pods)
	is.Guard = n.tunnelGuard(m)
	var v values
	v.add(wire.MasqueradeKey(), is)
	return v
}

// tunnelGuard keeps pods' packets from the tunnels of all nodes. Pods of this dataplane are kept from the port whether or not the
// other nodes are known yet.
func (n *Network) tunnelGuard(m *mesh) wire.TunnelGuard {
	if !n.config.hasTunnels() {
		return wire.TunnelGuard{}
	}
	guard := wire.TunnelGuard{Port: n.config.VXLANPort}
	if !n.config.ownsCard() {
		guard.Link = n.config.TunnelLink
	}
	if !n.isPart(m) {
		return guard
	}
	addresses := slices.Clone(m.self.Addresses)
	for _, node := range m.nodes {
		addresses = append(addresses, node.Addresses...)
	}
	for _, a := range addresses {
		if isHost(a) {
			guard.Nodes = append(guard.Nodes, single(a))
		}
	}
	slices.SortFunc(guard.Nodes, netip.Prefix.Compare)
	guard.Nodes = slices.Compact(guard.Nodes)
	return guard
}

// others are the names of the nodes that this one reaches.
func (n *Network) others(m *mesh) []string {
	if !n.isPart(m) {
		return nil
	}
	return m.names(m)
}

// outermost are, in order, those prefixes that are in no other.
func outermost(prefixes []netip.Prefix) (outer []netip.Prefix) {
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	for _, p := range prefixes { // one that holds others comes before them
		if end := len(outer) - 1; end < 0 || !outer[end].Overlaps(p) {
			outer = append(outer, p)
		}
	}
	return outer
}
