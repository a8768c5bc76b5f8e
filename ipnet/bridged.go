package ipnet

import "github.com/weftnet/weft/wire"

// macAge is after how many minutes without a frame a bridge domain forgets where a MAC was.
const macAge = 5

// domain is the bridge domain of an L2 network.
func (c *custom) domain(v *values) {
	v.add(wire.BridgeDomainKey(c.label), wire.BridgeDomain{
		ID: c.BridgeDomain, Label: c.label, Learn: true, Flood: true, UUFlood: true, Forward: true, Age: macAge,
	})
}

// introduce makes a member known to the BVI, if there is one, by the addresses that the network gave it. So that asks
// nobody, and when the member is gone it remembers nothing.
func (c *custom) introduce(v *values, l link) {
	if len(c.Network.CIDRs) == 0 {
		return
	}
	addresses := singles(l.addresses)
	if hasFamily(l.addresses, wire.IP6) {
		addresses = append(addresses, single(linkLocalOf(l.peerMAC))) // neighbours are asked after by that one
	}
	for _, p := range addresses {
		v.add(wire.NeighbourKey(c.loopback, p.Addr()), wire.Neighbour{Interface: c.loopback, Address: p.Addr(), MAC: l.peerMAC})
	}
}
