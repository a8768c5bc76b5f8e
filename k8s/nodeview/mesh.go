package nodeview

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/weftnet/weft/k8s/announcement"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/informer"
	"github.com/weftnet/weft/pod"
)

// Mesh is what this node uses of the other nodes' announcements.
type Mesh struct {
	Nodes    []pod.Node               // by name
	Rejected []announcement.Rejection // ignored parts of announcements
}

// meshView caches the mesh until one of its objects changes.
type meshView struct {
	notice

	config     *Config
	watches    *informer.Group
	addressing *addressing
	blocks     *blockWatches
	nodes      *informer.Informer[*v1.NodeNetwork]
	services   *informer.Informer[*networkingv1.ServiceCIDR]

	stale atomic.Bool // set after an informer has the change

	mu     sync.Mutex
	now    Mesh
	former announcement.Former // all former grants
	used   announcement.Former // those still in use
}

// inUse returns the former grants that are still in use.
func (m *meshView) inUse() announcement.Former {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// Mesh validates the other nodes' announcements. It is empty until the API server has shown all objects that this
// needs.
func (m *meshView) Mesh() Mesh {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.watches.Missing()) > 0 {
		return Mesh{}
	}
	if !m.stale.Swap(false) {
		return m.now
	}
	state := m.grants()
	m.former = m.former.Learn(state)
	state.Former = m.former
	validator := announcement.NewValidator(state)
	mesh := Mesh{}
	announced := slices.DeleteFunc(m.nodes.All(), func(n *v1.NodeNetwork) bool { return n.Name == m.config.Node })
	for _, n := range v1.ByName(announced) {
		node, rejected := validator.Accept(n)
		mesh.Rejected = append(mesh.Rejected, rejected...)
		if _, exists := state.Nodes[n.Name]; !exists {
			continue
		}
		if why := otherTunnel(m.config.Tunnel, n.Spec.Tunnel); why != "" {
			mesh.Rejected = append(mesh.Rejected, announcement.Rejection{Node: n.Name, Reason: why})
			continue
		}
		mesh.Nodes = append(mesh.Nodes, node)
	}
	m.now = mesh
	m.used = validator.Used()
	return mesh
}

// otherTunnel says why packets between this node and another one would be lost; "" if both have the same tunnels, or
// one of them does not say.
func otherTunnel(own, other v1.Tunnel) string {
	switch {
	case own.Type == "" || other.Type == "":
		return ""
	case own.Type != other.Type:
		return fmt.Sprintf(
			"its encapsulation is %s, and that of this node %s: kubernetes.tunnel must be the same on all nodes",
			other.Type, own.Type)
	case own.Type == v1.TunnelNone:
		return ""
	case other.IPFamily != "" && other.IPFamily != own.IPFamily:
		return fmt.Sprintf(
			"its tunnels have addresses of %s, and those of this node %s: kubernetes.tunnel must be the same on all nodes",
			other.IPFamily, own.IPFamily)
	case other.Port != 0 && other.Port != own.Port:
		return fmt.Sprintf(
			"its tunnels have UDP port %d, and those of this node %d: kubernetes.vxlanPort must be the same on all nodes",
			other.Port, own.Port)
	}
	return ""
}

// grants returns the objects that announcements are validated against.
func (m *meshView) grants() announcement.Cluster {
	v := m.addressing.view()
	state := announcement.Cluster{
		Nodes:  make(map[string]announcement.Node),
		Pools:  v.ClaimedFrom(),
		Routed: make(map[string][]netip.Prefix),
		Blocks: slices.Concat(m.blocks.own.All(), m.blocks.foreign.All()),
	}
	for _, n := range v.Networks {
		state.Routed[n.Name] = n.RoutedPrefixes
	}
	for _, n := range m.addressing.machines.All() {
		node := nodeOf(n)
		state.Nodes[n.Name] = announcement.Node{
			Ranges:    node.PodCIDRs,
			Addresses: node.Addresses,
			Created:   n.CreationTimestamp.UTC(),
		}
	}
	for _, s := range m.services.All() {
		for _, text := range s.Spec.CIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				state.Services = append(state.Services, p.Masked())
			}
		}
	}
	if a, err := netip.ParseAddr(m.config.Client.Host()); err == nil {
		state.Servers = append(state.Servers, a.Unmap())
	}
	return state
}

// NodeID returns the confirmed number of this node, or 0.
func (m *meshView) NodeID() uint32 {
	own, there := m.nodes.One(m.config.Node)
	if !there || !own.Spec.NodeIDConfirmed {
		return 0
	}
	return uint32(own.Spec.NodeID)
}

// outdate is poke for objects that the mesh depends on.
func (m *meshView) outdate(key string) {
	m.stale.Store(true)
	m.poke(key)
}
