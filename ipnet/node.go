package ipnet

import (
	"net/netip"
	"slices"

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
	if slices.Contains(families, wire.IP4) {
		v = append(v, n.gatewayValues(families)...)
	}
	host := n.hostLink()
	v = append(v, host.dataplane()...)
	for _, f := range families {
		v.route(defaultOf(f), host.object, n.nodeAddress(f))
	}
	for _, p := range n.config.Pools {
		v.unreachable(p.Prefix)
	}
	v = append(v, host.linux()...)
	for _, p := range n.config.Pools {
		host.linuxRoute(&v, p.Prefix, gatewayOf(wire.FamilyOf(p.Prefix.Addr())), p.Node())
	}
	return v
}

// gatewayValues is the loopback that lends its address to every interface. IPv6 has no need of it: there each
// interface has the gateway's link-local address itself.
func (n *Network) gatewayValues(families []wire.Family) values {
	var v values
	v.add(wire.InterfaceKey(gatewayObject), wire.Interface{
		Type: wire.TypeLoopback, MAC: macOf(gatewayObject, dataplaneEnd), MTU: n.config.MTU, Up: true,
	})
	for _, f := range families {
		v.add(wire.InterfaceVRFKey(gatewayObject, f), inPodVRF(gatewayObject, f))
	}
	v.add(wire.AddressKey(gatewayObject, single(gateway4)), wire.Address{Interface: gatewayObject, Prefix: single(gateway4)})
	return v
}

func (n *Network) hostLink() tap {
	var addresses []netip.Addr
	for _, p := range n.config.Pools {
		addresses = append(addresses, p.Node())
	}
	return tap{
		object: hostObject, name: n.config.HostLink, alias: hostAlias,
		mac: macOf(hostObject, dataplaneEnd), peerMAC: macOf(hostObject, linuxEnd),
		mtu: n.config.MTU, addresses: addresses,
	}
}

// nodeAddress is the node's own address in the first pool of the family, which has one.
func (n *Network) nodeAddress(f wire.Family) netip.Addr {
	for _, p := range n.config.Pools {
		if wire.FamilyOf(p.Prefix.Addr()) == f {
			return p.Node()
		}
	}
	return netip.Addr{}
}
