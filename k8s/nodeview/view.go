package nodeview

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/k8s/announcement"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/pod"
)

// View is the state of the cluster at one time, converted for the node. Its JSON is stored over a restart.
type View struct {
	// Complete reports whether the API server has shown all objects; else the view is that of an earlier run, or empty.
	Complete bool `json:"-"`

	Paused   string   `json:"paused,omitempty"` // why no pod may be connected; "": pods are connected
	Switches Switches `json:"switches,omitzero"`
	Node     Node     `json:"node"`
	NetworkViews
	Pools []PoolView `json:"pools,omitempty"` // by age

	// by namespace, the pools in its annotation
	NamespacePools map[string][]string   `json:"namespacePools,omitempty"`
	Externals      []External            `json:"externals,omitempty"`   // of this node
	Definitions    map[string]Definition `json:"definitions,omitempty"` // by namespace/name
	IPAMClaims     []pod.IPAMClaim       `json:"ipamClaims,omitempty"`  // that hold addresses, by name

	Former announcement.Former `json:"former,omitzero"` // former grants of other nodes that are still in use

	// Faults are invalid objects. Most of them are not used.
	Faults []Fault `json:"faults,omitempty"`
}

// NetworkViews are the CustomNetworks. Their JSON is part of the view's.
type NetworkViews struct {
	// by age: the older one of two conflicting networks is used
	Networks    []pod.Network           `json:"networks,omitempty"`
	Generations map[string]int64        `json:"generations,omitempty"` // by name, including invalid networks
	BlockSizes  map[string]blocks.Sizes `json:"blockSizes,omitempty"`  // by name
	Deleting    []string                `json:"deleting,omitempty"`    // names, including invalid networks
}

// Switches are the settings of the WeftConfig for nodes.
type Switches struct {
	Marks         blocks.Marks `json:"marks"`
	Borrowing     bool         `json:"borrowing,omitempty"`
	PodInterfaces bool         `json:"podInterfaces,omitempty"`
	// InterfaceChanges means that edits of annotations change the interfaces of running pods.
	InterfaceChanges bool `json:"interfaceChanges,omitempty"`
}

// PoolView is an IPPool with its restrictions for this node.
type PoolView struct {
	netaddr.Pool        // the whole prefix; the node allocates from its blocks
	Bits         int    `json:"bits"`             // of its blocks
	Strict       bool   `json:"strict,omitempty"` // never borrow
	Foreign      bool   `json:"foreign,omitempty"`
	Why          string `json:"why,omitempty"` // why it is not used; "": it is
}

// Node is this node.
type Node struct {
	UID       string            `json:"uid,omitempty"` // "": the API server has no such node
	Labels    map[string]string `json:"labels,omitempty"`
	PodCIDRs  []netip.Prefix    `json:"podCIDRs,omitempty"`
	Addresses []netip.Addr      `json:"addresses,omitempty"` // InternalIPs
	Pools     []string          `json:"pools,omitempty"`     // in its annotation
}

// External is an external interface of this node.
type External struct {
	pod.External
	Generation int64 `json:"generation,omitempty"` // of the ExternalInterface
}

// Definition is a NetworkAttachmentDefinition.
type Definition struct {
	Config     string `json:"config,omitempty"`     // JSON of CNI
	Unreadable string `json:"unreadable,omitempty"` // why Config is empty although the object has one
}

// Fault is an invalid object.
type Fault struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	Why  string `json:"why"`
}

// String returns one line.
func (f Fault) String() string { return fmt.Sprintf("%s %s: %s", f.Kind, f.Name, f.Why) }

// guarded makes a panic of a conversion the fault of its object. Without it one object, which all nodes read, would end
// the agents of the cluster again and again.
func guarded[T any](convert func() (T, error)) (v T, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("internal error, please report it with the object: %v", cause)
		}
	}()
	return convert()
}

// View returns the current view, or that of an earlier run until the API server has shown all objects.
func (c *Cluster) View() View {
	if len(c.Missing()) > 0 {
		if c.config.Known == nil {
			return View{Switches: Switches{Marks: blocks.DefaultMarks()}}
		}
		return *c.config.Known
	}
	v := c.addressing.view()
	v.Complete = true
	c.settings.addTo(&v)
	c.namespaces.addTo(&v)
	c.externals.addTo(&v)
	c.definitions.addTo(&v)
	c.claims.addTo(&v)
	v.Former = c.inUse()
	return v
}

// ClaimedFrom lists the pools that blocks are claimed from: the IPPools of this node, and the CIDRs of networks, whose
// blocks are claimed on demand.
func (v *View) ClaimedFrom() []blocks.PoolCIDR {
	var pools []blocks.PoolCIDR
	for _, p := range v.Pools {
		if p.Why == "" {
			pools = append(pools, blocks.PoolCIDR{
				Name:      p.Name,
				Prefix:    p.Prefix,
				Bits:      p.Bits,
				Closed:    p.Disabled || p.Foreign,
				Borrowing: v.Switches.Borrowing && !p.Strict,
			})
		}
	}
	for _, n := range v.Networks {
		for _, p := range n.CIDRs {
			pools = append(pools, blocks.PoolCIDR{
				Network:  n.Name,
				Prefix:   p,
				Bits:     v.BlockSizes[n.Name].Of(p),
				OnDemand: true,
			})
		}
	}
	return pools
}

// AllocatorPools lists the pools of the node's allocator in the order of their use. Their addresses come with blocks,
// see [Local].
func (v *View) AllocatorPools() []netaddr.Pool {
	var pools []netaddr.Pool
	for _, p := range v.Pools {
		if p.Why == "" {
			pool := p.Pool
			pool.Disabled = p.Disabled || p.Foreign
			pool.Blocks = true
			pools = append(pools, pool)
		}
	}
	return pools
}

// poolNames parses a list of pools from an annotation of a node or a namespace; nil if it is invalid.
func poolNames(text string) []string {
	var names []string
	if text == "" || json.Unmarshal([]byte(text), &names) != nil {
		return nil
	}
	return slices.DeleteFunc(names, func(n string) bool { return n == "" })
}

// Switches returns the switches of [Cluster.View] without the rest of the view, which is costly to make for each change
// of a pod. isComplete means that the API server has shown them.
func (c *Cluster) Switches() (s Switches, isComplete bool) {
	var v View
	switch {
	case len(c.Missing()) == 0:
		c.settings.addTo(&v)
		isComplete = true
	case c.config.Known != nil:
		v.Switches = c.config.Known.Switches
	}
	return v.Switches, isComplete
}
