package pod

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
)

// Networks that always exist.
const (
	DefaultNetwork = "default" // the network of main interfaces; "" means it too
	StubNetwork    = "stub"    // isolated interfaces without addresses
)

// MaxMTU is the maximum MTU of pods' interfaces in bytes: the jumbo frames of common network cards and switches.
const MaxMTU = 9600

// MinMTU returns the minimum MTU in bytes of an interface with or without IPv6.
func MinMTU(ipv6 bool) int {
	if ipv6 {
		return 1280 // RFC 8200 section 5; the kernel disables IPv6 on a link with a lower MTU
	}
	return 576 // RFC 791: every IPv4 host accepts such packets
}

// Partial is embedded in events that replace a set. Members that cannot be applied are refused; the others are
// committed.
type Partial struct{}

// BestEffort makes the event loop commit the rest after a failure.
func (Partial) BestEffort() bool { return true }

// NetworkType is the kind of forwarding between the interfaces of a network.
type NetworkType string

// The types of a network.
const (
	L2 NetworkType = "L2" // a bridge domain: interfaces share a subnet and a broadcast domain
	L3 NetworkType = "L3" // a VRF: each interface has its own address, all traffic is routed
)

// Network is a custom network, like its CRD. Networks are isolated, so they may have the same addresses.
type Network struct {
	Name string      `json:"name"` // DNS label, not default or stub
	Type NetworkType `json:"type"`
	// at most one of each family; none: pods of an L2 network bring their own addresses
	CIDRs      []netip.Prefix `json:"cidrs,omitempty"`
	MTU        int            `json:"mtu,omitempty"`        // bytes; 0 = MTU of the node
	VNI        uint32         `json:"vni,omitempty"`        // 0 = allocated by Weft
	Namespaces []string       `json:"namespaces,omitempty"` // of Kubernetes, whose pods may use it; empty: all
	AntiSpoof  bool           `json:"antiSpoof"`            // pods can send from their own MAC and addresses only
	Gateway    Gateway        `json:"gateway,omitzero"`     // the dataplane's; zero: the first address of each CIDR
	Reserved   netaddr.Ranges `json:"reserved,omitempty"`   // addresses that no pod gets
	Excluded   netaddr.Ranges `json:"excluded,omitempty"`   // addresses that pods get on request only
	Routes     []RouteRequest `json:"routes,omitempty"`     // of all interfaces of the network
	DNS        DNS            `json:"dns,omitzero"`         // for interfaces that request it

	// AllowedAddresses and VirtualRouters are what pods may request as Moving, on a network of type L2. No pod gets one
	// of these addresses as its own.
	AllowedAddresses netaddr.Ranges `json:"allowedAddresses,omitempty"`
	VirtualRouters   []int          `json:"virtualRouters,omitempty"`

	// Permissions are what pods have as Moving without a request, because of their labels.
	Permissions []Permission `json:"permissions,omitempty"`

	// RoutedPrefixes are what pods may request as prefixes behind them, on a network of type L3; a pod may request a
	// part of one.
	RoutedPrefixes []netip.Prefix `json:"routedPrefixes,omitempty"`

	VLANs netaddr.VLANs `json:"vlans,omitempty"` // of type L2: segments of their own beside that of untagged frames

	// of type L2: the memifs of its two members on a node share memory, without the dataplane
	Direct bool `json:"direct,omitempty"`
	// no new pods: its object is deleted or invalid, and pods still use it
	Closed bool `json:"closed,omitempty"`
}

// IsAntiSpoofByDefault reports whether a network that does not say it limits the sources of its pods: their addresses
// are known if it has CIDRs. The user of a network whose pods route says antiSpoof: false.
func IsAntiSpoofByDefault(cidrs []netip.Prefix) bool { return len(cidrs) > 0 }

// Admits reports whether pods of a namespace may use the network.
func (n *Network) Admits(namespace string) bool {
	return len(n.Namespaces) == 0 || slices.Contains(n.Namespaces, namespace)
}

