package nodeview

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weftnet/weft/k8s/announcement"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/pod"
)

// NodeNetworks lists what the other nodes say of themselves.
func (c *Cluster) NodeNetworks() []*v1.NodeNetwork {
	return slices.DeleteFunc(c.nodes.All(), func(n *v1.NodeNetwork) bool { return n.Name == c.config.Node })
}

// Mesh is what this node uses of the other nodes' announcements.
type Mesh struct {
	Nodes    []pod.Node               // those that are there, by name
	Rejected []announcement.Rejection // the parts of announcements that are not used
}

// meshView keeps the mesh until an object changes that it depends on.
type meshView struct {
	stale atomic.Bool // set after an informer has the change

	mu     sync.Mutex
	now    Mesh
	former announcement.Former // all that is remembered
	used   announcement.Former // what of it is needed
}

// inUse are the grants that are gone and still in use.
func (m *meshView) inUse() announcement.Former {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// Mesh validates the other nodes' announcements. Until the API server has shown all that they are validated against it is
// empty.
func (c *Cluster) Mesh() Mesh {
	c.mesh.mu.Lock()
	defer c.mesh.mu.Unlock()
	if len(c.Missing()) > 0 {
		return Mesh{}
	}
	if !c.mesh.stale.Swap(false) {
		return c.mesh.now
	}
	state := c.grants()
	c.mesh.former = c.mesh.former.Learn(state)
	state.Former = c.mesh.former
	validator, mesh := announcement.NewValidator(state), Mesh{}
	announced := c.NodeNetworks()
	slices.SortFunc(announced, func(x, y *v1.NodeNetwork) int { return strings.Compare(x.Name, y.Name) })
	for _, n := range announced {
		node, rejected := validator.Accept(n)
		mesh.Rejected = append(mesh.Rejected, rejected...)
		if _, exists := state.Nodes[n.Name]; exists {
			mesh.Nodes = append(mesh.Nodes, node)
		}
	}
	c.mesh.now, c.mesh.used = mesh, validator.Used()
	return mesh
}

// grants are the objects that announcements are validated against.
func (c *Cluster) grants() announcement.Cluster {
	v := emptyView()
	v.Node = c.thisNode()
	c.customNetworks(&v)
	c.ipPools(&v)
	state := announcement.Cluster{
		Nodes: make(map[string]announcement.Node), Pools: v.ClaimedFrom(), Blocks: slices.Concat(c.blocks.All(), c.foreign.All()),
	}
	for _, n := range c.machines.All() {
		node := nodeOf(n)
		state.Nodes[n.Name] = announcement.Node{Ranges: node.PodCIDRs, Addresses: node.Addresses}
	}
	for _, s := range c.services.All() {
		for _, text := range s.Spec.CIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				state.Services = append(state.Services, p.Masked())
			}
		}
	}
	if a, err := netip.ParseAddr(c.config.Client.Host()); err == nil {
		state.Servers = append(state.Servers, a.Unmap())
	}
	return state
}
