package ipnet

import (
	"net/netip"
	"slices"

	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/wire"
)

// nodeValues is what is there without pods: the pods' VRF, their gateway, and the link between the node and the
// dataplane. Pods reach by that link whatever the node reaches.
func (n *Network) nodeValues() values {
	var v values
	families := n.pools.Load().families()
	for _, f := range families {
		v.add(wire.VRFKey(podVRF, f), wire.VRF{ID: n.config.PodVRFTable, Family: f, Label: podVRF})
	}
	v = append(v, podsVRF.interfaceOf(n.config.MTU, families)...)
	v.add(wire.ACLKey(guardACL), guard())
	for _, f := range families {
		own := single(gateway4)
		if f == wire.IP6 { // the gateway's address is on each interface
			own = single(errorSource6)
		}
		v.add(wire.AddressKey(gatewayObject, own), wire.Address{Interface: gatewayObject, Prefix: own})
	}
	host := n.hostLink()
	v = append(v, host.ends()...)
	v = append(v, podsVRF.attach(host, families)...)
	v = append(v, n.kernelValues(families)...)
	for _, f := range families {
		if own := n.nodeAddress(f); own.IsValid() {
			podsVRF.route(&v, defaultOf(f), wire.Path{Interface: host.object, NextHop: own})
			host.linuxNeighbour(&v, gatewayOf(f))
		}
	}
	for _, p := range n.pools.Load().all {
		podsVRF.unreachable(&v, p.Prefix)
		if own := n.nodeIn(p); own.IsValid() {
			host.linuxRoute(&v, p.Prefix, gatewayOf(wire.FamilyOf(p.Prefix.Addr())), own)
		}
	}
	return append(v, n.uplinkValues()...)
}

func (n *Network) hostLink() link {
	var addresses []netip.Prefix
	for _, p := range n.pools.Load().all {
		if own := n.nodeIn(p); own.IsValid() && !slices.Contains(addresses, single(own)) {
			addresses = append(addresses, single(own))
		}
	}
	return link{
		kind: n.linkTypes.Load().Host, object: hostObject, name: n.config.HostLink, alias: hostAlias,
		mac: macOf(hostObject, dataplaneEnd), peerMAC: macOf(hostObject, linuxEnd),
		mtu: n.config.MTU, maxSegment: n.config.MaxSegment, addresses: addresses,
	}
}

// nodeAddress is the node's own address of a family: in the first pool that is the node's as a whole, else in a block; not
// valid if there is none.
func (n *Network) nodeAddress(f wire.Family) netip.Addr {
	for _, p := range n.pools.Load().all {
		if !p.Blocks && wire.FamilyOf(p.Prefix.Addr()) == f {
			return p.Node()
		}
	}
	return (*n.own.Load())[f]
}

// nodeIn is the address of the node's own by which it reaches a pool; not valid if it has none yet.
func (n *Network) nodeIn(p ipam.Pool) netip.Addr {
	if p.Blocks {
		return n.nodeAddress(wire.FamilyOf(p.Prefix.Addr()))
	}
	return p.Node()
}
