package attach

import (
	"net/netip"
	"slices"

	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// interfaceOf returns the record of an interface. Its values follow from the record, the key of the attachment, and the network.
func (ps *Pods) interfaceOf(s spec, leases []ipam.Lease) pod.Interface {
	i := pod.Interface{Name: s.name, Type: s.kind, Network: s.network, Object: s.object, MAC: s.mac.String(), MTU: s.mtu, Memif: s.memif, Definition: s.definition}
	if s.memif == nil {
		i.RxQueues, i.TxQueues = s.rxQueues, s.txQueues
	} else if s.memif.IsDirect() {
		i.Object = "" // the dataplane has none
	}
	if s.custom != nil {
		i.AntiSpoof = s.custom.Network.AntiSpoof
	}
	for _, l := range leases {
		i.Pools = append(i.Pools, l.Pool)
		switch {
		case s.kind == pod.TypeIPAM || s.custom != nil && s.custom.Network.Type == pod.L2:
			onLink(&i, l.Address, ps.poolOfLease(s, l))
		case s.defaults:
			asDefault(&i, l.Address)
		default:
			ps.routed(&i, s, l)
		}
	}
	i.Addresses = append(i.Addresses, s.brought...)
	i.Pools = append(i.Pools, make([]string, len(s.brought))...)
	routedBeside(&i, s.routes)
	return i
}

// routedBeside adds the routes of another plugin, with Weft's gateway in place of that plugin's. A route of a family without an
// address is skipped.
func routedBeside(i *pod.Interface, routes []pod.Route) {
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

// asDefault adds an address with a default route.
func asDefault(i *pod.Interface, a netip.Addr) {
	family := wire.FamilyOf(a)
	gateway := desired.GatewayOf(family)
	i.Addresses = append(i.Addresses, desired.Single(a))
	i.Gateways = append(i.Gateways, gateway)
	if family == wire.IP4 {
		i.Routes = append(i.Routes, pod.Route{Destination: desired.Single(gateway)})
	}
	i.Routes = append(i.Routes, pod.Route{Destination: desired.DefaultOf(family), Gateway: gateway})
}

// onLink adds an address with the prefix length of its pool: all other addresses of the pool are neighbours.
func onLink(i *pod.Interface, a netip.Addr, p ipam.Pool) {
	i.Addresses = append(i.Addresses, netip.PrefixFrom(a, p.Prefix.Bits()))
	i.Gateways = append(i.Gateways, p.Node())
}

// routed adds an address with routes to the network, if the interface has the network route. The IPv4 gateway differs from that of the
// main interface: a pod has one route to a gateway.
func (ps *Pods) routed(i *pod.Interface, s spec, l ipam.Lease) {
	family := wire.FamilyOf(l.Address)
	gateway := desired.Gateway6
	switch {
	case family == wire.IP4 && s.kind == pod.TypeMemif && s.custom == nil:
		gateway = desired.Gateway4 // the kernel does not route for it
	case family == wire.IP4:
		gateway = ps.gatewayOfLease(s, l)
	}
	i.Addresses = append(i.Addresses, desired.Single(l.Address))
	i.Gateways = append(i.Gateways, gateway)
	if !s.leads {
		return
	}
	if family == wire.IP4 {
		i.Routes = append(i.Routes, pod.Route{Destination: desired.Single(gateway)})
	}
	for _, p := range ps.poolsOf(s) {
		if wire.FamilyOf(p.Prefix.Addr()) == family {
			i.Routes = append(i.Routes, pod.Route{Destination: p.Prefix, Gateway: gateway})
		}
	}
}

func (ps *Pods) poolsOf(s spec) []ipam.Pool {
	if s.custom != nil {
		return s.custom.Pools()
	}
	return ps.networks.Pools().All
}

// gatewayOfLease returns the node's own address in the pool of a lease, or its first address for a lease outside all pools.
func (ps *Pods) gatewayOfLease(s spec, l ipam.Lease) netip.Addr {
	if p := ps.poolOfLease(s, l); p.Prefix.IsValid() && s.custom != nil {
		return p.Node()
	} else if p.Prefix.IsValid() {
		return ps.networks.NodeIn(p)
	}
	return ps.networks.NodeAddress(wire.FamilyOf(l.Address))
}

// poolOfLease returns the pool of a lease.
func (ps *Pods) poolOfLease(s spec, l ipam.Lease) ipam.Pool {
	for _, p := range ps.poolsOf(s) {
		if p.Name == l.Pool {
			return p
		}
	}
	return ipam.Pool{}
}
