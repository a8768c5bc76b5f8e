package pod

import (
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