// Suits rejects an interface that the network cannot have on any node.
func (n *Network) Suits(r InterfaceRequest) error {
	if err := cmp.Or(n.permits(r.Options), n.suitsTrunk(r.Options)); err != nil {
		return Errorf(CodeInvalidAnnotation, "interface %s: %w", r.Name, err)
	}
	if err := n.permitsAllRouted(r.Options.RoutedPrefixes); err != nil {
		return Errorf(CodeInvalidAnnotation, "interface %s: %w", r.Name, err)
	}
	switch o := r.Options.Memif; {
	case r.Options.DNS && n.DNS.IsZero():
		return Errorf(CodeInvalidAnnotation, "interface %s: dns: network %s has no dns; remove the option", r.Name, n.Name)
	case n.Direct && r.Type != TypeMemif:
		return Errorf(CodeInvalidAnnotation,
			"interface %s: network %s is direct: it connects memifs only; request a memif, or another network", r.Name,
			n.Name)
	case n.Direct && (len(r.Options.Routes) > 0 || r.Options.IsDefault()):
		return Errorf(CodeInvalidAnnotation, "interface %s: network %s is direct: its pods have routes of their own", r.Name,
			n.Name)
	case n.Direct && !r.Options.Limits.IsZero():
		return Errorf(CodeInvalidAnnotation,
			"interface %s: network %s is direct: its packets do not pass the dataplane, which cannot limit or mark them; remove rate, burst, dscp and bandwidth",
			r.Name, n.Name)
	case n.Direct:
		return nil
	case o.Role != "":
		return Errorf(CodeInvalidAnnotation,
			"interface %s: role: only on a direct network; on network %s the dataplane is the server; remove the option",
			r.Name, n.Name)
	case o.Mode == MemifIP && (n.Type == L2 || n.AntiSpoof):
		return Errorf(CodeInvalidAnnotation,
			"interface %s: mode ip has no MACs, which network %s needs; use mode ethernet, or a network of type L3 with antiSpoof: false",
			r.Name, n.Name)
	}
	if err := n.leadsAll(r.Options); err != nil {
		return Errorf(CodeInvalidAnnotation, "interface %s: %w", r.Name, err)
	}
	return nil
}

// SetNetworks replaces the custom networks of the node. It refuses a change that would disconnect a pod; that network
// stays unchanged.
type SetNetworks struct {
	Partial
	Networks []Network
	From     string // source: configuration, CRDs

	// Invalid has the errors of networks of the cluster that are invalid on all nodes, by name. They are not in
	// Networks.
	Invalid map[string]string

	// Refused is set by the handlers: by network, why it stays unchanged.
	Refused map[string]string
}

// String returns the name of the event in logs and records.
func (e *SetNetworks) String() string {
	return fmt.Sprintf("set %d networks (from %s)", len(e.Networks), e.From)
}

// Key makes a newer event replace a queued one.
func (e *SetNetworks) Key() string { return "networks" }

// Validate rejects a network that is invalid on all nodes.
func (n *Network) Validate() error {
	var why string
	switch {
	case !IsLabel(n.Name) || n.Name == DefaultNetwork || n.Name == StubNetwork:
		why = "the name must be a DNS label other than default and stub"
	case n.Type != L2 && n.Type != L3:
		why = fmt.Sprintf("type %q is neither L2 nor L3", n.Type)
	case n.Type == L3 && len(n.CIDRs) == 0:
		why = "a network of type L3 needs CIDRs"
	case n.MTU != 0 && (n.MTU < n.minMTU() || n.MTU > MaxMTU):
		why = fmt.Sprintf("MTU %d is not within %d to %d", n.MTU, n.minMTU(), MaxMTU)
	case n.Direct && (n.Type != L2 || len(n.CIDRs) > 0 || n.AntiSpoof):
		why = "a direct network is of type L2 and has neither CIDRs nor antiSpoof: the dataplane does not see its packets"
	case n.VNI >= 1<<24:
		why = fmt.Sprintf("VNI %d is above 16777215", n.VNI)
	default:
		if why = n.invalidCIDR(); why == "" {
			why = n.invalidSite()
		}
	}
	if why == "" {
		return nil
	}
	return fmt.Errorf("network %q: %s", n.Name, why)
}

func (n *Network) minMTU() int {
	return MinMTU(slices.ContainsFunc(n.CIDRs, func(p netip.Prefix) bool { return p.Addr().Is6() }))
}

func (n *Network) invalidCIDR() string {
	seen := map[bool]bool{}
	for _, p := range n.CIDRs {
		switch {
		case !p.IsValid() || p != p.Masked():
			return fmt.Sprintf("CIDR %s has host bits set, did you mean %s?", p, p.Masked())
		case p.Addr().Is4In6():
			return fmt.Sprintf("CIDR %s is IPv4 in the notation of IPv6", p)
		case seen[p.Addr().Is4()]:
			return fmt.Sprintf("CIDRs %v: at most one of each family is possible", n.CIDRs)
		case !isForHosts(p.Addr()):
			return fmt.Sprintf("CIDR %s has no unicast addresses for pods", p)
		case p.Bits() > p.Addr().BitLen()-2:
			return fmt.Sprintf("CIDR %s is too small for a pod", p)
		}
		seen[p.Addr().Is4()] = true
	}
	return ""
}

// isForHosts reports whether hosts of a network can have addresses like a, by request. IPv6 gives each interface its
// link-local address.
func isForHosts(a netip.Addr) bool { return a.IsGlobalUnicast() || a.Is4() && a.IsLinkLocalUnicast() }

// SetPools replaces the pools of the network default. A pool with allocated addresses stays unchanged; if it is
// removed, it has no new allocations.
type SetPools struct {
	Partial
	Pools          []netaddr.Pool      // in the order of allocation
	NamespacePools map[string][]string // names of pools by the namespace of the pods that use them
	NodePools      []string            // names of pools for pods of other namespaces
	From           string              // source: configuration, CRDs

	// Refused is set by the handlers: by pool, why it differs from the event.
	Refused map[string]string
}

