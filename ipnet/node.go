package ipnet

import (
	"net/netip"
	"slices"

	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// nodeValues is what is there without pods: the pods' VRF, their gateway, and the link between the node and the
// dataplane. Pods reach by that link whatever the node reaches.
func (n *Network) nodeValues() values {
	var v values
	families := n.config.families()
	for _, f := range families {
		v.add(wire.VRFKey(podVRF, f), wire.VRF{ID: n.config.PodVRFTable, Family: f, Label: podVRF})
	}
	if slices.Contains(families, wire.IP4) { // IPv6 has no need of it: there each interface has the gateway's address itself
		v = append(v, podsVRF.interfaceOf(n.config.MTU, families)...)
		v.add(wire.AddressKey(gatewayObject, single(gateway4)), wire.Address{Interface: gatewayObject, Prefix: single(gateway4)})
	}
	host := n.hostLink()
	v = append(v, host.ends()...)
	v = append(v, podsVRF.attach(host, families)...)
	for _, f := range families {
		podsVRF.route(&v, defaultOf(f), wire.Path{Interface: host.object, NextHop: n.nodeAddress(f)})
		host.linuxNeighbour(&v, gatewayOf(f))
	}
	for _, p := range n.config.Pools {
		podsVRF.unreachable(&v, p.Prefix)
		host.linuxRoute(&v, p.Prefix, gatewayOf(wire.FamilyOf(p.Prefix.Addr())), p.Node())
	}
	return v
}

func (n *Network) hostLink() link {
	var addresses []netip.Prefix
	for _, p := range n.config.Pools {
		addresses = append(addresses, single(p.Node()))
	}
	return link{
		kind: pod.TypeTap, object: hostObject, name: n.config.HostLink, alias: hostAlias,
		mac: macOf(hostObject, dataplaneEnd), peerMAC: macOf(hostObject, linuxEnd),
		mtu: n.config.MTU, addresses: addresses,
	}
}

// nodeAddress is the node's own address in the first pool of the family; not valid if the family has none.
func (n *Network) nodeAddress(f wire.Family) netip.Addr {
	for _, p := range n.config.Pools {
		if wire.FamilyOf(p.Prefix.Addr()) == f {
			return p.Node()
		}
	}
	return netip.Addr{}
}
