package pod

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// Networks that always exist.
const (
	DefaultNetwork = "default" // that of the main interface; "" means it too
	StubNetwork    = "stub"    // interfaces attached to nothing, without addresses
)

// NetworkType says how the interfaces of a network reach each other.
type NetworkType string

// The types of a network.
const (
	L2 NetworkType = "L2" // one bridge domain: interfaces share a subnet and a broadcast domain
	L3 NetworkType = "L3" // one VRF: each interface has an address of its own, everything is routed
)

// Network is a custom network, in the shape of the CRD. Networks may use the same addresses: they never meet.
type Network struct {
	Name       string         `json:"name"` // DNS label, not default or stub
	Type       NetworkType    `json:"type"`
	CIDRs      []netip.Prefix `json:"cidrs,omitempty"`      // at most one a family; none: an L2 network whose pods bring addresses of their own
	MTU        int            `json:"mtu,omitempty"`        // bytes; 0 = the node's
	VNI        uint32         `json:"vni,omitempty"`        // 0 = given by Weft
	Namespaces []string       `json:"namespaces,omitempty"` // of Kubernetes, whose pods may use it; empty: all
	AntiSpoof  bool           `json:"antiSpoof,omitempty"`  // pods may send from their own MAC and addresses only
	Closed     bool           `json:"closed,omitempty"`     // no pod is added to it: its object is deleted or invalid, and the last pods still use it
}

// Admits reports whether pods of a namespace may use the network.
func (n *Network) Admits(namespace string) bool {
	return len(n.Namespaces) == 0 || slices.Contains(n.Namespaces, namespace)
}

// SetNetworks makes these the custom networks of the node, in place of those before. A change that would cost a pod its
// interface is refused with the reason, and the network stays as it was; the others change.
type SetNetworks struct {
	Networks []Network
	From     string // who says so: configuration, CRDs

	// Invalid holds, by name, why a network of the cluster is not among Networks: no node can have it.
	Invalid map[string]string

	// Refused is filled in by the handlers: by network, why it was left as it was.
	Refused map[string]string
}

// String names the event as logs and records show it.
func (e *SetNetworks) String() string {
	return fmt.Sprintf("set %d networks (from %s)", len(e.Networks), e.From)
}

// Key makes only the newest of those that wait count.
func (e *SetNetworks) Key() string { return "networks" }

// BestEffort lets the networks that can be made be made.
func (e *SetNetworks) BestEffort() bool { return true }

// Validate refuses a network that no node could make; the error names it.
func (n *Network) Validate() error {
	var why string
	switch {
	case !IsLabel(n.Name) || n.Name == DefaultNetwork || n.Name == StubNetwork:
		why = "a DNS label is needed as name, neither default nor stub"
	case n.Type != L2 && n.Type != L3:
		why = fmt.Sprintf("type %q is neither L2 nor L3", n.Type)
	case n.Type == L3 && len(n.CIDRs) == 0:
		why = "a network of type L3 needs CIDRs"
	case n.MTU != 0 && (n.MTU < n.leastMTU() || n.MTU > 9000):
		why = fmt.Sprintf("MTU %d is not within %d to 9000", n.MTU, n.leastMTU())
	case n.VNI >= 1<<24:
		why = fmt.Sprintf("VNI %d is above 16777215", n.VNI)
	default:
		why = n.wrongCIDR()
	}
	if why == "" {
		return nil
	}
	return fmt.Errorf("network %q: %s", n.Name, why)
}

// leastMTU is what every host must take: RFC 791, and RFC 8200 section 5 where there is IPv6.
func (n *Network) leastMTU() int {
	if slices.ContainsFunc(n.CIDRs, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		return 1280
	}
	return 576
}

func (n *Network) wrongCIDR() string {
	seen := map[bool]bool{}
	for _, p := range n.CIDRs {
		switch {
		case !p.IsValid() || p != p.Masked():
			return fmt.Sprintf("CIDR %s has host bits set, did you mean %s?", p, p.Masked())
		case seen[p.Addr().Is4()]:
			return fmt.Sprintf("CIDRs %v: at most one of each family is possible", n.CIDRs)
		case p.Bits() > p.Addr().BitLen()-2:
			return fmt.Sprintf("CIDR %s is too small for a pod", p)
		}
		seen[p.Addr().Is4()] = true
	}
	return ""
}

// Pool is a range of addresses of the network default, of one family.
type Pool struct {
	Name       string       `json:"name"`
	Prefix     netip.Prefix `json:"prefix"`
	Blocks     bool         `json:"blocks,omitempty"`     // it is several nodes', and this one has blocks of it
	Disabled   bool         `json:"disabled,omitempty"`   // no address is given out any more
	Namespaces []string     `json:"namespaces,omitempty"` // of Kubernetes, whose pods may have its addresses; empty: all
}

