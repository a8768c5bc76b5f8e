package attach

import (
	"net/netip"
	"slices"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
)

// record returns the interface of an attachment: its spec with the allocated addresses. Its objects follow from the
// record, the key of the attachment, and the network.
func (s *spec) record(leases []ipam.Lease) pod.Interface {
	i := pod.Interface{
		Name:       s.name,
		Type:       s.kind,
		Network:    s.network.name,
		Object:     s.object,
		MAC:        s.mac,
		MTU:        s.mtu,
		Memif:      s.memif.assigned,
		Definition: s.source.definition,
	}
	if i.Memif == nil {
		i.RxQueues = s.queues.rx
		i.TxQueues = s.queues.tx
	} else if i.Memif.IsDirect() {
		i.Object = "" // the dataplane has no such interface
	}
	i.Forwarding = s.routes.forwarding
	i.AllowedAddresses = s.moving.Addresses
	i.VirtualRouters = s.moving.VirtualRouters
	i.RoutedPrefixes = s.routed
	i.Limits = s.limits
	i.VLANs = s.vlans
	i.DNS = s.dns
	if s.addresses.claim != nil {
		i.IPAMClaim = s.addresses.claim.Name
	}
	if s.network.custom != nil {
		i.AntiSpoof = s.network.custom.Network.AntiSpoof
	}
	for _, l := range leases {
		i.Pools = append(i.Pools, l.Pool)
		switch {
		case s.kind == pod.TypeIPAM || s.network.isBridged():
			addOnLink(&i, l.Address, s.network.poolOf(l))
		case s.routes.isDefault:
			addWithDefaultRoute(&i, l.Address)
		default:
			s.addRouted(&i, l)
		}
	}
	i.Addresses = append(i.Addresses, s.addresses.brought...)
	i.Pools = append(i.Pools, make([]string, len(s.addresses.brought))...)
	addForeignRoutes(&i, s.routes.foreign)
	if s.keepsMAC() && len(leases) > 0 {
		i.MAC = desired.MACOfAddress(s.network.name, leases[0].Address)
	}
	return i
}

// keepsMAC reports whether the interface has the MAC that the former one with its address had: neighbours still know
// it. Neighbours of taps and veths learn a new MAC by announcements of the kernel. No kernel has the address of a
// memif.
func (s *spec) keepsMAC() bool {
	isGenerated := s.mac == desired.MACOf(s.object, desired.LinuxEnd)
	return s.kind == pod.TypeMemif && s.network.isBridged() && isGenerated
}

// addOnLink adds an address with the prefix length of its pool: all other addresses of the pool are neighbours.
func addOnLink(i *pod.Interface, a netip.Addr, p netaddr.Pool) {
	i.Addresses = append(i.Addresses, netip.PrefixFrom(a, p.Prefix.Bits()))
	if own := p.Node(); own.IsValid() {
		i.Gateways = append(i.Gateways, own)
	}
}

// addWithDefaultRoute adds an address with a default route.
func addWithDefaultRoute(i *pod.Interface, a netip.Addr) {
	family := netaddr.FamilyOf(a)
	gateway := desired.GatewayOf(family)
	i.Addresses = append(i.Addresses, netaddr.Single(a))
	i.Gateways = append(i.Gateways, gateway)
	if family == netaddr.IP4 {
		i.Routes = append(i.Routes, pod.Route{Destination: netaddr.Single(gateway)})
	}
	i.Routes = append(i.Routes, pod.Route{Destination: desired.DefaultOf(family), Gateway: gateway})
}

// addRouted adds an address, with routes to the network if the interface has the network route. The IPv4 gateway
// differs from the gateway of the main interface: a pod has one route to a gateway.
func (s *spec) addRouted(i *pod.Interface, l ipam.Lease) {
	family := netaddr.FamilyOf(l.Address)
	gateway := desired.Gateway6
	switch {
	case family == netaddr.IP4 && s.kind == pod.TypeMemif && s.network.custom == nil:
		gateway = desired.Gateway4 // the kernel does not route for it
	case family == netaddr.IP4:
		gateway = s.network.gatewayOf(l)
	}
	i.Addresses = append(i.Addresses, netaddr.Single(l.Address))
	i.Gateways = append(i.Gateways, gateway)
	if !s.routes.toNetwork {
		return
	}
	if family == netaddr.IP4 {
		i.Routes = append(i.Routes, pod.Route{Destination: netaddr.Single(gateway)})
	}
	for _, p := range s.network.pools() {
		if netaddr.FamilyOf(p.Prefix.Addr()) == family {
			i.Routes = append(i.Routes, pod.Route{Destination: p.Prefix, Gateway: gateway})
		}
	}
}

// addForeignRoutes adds the routes of another plugin, with Weft's gateway in place of the gateway of that plugin. A
// route of a family without an address is skipped.
func addForeignRoutes(i *pod.Interface, routes []pod.Route) {
	taken := destinationsOf(i.Routes)
	for _, r := range routes {
		at := slices.IndexFunc(i.Gateways, func(g netip.Addr) bool { return g.Is4() == r.Destination.Addr().Is4() })
		if at >= 0 && !taken[r.Destination] {
			taken[r.Destination] = true
			i.Routes = append(i.Routes, pod.Route{Destination: r.Destination, Gateway: i.Gateways[at]})
		}
	}
}

// destinationsOf returns the set of the destinations of routes.
func destinationsOf(routes []pod.Route) map[netip.Prefix]bool {
	set := make(map[netip.Prefix]bool)
	for _, r := range routes {
		set[r.Destination] = true
	}
	return set
}

// setForeignAddresses sets the addresses, gateways and routes of another plugin, for each destination the first route.
func setForeignAddresses(i *pod.Interface, r *pod.Requested) {
	i.Addresses = r.Delegated
	i.Gateways = r.DelegatedGateways
	i.Pools = make([]string, len(r.Delegated))
	taken := destinationsOf(i.Routes)
	for _, route := range r.Delegation.Routes {
		at := slices.IndexFunc(i.Addresses, func(p netip.Prefix) bool {
			return p.Addr().Is4() == route.Destination.Addr().Is4()
		})
		if at < 0 || taken[route.Destination] {
			continue
		}
		taken[route.Destination] = true
		if !route.Gateway.IsValid() {
			route.Gateway = i.Gateways[at]
		}
		i.Routes = append(i.Routes, route)
	}
}
