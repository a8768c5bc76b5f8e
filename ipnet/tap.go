package ipnet

import (
	"net/netip"
	"slices"

	"github.com/weftnet/weft/wire"
)

// tap is a link between the dataplane and a namespace, a pod's or the node's.
type tap struct {
	object    string // name in the dataplane
	namespace string // path; "" = the node's
	name      string // in the namespace
	alias     string
	mac       wire.MAC // of the dataplane's end
	peerMAC   wire.MAC // of the Linux end
	mtu       int
	addresses []netip.Addr // of the Linux end
}

// peer is the key of the Linux end.
func (t tap) peer() string { return wire.TapPeerKey(t.object) }

// families are those of the addresses, IPv4 first.
func (t tap) families() []wire.Family {
	var families []wire.Family
	for _, f := range []wire.Family{wire.IP4, wire.IP6} {
		if slices.ContainsFunc(t.addresses, func(a netip.Addr) bool { return wire.FamilyOf(a) == f }) {
			families = append(families, f)
		}
	}
	return families
}

// dataplane is what the dataplane's end is: a gateway for, and the way to, the addresses of the Linux end.
func (t tap) dataplane() values {
	var v values
	v.add(wire.InterfaceKey(t.object), wire.Interface{
		Type: wire.TypeTap, MAC: t.mac, MTU: t.mtu, Up: true,
		Tap: wire.Tap{Namespace: t.namespace, Name: t.name, MAC: t.peerMAC, MTU: t.mtu},
	})
	families := t.families()
	for _, f := range families {
		v.add(wire.InterfaceVRFKey(t.object, f), inPodVRF(t.object, f))
	}
	has4, has6 := slices.Contains(families, wire.IP4), slices.Contains(families, wire.IP6)
	if has4 {
		v.add(wire.UnnumberedKey(t.object), wire.Unnumbered{Interface: t.object, Donor: gatewayObject, IP4: true, IP6: has6})
	}
	if has6 {
		v.add(wire.AddressKey(t.object, single(gateway6)), wire.Address{Interface: t.object, Prefix: single(gateway6)})
	}
	for _, a := range t.addresses {
		v.add(wire.NeighbourKey(t.object, a), wire.Neighbour{Interface: t.object, Address: a, MAC: t.peerMAC})
		v.route(single(a), t.object, a)
	}
	return v
}

// linux is what the Linux end is, without its routes.
func (t tap) linux() values {
	var v values
	v.add(t.peer(), wire.TapPeer{
		Interface: t.object, Namespace: t.namespace, Name: t.name, MAC: t.peerMAC, MTU: t.mtu, Alias: t.alias, Up: true,
	})
	families := t.families()
	if slices.Contains(families, wire.IP6) {
		for _, setting := range []string{"accept_ra", "accept_dad"} { // all is static, and known to be unique
			name := "net/ipv6/conf/" + t.name + "/" + setting
			v.add(wire.SysctlKey(t.peer(), name), wire.Sysctl{On: t.peer(), Namespace: t.namespace, Name: name, Value: "0"})
		}
	}
	for _, a := range t.addresses {
		v.add(wire.LinuxAddressKey(t.peer(), single(a)), wire.LinuxAddress{
			On: t.peer(), Namespace: t.namespace, Link: t.name, Prefix: single(a),
		})
	}
	for _, f := range families {
		v.add(wire.LinuxNeighbourKey(t.peer(), gatewayOf(f)), wire.LinuxNeighbour{
			On: t.peer(), Namespace: t.namespace, Link: t.name, Address: gatewayOf(f), MAC: t.mac,
		})
	}
	return v
}

// linuxRoute is a route of the namespace by the Linux end. Without a valid gateway the destination is on the link.
func (t tap) linuxRoute(v *values, destination netip.Prefix, gateway, source netip.Addr) {
	v.add(wire.LinuxRouteKey(t.peer(), destination), wire.LinuxRoute{
		On: t.peer(), Namespace: t.namespace, Link: t.name, Destination: destination, Gateway: gateway, Source: source,
	})
}

// route adds a route of the pods' VRF.
func (v *values) route(p netip.Prefix, object string, nextHop netip.Addr) {
	v.path(p, wire.Path{Interface: object, NextHop: nextHop})
}

// unreachable adds what holds for those addresses of a pool that nobody has. Without it packets to them would take the
// default route to the node, whose route to the pool leads back, until their TTL ends.
func (v *values) unreachable(pool netip.Prefix) { v.path(pool, wire.Path{Type: wire.PathUnreachable}) }

func (v *values) path(p netip.Prefix, path wire.Path) {
	vrf := wire.VRFName(podVRF, wire.FamilyOf(p.Addr()))
	v.add(wire.RouteKey(vrf, p), wire.Route{VRF: vrf, Prefix: p, Paths: []wire.Path{path}})
}

func inPodVRF(object string, f wire.Family) wire.InterfaceVRF {
	return wire.InterfaceVRF{Interface: object, Family: f, VRF: wire.VRFName(podVRF, f)}
}
