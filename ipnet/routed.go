package ipnet

import (
	"net/netip"
	"slices"

	"github.com/weftnet/weft/wire"
)

// vrf is a routing table of each family and the loopback that lends its address to the interfaces there.
type vrf struct {
	label    string
	loopback string
}

// podsVRF is that of the network default.
var podsVRF = vrf{label: podVRF, loopback: gatewayObject}

// interfaceOf is a loopback of the VRF's, up.
func (r vrf) interfaceOf(mtu int, families []wire.Family) values {
	var v values
	v.add(wire.InterfaceKey(r.loopback), wire.Interface{
		Type: wire.TypeLoopback, MAC: macOf(r.loopback, dataplaneEnd), MTU: mtu, Up: true,
	})
	for _, f := range families {
		v.add(wire.InterfaceVRFKey(r.loopback, f), r.membership(r.loopback, f, false))
	}
	return v
}

func (r vrf) membership(object string, f wire.Family, judged bool) wire.InterfaceVRF {
	return wire.InterfaceVRF{Interface: object, Family: f, VRF: wire.VRFName(r.label, f), Judged: judged}
}

// attach makes the dataplane's end of a link a gateway for, and the way to, the addresses of the Linux end. families are
// those that the VRF has.
func (r vrf) attach(l link, families []wire.Family) values {
	var v values
	// An interface that borrows from the loopback is in all of its VRFs, whatever addresses the link has.
	v.add(wire.UnnumberedKey(l.object), r.borrowed(l.object, families))
	for _, f := range families {
		v.add(wire.InterfaceVRFKey(l.object, f), r.membership(l.object, f, l.judged))
	}
	if hasFamily(l.addresses, wire.IP6) {
		v.add(wire.AddressKey(l.object, single(gateway6)), wire.Address{Interface: l.object, Prefix: single(gateway6)})
	}
	for _, p := range l.addresses {
		a := p.Addr()
		if !l.hasMACs() {
			r.route(&v, single(a), wire.Path{Interface: l.object})
			continue
		}
		v.add(wire.NeighbourKey(l.object, a), wire.Neighbour{Interface: l.object, Address: a, MAC: l.peerMAC})
		r.route(&v, single(a), wire.Path{Interface: l.object, NextHop: a})
	}
	return v
}

// borrowed has an interface use the loopback's addresses.
func (r vrf) borrowed(object string, families []wire.Family) wire.Unnumbered {
	return wire.Unnumbered{
		Interface: object, Donor: r.loopback, IP4: slices.Contains(families, wire.IP4), IP6: slices.Contains(families, wire.IP6),
	}
}

// unreachable adds what holds for those addresses of a prefix that nobody has. Without it packets to them would take the
// default route to the node, whose route to a pool leads back, until their TTL ends.
func (r vrf) unreachable(v *values, p netip.Prefix) {
	r.route(v, p, wire.Path{Type: wire.PathUnreachable})
}

func (r vrf) route(v *values, p netip.Prefix, path wire.Path) {
	name := wire.VRFName(r.label, wire.FamilyOf(p.Addr()))
	v.add(wire.RouteKey(name, p), wire.Route{VRF: name, Prefix: p, Paths: []wire.Path{path}})
}
