package ipnet

import (
	"net/netip"
	"slices"

	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// interfaceOf is an interface of an attachment as it is recorded. Everything else about it follows from the record, the
// attachment's key and the network.
func (n *Network) interfaceOf(w wish, leases []ipam.Lease) pod.Interface {
	i := pod.Interface{Name: w.name, Type: w.kind, Network: w.network, Object: w.object, MAC: w.mac.String(), MTU: w.mtu, Memif: w.memif, Definition: w.definition}
	if w.memif == nil {
		i.RxQueues, i.TxQueues = w.rxQueues, w.txQueues
	}
	if w.custom != nil {
		i.AntiSpoof = w.custom.Network.AntiSpoof
	}
	for _, l := range leases {
		i.Pools = append(i.Pools, l.Pool)
		switch {
		case w.kind == pod.TypeIPAM || w.custom != nil && w.custom.Network.Type == pod.L2:
			onLink(&i, l.Address, n.poolOfLease(w, l))
		case w.defaults:
			asDefault(&i, l.Address)
		default:
			n.routed(&i, w, l)
		}
	}
	i.Addresses = append(i.Addresses, w.brought...)
	i.Pools = append(i.Pools, make([]string, len(w.brought))...)
	routedBeside(&i, w.routes)
	return i
}

// routedBeside adds the routes that another plugin gave. Weft's gateway stands in for theirs, which nobody is here; to a
// family of which the interface has no address there is no way.
func routedBeside(i *pod.Interface, routes []pod.Route) {
	for _, r := range routes {
		at := slices.IndexFunc(i.Gateways, func(g netip.Addr) bool { return g.Is4() == r.Destination.Addr().Is4() })
		isThere := func(o pod.Route) bool { return o.Destination == r.Destination }
		if at >= 0 && !slices.ContainsFunc(i.Routes, isThere) {
			i.Routes = append(i.Routes, pod.Route{Destination: r.Destination, Gateway: i.Gateways[at]})
		}
	}
}

// asDefault gives an interface an address by which its pod reaches everything.
func asDefault(i *pod.Interface, a netip.Addr) {
	family := wire.FamilyOf(a)
	gateway := gatewayOf(family)
	i.Addresses = append(i.Addresses, single(a))
	i.Gateways = append(i.Gateways, gateway)
	if family == wire.IP4 {
		i.Routes = append(i.Routes, pod.Route{Destination: single(gateway)})
	}
	i.Routes = append(i.Routes, pod.Route{Destination: defaultOf(family), Gateway: gateway})
}

// onLink gives an interface an address among the others of its pool, which are its neighbours.
func onLink(i *pod.Interface, a netip.Addr, p ipam.Pool) {
	i.Addresses = append(i.Addresses, netip.PrefixFrom(a, p.Prefix.Bits()))
	i.Gateways = append(i.Gateways, p.Node())
}

// routed gives an interface an address by which its pod reaches, if that leads anywhere, the network's others. The gateway
// of IPv4 is not the main interface's: a pod has one route to that.
func (n *Network) routed(i *pod.Interface, w wish, l ipam.Lease) {
	family := wire.FamilyOf(l.Address)
	gateway := gateway6
	switch {
	case family == wire.IP4 && w.kind == pod.TypeMemif && w.custom == nil:
		gateway = gateway4 // the kernel, which has one route to it, is not asked
	case family == wire.IP4:
		gateway = n.gatewayOfLease(w, l)
	}
	i.Addresses = append(i.Addresses, single(l.Address))
	i.Gateways = append(i.Gateways, gateway)
	if !w.leads {
		return
	}
	if family == wire.IP4 {
		i.Routes = append(i.Routes, pod.Route{Destination: single(gateway)})
	}
	for _, p := range n.poolsOf(w) {
		if wire.FamilyOf(p.Prefix.Addr()) == family {
			i.Routes = append(i.Routes, pod.Route{Destination: p.Prefix, Gateway: gateway})
		}
	}
}

func (n *Network) poolsOf(w wish) []ipam.Pool {
	if w.custom != nil {
		return w.custom.pools()
	}
	return n.pools.Load().all
}

// gatewayOfLease is the node's own address in the lease's pool; an address of no pool is routed by the node's first.
func (n *Network) gatewayOfLease(w wish, l ipam.Lease) netip.Addr {
	if p := n.poolOfLease(w, l); p.Prefix.IsValid() && w.custom != nil {
		return p.Node()
	} else if p.Prefix.IsValid() {
		return n.nodeIn(p)
	}
	return n.nodeAddress(wire.FamilyOf(l.Address))
}

// poolOfLease is the pool that a lease is from.
func (n *Network) poolOfLease(w wish, l ipam.Lease) ipam.Pool {
	for _, p := range n.poolsOf(w) {
		if p.Name == l.Pool {
			return p
		}
	}
	return ipam.Pool{}
}
