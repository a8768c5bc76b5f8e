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

// join makes an interface a member of the bridge domain.
func (c *custom) join(v *values, object string, bvi bool) {
	v.add(wire.BridgeMemberKey(object), wire.BridgeMember{BridgeDomain: c.label, Interface: object, BVI: bvi})
}
