package k8s

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weftnet/weft/k8s/announcement"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/pod"
)

// NodeID is the number that this node made sure of; 0: it has none yet.
func (c *Cluster) NodeID() uint32 {
	own, there := c.nodes.one(c.config.Node)
	if !there || !own.Spec.NodeIDConfirmed {
		return 0
	}
	return uint32(own.Spec.NodeID)
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
		Nodes: make(map[string]announcement.Node), Pools: v.ClaimedFrom(), Blocks: slices.Concat(c.blocks.all(), c.foreign.all()),
	}
	for _, n := range c.machines.all() {
		node := nodeOf(n)
		state.Nodes[n.Name] = announcement.Node{Ranges: node.PodCIDRs, Addresses: node.Addresses}
	}
	for _, s := range c.services.all() {
		for _, text := range s.Spec.CIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				state.Services = append(state.Services, p.Masked())
			}
		}
	}
	if a, err := netip.ParseAddr(c.config.Client.host()); err == nil {
		state.Servers = append(state.Servers, a.Unmap())
	}
	return state
}

// PodBlocks are a keeper's blocks in the words of the node: its own, and of other nodes' the addresses that they lend it.
func PodBlocks(node string, held []v1.IPBlock) []pod.Block {
	var list []pod.Block
	for i := range held {
		b := &held[i]
		prefix, err := blocks.Parse(b)
		if err != nil {
			continue
		}
		if string(b.Spec.Node) == node {
			list = append(list, pod.Block{Network: string(b.Spec.Network), Prefix: prefix, Withheld: addresses(b.Spec.Offered)})
			continue
		}
		for _, l := range b.Spec.Borrowed {
			if a, err := netip.ParseAddr(string(l.Address)); err == nil && string(l.Node) == node {
				list = append(list, pod.Block{Network: string(b.Spec.Network), Prefix: netip.PrefixFrom(a, a.BitLen())})
			}
		}
	}
	return list
}

// addresses reads what the API server has checked; invalid entries are skipped.
func addresses(texts []v1.IP) []netip.Addr {
	var read []netip.Addr
	for _, text := range texts {
		if a, err := netip.ParseAddr(string(text)); err == nil {
			read = append(read, a)
		}
	}
	return read
}
