// Package mesh makes the desired values of this node without pods (Host), of the tunnels and routes to other nodes
// (Mesh), and of the interfaces that connect networks with the outside (Externals).
package mesh

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// Buckets of the state file, by the names of nodes and external interfaces.
const (
	nodesBucket     = "nodes"
	externalsBucket = "externals"
)

// SavedNode is the record of a node, with the blocks that this node reaches.
type SavedNode struct {
	Node pod.Node `json:"node"`
	Self bool     `json:"self,omitempty"` // it is this node

	PathMTU int `json:"pathMTU,omitempty"` // of this node, see SetPathMTU
}

// Mesh holds the nodes of the cluster and makes the tunnels and routes to them. It belongs to the event loop.
type Mesh struct {
	config   Config
	networks *networks.Networks
	host     *Host
	nodes    *nodes
	overlays *overlays
}

// New returns a mesh without other nodes.
func New(host *Host, networks *networks.Networks) *Mesh {
	return &Mesh{
		config: host.Config, networks: networks, host: host, nodes: &nodes{}, overlays: &overlays{networks: networks},
	}
}

// nodes are the nodes of the cluster. A value never changes: a new one replaces it.
type nodes struct {
	self  pod.Node
	peers map[string]pod.Node // by name: the nodes that can be reached, with the blocks that only they have
}

// SetPathMTU limits the packets of pods that are routed into tunnels: the sender of a longer one gets an ICMP error
// from its gateway, or the dataplane fragments it.
func (m *Mesh) SetPathMTU(ev *pod.SetPathMTU, t *eventloop.Txn) {
	before := m.overlays.pathMTU
	was := m.enterValues(m.overlays.custom())
	m.overlays.pathMTU = ev.MTU
	t.OnRollback(func() error { m.overlays.pathMTU = before; return nil })
	if m.nodes.self.Name != "" {
		m.saveSelf(t, m.nodes.self)
	}
	desired.Replace(t, was, m.enterValues(m.overlays.custom()))
}

// PathMTU is the limit of SetPathMTU; 0: none.
func (m *Mesh) PathMTU() int { return m.overlays.pathMTU }

// Holders knows which pods of this node have an address.
type Holders interface {
	// HolderOn names the pod of this node that has an address on a network; "" if no pod has it.
	HolderOn(network string, a netip.Addr) string
	// RoutedTo names the pod of this node with a prefix behind it that overlaps p; "" if there is none.
	RoutedTo(network string, p netip.Prefix) string
}

// Set replaces the nodes that are reached by the nodes of the event. An invalid or unreachable node is skipped, and
// Refused says why. If nodes exclude each other, the one that was reached before stays, or else the one with the older
// Node.
func (m *Mesh) Set(ev *pod.SetNodes, holders Holders, t *eventloop.Txn) {
	ev.Refused = make(map[string]string)
	before := m.nodes
	after := m.validate(ev, holders)
	moved := before.self.ID != after.self.ID ||
		m.networks.Config.EndOf(before.self) != m.networks.Config.EndOf(after.self) ||
		!slices.Equal(before.self.ClientRanges, after.self.ClientRanges)
	changed := slices.DeleteFunc(before.names(after), func(name string) bool {
		return !moved && reflect.DeepEqual(before.peers[name], after.peers[name])
	})
	was := m.valuesOf(changed)
	m.nodes = after
	t.OnRollback(func() error { m.nodes = before; return nil })
	m.saveNodes(t, before, after)
	desired.Replace(t, was, m.valuesOf(changed))
}

// Addresses returns the addresses of the other nodes that are reached, with the node.
func (m *Mesh) Addresses() map[netip.Addr]string {
	by := make(map[netip.Addr]string)
	for name, node := range m.nodes.peers {
		for _, a := range node.Addresses {
			by[a] = "node " + name
		}
	}
	return by
}

// saveNodes saves the nodes that changed.
func (m *Mesh) saveNodes(t *eventloop.Txn, before, after *nodes) {
	if !reflect.DeepEqual(before.self, after.self) {
		if before.self.Name != after.self.Name {
			t.Save(nodesBucket, before.self.Name, nil)
		}
		m.saveSelf(t, after.self)
	}
	for _, name := range before.names(after) {
		was, had := before.peers[name]
		is, has := after.peers[name]
		switch {
		case had && !has && name != after.self.Name:
			t.Save(nodesBucket, name, nil)
		case has && !reflect.DeepEqual(was, is):
			t.Save(nodesBucket, name, SavedNode{Node: is})
		}
	}
}

func (m *Mesh) saveSelf(t *eventloop.Txn, self pod.Node) {
	t.Save(nodesBucket, self.Name, SavedNode{Node: self, Self: true, PathMTU: m.overlays.pathMTU})
}

// names lists the names of the peers of both, in order.
func (n *nodes) names(other *nodes) []string {
	all := make(map[string]pod.Node)
	maps.Copy(all, n.peers)
	maps.Copy(all, other.peers)
	return slices.Sorted(maps.Keys(all))
}

// isPart reports whether this node is a member of the mesh.
func (m *Mesh) isPart() bool {
	self := m.nodes.self
	return self.ID != 0 && self.ID <= desired.MaxNode && m.networks.Config.EndOf(self).IsValid() &&
		(m.networks.Config.HasTunnels() || m.config.Uplink != "")
}

// Values lists all values of the mesh.
func (m *Mesh) Values() desired.Values { return m.valuesOf(m.nodes.names(m.nodes)) }

// valuesOf lists the values of the mesh that do not depend on one peer, and the values of the named peers.
func (m *Mesh) valuesOf(peers []string) desired.Values {
	overlays := m.overlays.custom()
	v := append(m.masquerade(), m.tunnelNAT()...)
	v = append(v, m.clientRoutes()...)
	v = append(v, m.enterValues(overlays)...)
	for _, name := range peers {
		v = append(v, m.reachValues(m.nodes.peers[name], overlays)...)
	}
	return v
}