// String returns the name of the event in logs and records.
func (e *SetPools) String() string {
	return fmt.Sprintf("set %d pools (from %s)", len(e.Pools), e.From)
}

// Key makes a newer event replace a queued one.
func (e *SetPools) Key() string { return "pools" }

// SetBlocks replaces the blocks of this node. A block with addresses that are in use or cool down has no new
// allocations and stays until a later event removes it.
type SetBlocks struct {
	Partial
	Blocks []netaddr.Block
	From   string // source: configuration, CRDs

	// Refused and Draining are set by the handlers: by block, why it is not used; the removed blocks that stay.
	Refused  map[string]string
	Draining []netaddr.Block
}

// String returns the name of the event in logs and records.
func (e *SetBlocks) String() string {
	return fmt.Sprintf("set %d blocks (from %s)", len(e.Blocks), e.From)
}

// Key makes a newer event replace a queued one.
func (e *SetBlocks) Key() string { return "blocks" }

// Node is a node of the cluster with the data for tunnels and routes of other nodes.
type Node struct {
	// 1 to 65535, unique in the cluster; 0: unknown, the node is not reachable
	ID        uint32       `json:"id"`
	Name      string       `json:"name"`                // of Kubernetes
	Addresses []netip.Addr `json:"addresses,omitempty"` // of its dataplane, at most one of each family
	Parts     []NodePart   `json:"parts,omitempty"`     // of networks, sorted by name
	// when its Node was created, as the API server says: of two nodes with one address the older has it
	Created time.Time `json:"created,omitzero"`

	// ClientRanges are the ranges of client addresses, at most one of each family: the node routes replies to the
	// client addresses of all pods.
	ClientRanges []netip.Prefix `json:"clientRanges,omitempty"`
}

// NodePart is the part of a network on one node.
type NodePart struct {
	Network string         `json:"network"`          // "default" or a custom network's name
	Blocks  []netip.Prefix `json:"blocks,omitempty"` // addresses of its pods
	Routed  []netip.Prefix `json:"routed,omitempty"` // prefixes behind its pods
}

// SetNodes replaces the other nodes of the cluster. A node that is refused does not affect the others.
type SetNodes struct {
	Partial
	Self  Node
	Nodes []Node // the others
	From  string // source: configuration, CRDs

	// Refused is set by the handlers: by node, why it, or some of its blocks, is omitted.
	Refused map[string]string
}

// String returns the name of the event in logs and records.
func (e *SetNodes) String() string {
	return fmt.Sprintf("set %d other nodes (from %s)", len(e.Nodes), e.From)
}

// Key makes a newer event replace a queued one.
func (e *SetNodes) Key() string { return "nodes" }

// SetPathMTU sets the length of the longest packets of pods that all paths to other nodes carry.
type SetPathMTU struct {
	Partial
	MTU int // bytes, without the headers of tunnels; 0: the paths carry all packets
}

// String returns the name of the event in logs and records.
func (e *SetPathMTU) String() string {
	if e.MTU == 0 {
		return "packets to other nodes have any length"
	}
	return fmt.Sprintf("packets to other nodes have up to %d bytes", e.MTU)
}

// Key makes a newer event replace a queued one.
func (e *SetPathMTU) Key() string { return "path MTU" }

// External is an interface of this node that connects a network to the outside of the cluster.
type External struct {
	Name      string         `json:"name"`
	Node      string         `json:"node,omitempty"`      // name of this node, which makes its MAC unique
	Network   string         `json:"network"`             // "default" or a custom network's name
	Interface string         `json:"interface"`           // name of the node's link
	VLAN      int            `json:"vlan,omitempty"`      // 1 to 4094: frames of this VLAN only; 0: no VLAN
	VLANs     netaddr.VLANs  `json:"vlans,omitempty"`     // of the network, by their tags: the interface is a trunk
	Outer     int            `json:"outer,omitempty"`     // of a trunk: VLAN of the tag of 802.1ad before that of VLANs
	Native    *int           `json:"native,omitempty"`    // of a trunk: VLAN of untagged frames, 0 is none; nil: dropped
	Addresses []netip.Prefix `json:"addresses,omitempty"` // of the dataplane, if the network is routed
}

// SetExternals replaces the external interfaces of this node. One that is refused does not affect the others.
type SetExternals struct {
	Partial
	Externals []External
	From      string // source: configuration, CRDs

	// Refused is set by the handlers: by name, why it is omitted.
	Refused map[string]string
}

// String returns the name of the event in logs and records.
func (e *SetExternals) String() string {
	return fmt.Sprintf("set %d external interfaces (from %s)", len(e.Externals), e.From)
}

// Key makes a newer event replace a queued one.
func (e *SetExternals) Key() string { return "externals" }
