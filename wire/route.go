package wire

import (
	"net/netip"
	"slices"

	"github.com/weftnet/weft/internal/netaddr"
)

// Address is an address of an interface of the dataplane. Kind vpp.address. A link-local IPv6 address (/128) replaces
// the one that the dataplane derived from the MAC.
type Address struct {
	Interface string       `json:"interface"` // name of a vpp.interface that has a vpp.interface-vrf for the family
	Prefix    netip.Prefix `json:"prefix"`
}

// AddressName returns the name of an address of an interface.
func AddressName(iface string, p netip.Prefix) string { return iface + "/" + p.String() }

// AddressKey returns the key of AddressName(iface, p).
func AddressKey(iface string, p netip.Prefix) string {
	return Key(KindAddress, AddressName(iface, p))
}

// Unnumbered lets an interface use the addresses of another, its donor. Kind vpp.unnumbered; its name is the
// interface's.
type Unnumbered struct {
	Interface string `json:"interface"`     // name of a vpp.interface
	Donor     string `json:"donor"`         // name of a vpp.interface that has an address
	IP4       bool   `json:"ip4,omitempty"` // depends on the interface's vpp.interface-vrf of IPv4
	IP6       bool   `json:"ip6,omitempty"` // likewise of IPv6
}

// UnnumberedKey returns the key of the unnumbered state of an interface.
func UnnumberedKey(iface string) string { return Key(KindUnnumbered, iface) }

// Route is a route in a VRF of the dataplane. Kind vpp.route. The dataplane distributes flows over several paths by
// weight.
type Route struct {
	VRF    string       `json:"vrf"`    // name of a vpp.vrf of the prefix's family
	Prefix netip.Prefix `json:"prefix"` // masked
	Paths  []Path       `json:"paths"`  // at least one
}

// Path is one path of a Route.
type Path struct {
	Type      PathType   `json:"type,omitempty"`
	Interface string     `json:"interface,omitempty"` // name of a vpp.interface
	NextHop   netip.Addr `json:"nextHop,omitzero"`    // invalid: the destination is attached to the interface
	Weight    uint8      `json:"weight,omitempty"`    // 0 counts as 1
}

// PathType is the action of a Path.
type PathType string

// The types of a Path.
const (
	PathForward PathType = "" // forward packets through the interface
	// reply with ICMP unreachable; the only path of its route, with no other field
	PathUnreachable PathType = "unreachable"
)

// Equal reports whether both routes have the same fields, with paths in the same order.
func (r Route) Equal(o Route) bool {
	return r.VRF == o.VRF && r.Prefix == o.Prefix && slices.Equal(r.Paths, o.Paths)
}

// RouteName returns the name of the route to a prefix in a VRF.
func RouteName(vrf string, p netip.Prefix) string { return vrf + "/" + p.String() }

// RouteKey returns the key of RouteName(vrf, p).
func RouteKey(vrf string, p netip.Prefix) string { return Key(KindRoute, RouteName(vrf, p)) }

// Neighbour is a static neighbour entry of the dataplane. Kind vpp.neighbour.
type Neighbour struct {
	Interface string      `json:"interface"` // name of a vpp.interface
	Address   netip.Addr  `json:"address"`
	MAC       netaddr.MAC `json:"mac"`
}

// NeighbourName returns the name of a neighbour of an interface.
func NeighbourName(iface string, a netip.Addr) string { return iface + "/" + a.String() }

// NeighbourKey returns the key of NeighbourName(iface, a).
func NeighbourKey(iface string, a netip.Addr) string {
	return Key(KindNeighbour, NeighbourName(iface, a))
}

// ProxyARP lets the dataplane answer ARP requests on an interface for a range of addresses. Ranges belong to the VRF:
// an interface with proxy ARP answers for all ranges of its VRF. Kind vpp.proxy-arp.
type ProxyARP struct {
	Interface string     `json:"interface"` // name of a vpp.interface in the VRF
	VRF       string     `json:"vrf"`       // name of a vpp.vrf of family ip4
	First     netip.Addr `json:"first"`
	Last      netip.Addr `json:"last"`
}

// ProxyARPName returns the name of the range of an interface that begins at an address.
func ProxyARPName(iface string, first netip.Addr) string { return iface + "/" + first.String() }