// enterValues lists the values of the mesh without other nodes.
func (m *Mesh) enterValues(overlays []overlay) desired.Values {
	if !m.isPart() || !m.networks.Config.HasTunnels() {
		return nil
	}
	self := m.nodes.self
	v := append(m.host.tunnelEnd(m.networks.Config.EndOf(self)), m.overlays.main().enter(self)...)
	for _, o := range overlays {
		v = append(v, o.enter(self)...)
	}
	return v
}

// reachValues lists the values that lead to one node; none for the zero node.
func (m *Mesh) reachValues(node pod.Node, overlays []overlay) desired.Values {
	if node.ID == 0 || !m.isPart() {
		return nil
	}
	if !m.networks.Config.HasTunnels() {
		return m.kernelRoutes(node)
	}
	tunnel := m.tunnelTo(node)
	main := m.overlays.main()
	v := append(m.host.routeToPeer(m.networks.Config.EndOf(node)), main.reach(tunnel, node)...)
	v = append(v, m.hostRoutes(node)...)
	common := m.nodes.clientRangesWith(node)
	for _, block := range main.blocksOf(node) {
		if addresses, has := common.Of(block); has { // replies to clients of Services
			main.route(&v, addresses, node)
		}
	}
	for _, o := range overlays {
		v = append(v, o.reachIfThere(tunnel, node)...)
	}
	return v
}

// reachIfThere returns the values that lead to a node on a custom network; none for a routed network without a block on
// that node.
func (o overlay) reachIfThere(t wire.VXLAN, node pod.Node) desired.Values {
	if !o.isBridged() && len(o.blocksOf(node)) == 0 && len(o.routedTo(node)) == 0 {
		return nil
	}
	return o.reach(t, node)
}

func (m *Mesh) tunnelTo(node pod.Node) wire.VXLAN {
	return wire.VXLAN{
		Source: m.host.tunnelSource(m.networks.Config.EndOf(m.nodes.self)), Destination: m.networks.Config.EndOf(node),
		Port: m.config.VXLANPort, Table: m.config.TunnelVRFTable,
	}
}

// RoutedElsewhere returns the prefix behind a pod of another node that overlaps p, with the node; "" if there is none.
func (m *Mesh) RoutedElsewhere(network string, p netip.Prefix) (other netip.Prefix, node string) {
	for _, name := range slices.Sorted(maps.Keys(m.nodes.peers)) {
		for _, part := range m.nodes.peers[name].Parts {
			if part.Network != network {
				continue
			}
			if at := slices.IndexFunc(part.Routed, p.Overlaps); at >= 0 {
				return part.Routed[at], name
			}
		}
	}
	return netip.Prefix{}, ""
}

// hostRoutes routes blocks of another node from the node's kernel into the dataplane, unless the routes to its pools
// do.
func (m *Mesh) hostRoutes(node pod.Node) desired.Values {
	var v desired.Values
	host := m.host.HostLink()
	for _, block := range m.overlays.main().blocksOf(node) {
		family := netaddr.FamilyOf(block.Addr())
		if own := m.networks.NodeAddress(family); own.IsValid() && m.networks.Pools().Of(block.Addr()) == "" {
			host.LinuxRoute(&v, block, desired.GatewayOf(family), own)
		}
	}
	return v
}

// kernelRoutes routes the blocks of a node without a tunnel: packets leave the dataplane through the host link, and the
// node through its uplink.
func (m *Mesh) kernelRoutes(node pod.Node) desired.Values {
	var v desired.Values
	host := m.host.HostLink()
	for _, block := range m.overlays.main().blocksOf(node) {
		family := netaddr.FamilyOf(block.Addr())
		own := m.networks.NodeAddress(family)
		gateway := addressOf(node, family)
		if !own.IsValid() || !gateway.IsValid() {
			continue
		}
		desired.PodsVRF.Route(&v, block, wire.Path{Interface: host.Object, NextHop: own})
		if m.config.ownsCard() {
			m.host.cardRoute(&v, block, gateway)
			continue
		}
		v.Add(wire.LinuxRouteKey(host.LinuxKey(), block), wire.LinuxRoute{
			On: host.LinuxKey(), Link: m.config.Uplink, Destination: block, Gateway: gateway,
		})
	}
	return v
}

// clientRoutes routes replies to clients of Services on this node to the node's kernel, which translates them. An
// address that this node has borrowed is within a block of another node.
func (m *Mesh) clientRoutes() desired.Values {
	var v desired.Values
	for _, p := range m.serviceClients().Addresses {
		if own := m.networks.NodeAddress(netaddr.FamilyOf(p.Addr())); own.IsValid() {
			desired.PodsVRF.Route(&v, p, wire.Path{Interface: m.host.HostLink().Object, NextHop: own})
		}
	}
	return v
}

// addressOf returns a node's address of a family; not valid if the node has no such address.
func addressOf(node pod.Node, f netaddr.Family) netip.Addr {
	for _, a := range node.Addresses {
		if networks.IsHost(a) && netaddr.FamilyOf(a) == f {
			return a
		}
	}
	return netip.Addr{}
}

// Restore takes over the nodes of an earlier run.
func (m *Mesh) Restore(saved []SavedNode) {
	if len(saved) == 0 {
		return
	}
	m.nodes = &nodes{peers: make(map[string]pod.Node)}
	for _, s := range saved {
		if s.Self {
			m.nodes.self = s.Node
			m.overlays.pathMTU = s.PathMTU
		} else {
			m.nodes.peers[s.Node.Name] = s.Node
		}
	}
}