// SetPools makes these the pools of the network default, in place of those before. One of which an address is used stays
// as it was; it gives out no more if it is not wanted any more.
type SetPools struct {
	Pools          []Pool              // in the order in which they are tried
	NamespacePools map[string][]string // by namespace of Kubernetes, the names of the pools for its pods
	NodePools      []string            // names of the pools for pods whose namespace has none
	From           string              // who says so

	// Refused is filled in by the handlers: by pool, why it is not as the event wants it.
	Refused map[string]string
}

// String names the event as logs and records show it.
func (e *SetPools) String() string {
	return fmt.Sprintf("set %d pools (from %s)", len(e.Pools), e.From)
}

// Key makes only the newest of those that wait count.
func (e *SetPools) Key() string { return "pools" }

// BestEffort lets the pools that can change change.
func (e *SetPools) BestEffort() bool { return true }

// Block is a part of a pool of several nodes, or of a custom network's addresses, that this node gives out addresses of; or
// a single address that another node lends.
type Block struct {
	Network  string       `json:"network,omitempty"` // a custom network's name; "" or "default": it is of a pool of the network default
	Prefix   netip.Prefix `json:"prefix"`
	Withheld []netip.Addr `json:"withheld,omitempty"` // of its addresses, those that other nodes may give out
}

// String is what people call the block, and what it is kept under.
func (b Block) String() string { return cmp.Or(b.Network, DefaultNetwork) + "/" + b.Prefix.String() }

// SetBlocks makes these the blocks of this node, in place of those before. One of which an address is used, or cools down,
// gives out no more of them and stays; a later event removes it.
type SetBlocks struct {
	Blocks []Block
	From   string // who says so

	// Filled in by the handlers: by the block's String, why it is not given out; and the blocks that stay though they
	// are not wanted any more.
	Refused  map[string]string
	Draining []Block
}

// String names the event as logs and records show it.
func (e *SetBlocks) String() string {
	return fmt.Sprintf("set %d blocks (from %s)", len(e.Blocks), e.From)
}

// Key makes only the newest of those that wait count.
func (e *SetBlocks) Key() string { return "blocks" }

// BestEffort lets the blocks that can be given out be given out.
func (e *SetBlocks) BestEffort() bool { return true }

// Node is a node of the cluster as the others' tunnels and routes need it.
type Node struct {
	ID        uint32       `json:"id"`                  // 1 to 65535, of one node only; 0: not known yet, and nothing leads there
	Name      string       `json:"name"`                // of Kubernetes
	Addresses []netip.Addr `json:"addresses,omitempty"` // at which its dataplane is reached, at most one a family
	Parts     []NodePart   `json:"parts,omitempty"`     // of networks, by name
}

// NodePart is what of a network is on a node.
type NodePart struct {
	Network string         `json:"network"`          // "default" or a custom network's name
	Blocks  []netip.Prefix `json:"blocks,omitempty"` // addresses that its pods have
}

// SetNodes makes these the other nodes of the cluster, in place of those before. Nodes that cannot be reached cost nobody
// but themselves.
type SetNodes struct {
	Self  Node
	Nodes []Node // the others
	From  string // who says so

	// Refused is filled in by the handlers: by node, why it, or some block of it, was left out.
	Refused map[string]string
}

// String names the event as logs and records show it.
func (e *SetNodes) String() string {
	return fmt.Sprintf("set %d other nodes (from %s)", len(e.Nodes), e.From)
}

// Key makes only the newest of those that wait count.
func (e *SetNodes) Key() string { return "nodes" }

// BestEffort lets the nodes that can be reached be reached.
func (e *SetNodes) BestEffort() bool { return true }

// External is an interface of this node that connects a network with what is outside of the cluster.
type External struct {
	Name      string         `json:"name"`
	Node      string         `json:"node,omitempty"`      // name of this node: its MAC there is no other node's
	Network   string         `json:"network"`             // "default" or a custom network's name
	Interface string         `json:"interface"`           // name of the node's link
	VLAN      int            `json:"vlan,omitempty"`      // 1 to 4094: of the link only its frames; 0: no VLAN
	Addresses []netip.Prefix `json:"addresses,omitempty"` // the dataplane's own there, on a network that is routed
}

// SetExternals makes these the interfaces to the outside, in place of those before. One that cannot be costs the others
// nothing.
type SetExternals struct {
	Externals []External
	From      string // who says so

	// Refused is filled in by the handlers: by name, why it was left out.
	Refused map[string]string
}

// String names the event as logs and records show it.
func (e *SetExternals) String() string {
	return fmt.Sprintf("set %d external interfaces (from %s)", len(e.Externals), e.From)
}

// Key makes only the newest of those that wait count.
func (e *SetExternals) Key() string { return "externals" }

// BestEffort lets those interfaces be connected that can be.
func (e *SetExternals) BestEffort() bool { return true }
