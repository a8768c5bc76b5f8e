package wire

import (
	"net/netip"
	"slices"
)

// Route is a route in a VRF of the dataplane. Kind vpp.route. Several paths share the flows by weight.
type Route struct {
	VRF    string       `json:"vrf"`    // name of a vpp.vrf of the prefix's family
	Prefix netip.Prefix `json:"prefix"` // masked
	Paths  []Path       `json:"paths"`  // at least one
}

// Path is one way of a Route.
type Path struct {
	Type      PathType   `json:"type,omitempty"`
	Interface string     `json:"interface,omitempty"` // name of a vpp.interface
	NextHop   netip.Addr `json:"nextHop,omitzero"`    // not valid: the destination is attached to the interface
	Weight    uint8      `json:"weight,omitempty"`    // 0 counts as 1
}

// PathType is what happens to the packets of a Path.
type PathType string

// The types of a Path.
const (
	PathForward     PathType = ""            // they leave by the interface
	PathUnreachable PathType = "unreachable" // their sender is told by ICMP; the only path of its route, and nothing but a type
)

// Equal reports whether both routes are the same, paths in the same order.
func (r Route) Equal(o Route) bool {
	return r.VRF == o.VRF && r.Prefix == o.Prefix && slices.Equal(r.Paths, o.Paths)
}

// RouteName names the route to a prefix in a VRF.
func RouteName(vrf string, p netip.Prefix) string { return vrf + "/" + p.String() }

// RouteKey is the key of RouteName(vrf, p).
func RouteKey(vrf string, p netip.Prefix) string { return Key(KindRoute, RouteName(vrf, p)) }

// Neighbour is a static neighbour entry of the dataplane. Kind vpp.neighbour.
type Neighbour struct {
	Interface string     `json:"interface"` // name of a vpp.interface
	Address   netip.Addr `json:"address"`
	MAC       MAC        `json:"mac"`
}

// NeighbourName names the neighbour of that address on an interface.
func NeighbourName(iface string, a netip.Addr) string { return iface + "/" + a.String() }

// NeighbourKey is the key of NeighbourName(iface, a).
func NeighbourKey(iface string, a netip.Addr) string {
	return Key(KindNeighbour, NeighbourName(iface, a))
}
