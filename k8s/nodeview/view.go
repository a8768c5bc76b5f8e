package nodeview

import (
	"fmt"
	"net/netip"

	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/k8s/announcement"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/pod"
)

// View is what the cluster says at one time, in the shapes that the node works with. As JSON it is what is kept of it
// over a restart.
type View struct {
	// Complete is whether the API server has shown everything; else the view is that of an earlier run, or empty.
	Complete bool `json:"-"`

	Paused   string        `json:"paused,omitempty"` // why no pod is to be wired; "": they are
	Switches Switches      `json:"switches,omitzero"`
	Node     Node          `json:"node"`
	Networks []pod.Network `json:"networks,omitempty"` // by age, so that of two that exclude each other the older one stays
	Pools    []Pool        `json:"pools,omitempty"`    // by age too

	NamespacePools map[string][]string     `json:"namespacePools,omitempty"` // by namespace, the pools that its annotation names
	Externals      []External              `json:"externals,omitempty"`      // of this node
	Definitions    map[string]Definition   `json:"definitions,omitempty"`    // by namespace/name
	Generations    map[string]int64        `json:"generations,omitempty"`    // of Networks, by name
	BlockSizes     map[string]blocks.Sizes `json:"blockSizes,omitempty"`     // of Networks, by name
	Deleting       []string                `json:"deleting,omitempty"`       // names of networks that are being deleted, including invalid ones

	Former announcement.Former `json:"former,omitzero"` // what grants of other nodes are gone and still in use

	// Faults are the objects that are not as they should be, and why. Most of them are not used.
	Faults []Fault `json:"faults,omitempty"`
}

// Switches are those of the WeftConfig that the node obeys.
type Switches struct {
	Marks         blocks.Marks `json:"marks"`
	Borrowing     bool         `json:"borrowing,omitempty"`
	PodInterfaces bool         `json:"podInterfaces,omitempty"`
}

// Pool is an IPPool as this node may use it.
type Pool struct {
	ipam.Pool        // as a whole: of a node's own addresses are its blocks
	Bits      int    `json:"bits"`             // of its blocks
	Strict    bool   `json:"strict,omitempty"` // never borrow
	Foreign   bool   `json:"foreign,omitempty"`
	Why       string `json:"why,omitempty"` // it is not used at all
}

// Node is this node.
type Node struct {
	UID       string            `json:"uid,omitempty"` // "": the API server has no such node
	Labels    map[string]string `json:"labels,omitempty"`
	PodCIDRs  []netip.Prefix    `json:"podCIDRs,omitempty"`
	Addresses []netip.Addr      `json:"addresses,omitempty"` // at which others reach it
	Pools     []string          `json:"pools,omitempty"`     // that its annotation names
}

// External is an interface of this node that connects a network with the outside.
type External struct {
	pod.External       // by the name of the ExternalInterface
	Generation   int64 `json:"generation,omitempty"` // of that
}

// Definition is a NetworkAttachmentDefinition.
type Definition struct {
	Config string `json:"config,omitempty"` // JSON of CNI
}

// Fault is an object that is not as it should be.
type Fault struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	Why  string `json:"why"`
}

// String is the fault in one line.
func (f Fault) String() string { return fmt.Sprintf("%s %s: %s", f.Kind, f.Name, f.Why) }

// View is what the cluster says now. While the API server has not shown everything it is what an earlier run knew.
func (c *Cluster) View() View {
	if len(c.Missing()) > 0 {
		if c.config.Known == nil {
			return View{Switches: Switches{Marks: blocks.DefaultMarks()}}
		}
		return *c.config.Known
	}
	v := emptyView()
	v.Complete = true
	v.Node = c.thisNode()
	c.switches(&v)
	c.customNetworks(&v)
	c.ipPools(&v)
	c.namespacePools(&v)
	c.externalInterfaces(&v)
	c.attachmentDefinitions(&v)
	v.Former = c.mesh.inUse()
	return v
}

func emptyView() View {
	return View{Generations: make(map[string]int64), BlockSizes: make(map[string]blocks.Sizes)}
}

// ClaimedFrom lists what blocks are claimed from: each pool that this node uses, and the addresses of each network, of
// which a node claims blocks when the first of its pods needs one.
func (v *View) ClaimedFrom() []blocks.Pool {
	var pools []blocks.Pool
	for _, p := range v.Pools {
		if p.Why != "" {
			continue
		}
		pools = append(pools, blocks.Pool{
			Name: p.Name, Prefix: p.Prefix, Bits: p.Bits, Closed: p.Disabled || p.Foreign, Borrowing: v.Switches.Borrowing && !p.Strict,
		})
	}
	for _, n := range v.Networks {
		for _, p := range n.CIDRs {
			pools = append(pools, blocks.Pool{Network: n.Name, Prefix: p, Bits: v.BlockSizes[n.Name].Of(p), OnDemand: true})
		}
	}
	return pools
}

// AllocatorPools are the pools of the node's allocator, in the order in which they are tried: their addresses are given
// out as blocks of them come, see [Local].
func (v *View) AllocatorPools() []ipam.Pool {
	var pools []ipam.Pool
	for _, p := range v.Pools {
		if p.Why == "" {
			pool := p.Pool
			pool.Disabled, pool.Blocks = p.Disabled || p.Foreign, true
			pools = append(pools, pool)
		}
	}
	return pools
}
