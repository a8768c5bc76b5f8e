package ipnet

import (
	"context"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// SavedNode is what is kept of a node: what of it this node reaches.
type SavedNode struct {
	Node pod.Node `json:"node"`
	Self bool     `json:"self,omitempty"` // it is this node
}

// mesh is what this node knows of the others. It never changes: another one takes its place.
type mesh struct {
	self  pod.Node
	nodes map[string]pod.Node // by name: those that can be reached, with those blocks that are theirs alone
}

// ChangeNodes makes the nodes of the event those that are reached. What cannot be reached is left out, and Refused says why;
// of those that exclude each other the one stays that was there before, or has the lower name.
func (n *Network) ChangeNodes(_ context.Context, ev *pod.SetNodes, t *eventloop.Txn) error {
	ev.Refused = make(map[string]string)
	before := n.mesh
	after := n.judge(ev)
	n.mesh = after
	t.OnRollback(func() error { n.mesh = before; return nil })
	saveNodes(t, before, after)

	overlays := n.overlays()
	was, is := append(n.masquerade(before), n.tunnelNAT(before)...), append(n.masquerade(after), n.tunnelNAT(after)...)
	enters := before.self.ID != after.self.ID || n.config.endOf(before.self) != n.config.endOf(after.self)
	if enters {
		was = append(was, n.enterValues(before, overlays)...)
		is = append(is, n.enterValues(after, overlays)...)
	}
	for _, name := range before.names(after) {
		if enters || !reflect.DeepEqual(before.nodes[name], after.nodes[name]) {
			was = append(was, n.reachValues(before, before.nodes[name], overlays)...)
			is = append(is, n.reachValues(after, after.nodes[name], overlays)...)
		}
	}
	replace(t, was, is)
	return nil
}

// saveNodes keeps what is another than before.
func saveNodes(t *eventloop.Txn, before, after *mesh) {
	if !reflect.DeepEqual(before.self, after.self) {
		if before.self.Name != after.self.Name {
			t.Save(nodesBucket, before.self.Name, nil)
		}
		t.Save(nodesBucket, after.self.Name, SavedNode{Node: after.self, Self: true})
	}
	for _, name := range before.names(after) {
		was, had := before.nodes[name]
		is, has := after.nodes[name]
		switch {
		case had && !has && name != after.self.Name:
			t.Save(nodesBucket, name, nil)
		case has && !reflect.DeepEqual(was, is):
			t.Save(nodesBucket, name, SavedNode{Node: is})
		}
	}
}

// names are those of the nodes of both, in order.
func (m *mesh) names(other *mesh) []string {
	all := maps.Clone(m.nodes)
	if all == nil {
		all = make(map[string]pod.Node)
	}
	maps.Copy(all, other.nodes)
	return slices.Sorted(maps.Keys(all))
}

// isPart reports whether this node is one of the mesh.
func (n *Network) isPart(m *mesh) bool {
	return m.self.ID != 0 && m.self.ID <= maxNode && n.config.endOf(m.self).IsValid() && (n.config.hasTunnels() || n.config.Uplink != "")
}

// meshValues are all that there is of the mesh.
func (n *Network) meshValues() values {
	overlays := n.overlays()
	v := append(n.enterValues(n.mesh, overlays), n.tunnelNAT(n.mesh)...)
	for _, name := range n.mesh.names(n.mesh) {
		v = append(v, n.reachValues(n.mesh, n.mesh.nodes[name], overlays)...)
	}
	return v
}

// enterValues are what there is of the mesh without other nodes.
func (n *Network) enterValues(m *mesh, overlays []overlay) values {
	if !n.isPart(m) || !n.config.hasTunnels() {
		return nil
	}
	v := append(n.tunnelEnd(n.config.endOf(m.self)), n.defaultOverlay().enter(m.self)...)
	for _, o := range overlays {
		v = append(v, o.enter(m.self)...)
	}
	return v
}

// reachValues are what leads to one node; nothing for the zero node.
func (n *Network) reachValues(m *mesh, node pod.Node, overlays []overlay) values {
	if node.ID == 0 || !n.isPart(m) {
		return nil
	}
	if !n.config.hasTunnels() {
		return n.kernelRoutes(node)
	}
	v := append(n.routeToPeer(n.config.endOf(node)), n.defaultOverlay().reach(n.tunnelTo(m, node), node)...)
	v = append(v, n.hostRoutes(node)...)
	for _, o := range overlays {
		v = append(v, o.reachIfThere(n.tunnelTo(m, node), node)...)
	}
	return v
}

// networkMesh is what a custom network adds to the mesh.
func (n *Network) networkMesh(c *custom) values {
	o, carried := n.overlayOf(c)
	if !carried || !n.isPart(n.mesh) {
		return nil
	}
	v := o.enter(n.mesh.self)
	for _, name := range n.mesh.names(n.mesh) {
		node := n.mesh.nodes[name]
		v = append(v, o.reachIfThere(n.tunnelTo(n.mesh, node), node)...)
	}
	return v
}

// reachIfThere returns the values that lead to a node on a custom network; none for a routed network without a block on that node.
func (o overlay) reachIfThere(t wire.VXLAN, node pod.Node) values {
	if !o.isBridged() && len(o.blocksOf(node)) == 0 {
		return nil
	}
	return o.reach(t, node)
}

func (n *Network) tunnelTo(m *mesh, node pod.Node) wire.VXLAN {
	return wire.VXLAN{
		Source: n.tunnelSource(n.config.endOf(m.self)), Destination: n.config.endOf(node), Port: n.config.VXLANPort, Table: n.config.TunnelVRFTable,
	}
}

// hostRoutes lead the node itself to those blocks of another node that its routes to its pools do not lead to: into the
// dataplane.
func (n *Network) hostRoutes(node pod.Node) values {
	var v values
	host := n.hostLink()
	for _, block := range n.defaultOverlay().blocksOf(node) {
		family := wire.FamilyOf(block.Addr())
		if own := n.nodeAddress(family); own.IsValid() && n.poolOf(block.Addr()) == "" {
			host.linuxRoute(&v, block, gatewayOf(family), own)
		}
	}
	return v
}

// kernelRoutes lead to a node without a tunnel: packets to its blocks leave the dataplane by the host link, and the node by
// its uplink.
func (n *Network) kernelRoutes(node pod.Node) values {
	var v values
	host := n.hostLink()
	for _, block := range n.defaultOverlay().blocksOf(node) {
		family := wire.FamilyOf(block.Addr())
		own, gateway := n.nodeAddress(family), addressOf(node, family)
		if !own.IsValid() || !gateway.IsValid() {
			continue
		}
		podsVRF.route(&v, block, wire.Path{Interface: host.object, NextHop: own})
		if n.config.ownsCard() {
			n.cardRoute(&v, block, gateway)
			continue
		}
		v.add(wire.LinuxRouteKey(host.on(), block), wire.LinuxRoute{
			On: host.on(), Link: n.config.Uplink, Destination: block, Gateway: gateway,
		})
	}
	return v
}

// addressOf is a node's address of a family; not valid if it has none.
func addressOf(node pod.Node, f wire.Family) netip.Addr {
	for _, a := range node.Addresses {
		if isHost(a) && wire.FamilyOf(a) == f {
			return a
		}
	}
	return netip.Addr{}
}

// restoreNodes takes over the mesh of an earlier run.
func (n *Network) restoreNodes(saved []SavedNode) {
	if len(saved) == 0 {
		return
	}
	m := &mesh{nodes: make(map[string]pod.Node)}
	for _, s := range saved {
		if s.Self {
			m.self = s.Node
		} else {
			m.nodes[s.Node.Name] = s.Node
		}
	}
	n.mesh = m
}
