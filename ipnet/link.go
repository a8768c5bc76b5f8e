package ipnet

import (
	"net/netip"

	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// link is a way between the dataplane and a namespace, a pod's or the node's.
type link struct {
	kind      string // pod.TypeTap, pod.TypeVeth or pod.TypeMemif
	object    string // name in the dataplane
	namespace string // path; "" = the node's
	name      string // in the namespace
	alias     string
	mac       wire.MAC // of the dataplane's end
	peerMAC   wire.MAC // of the Linux end
	mtu       int

	maxSegment int // of a veth, bytes; 0 = the kernel's

	addresses []netip.Prefix // of the Linux end
	judged    bool           // only some sources may send, and nobody before the dataplane knows which
	gso       bool           // the dataplane segments long packets in tunnels before it sends them by the link
	forwards  bool           // its namespace is to be a router for the families of addresses

	rxQueues, txQueues int // of the Linux end; of a tap they are the same; 0 is one

	memif  *pod.Memif // of type memif
	secret secret.Text
}

// on is the key of the object that makes the Linux end.
func (l link) on() string {
	if l.kind == pod.TypeVeth {
		return wire.VethKey(l.object)
	}
	return wire.TapPeerKey(l.object)
}

// linuxEnd is the object that must be there before neighbours on a layer 2 network reach the link. The dataplane sets a tap up in
// the pod when it makes the tap, and the kernel there follows router advertisements until the object has told it not to.
func (l link) linuxEnd() string {
	if l.kind == pod.TypeTap {
		return l.on()
	}
	return ""
}

// ends are both ends, up, and the addresses of the Linux end.
func (l link) ends() values {
	var v values
	switch l.kind {
	case pod.TypeMemif:
		return l.memifEnd()
	case pod.TypeVeth:
		v = l.veth()
	default:
		v = l.tap()
	}
	v.add(wire.HardeningKey(l.on()), wire.Hardening{On: l.on(), Namespace: l.namespace, Link: l.name})
	if hasFamily(l.addresses, wire.IP6) {
		l.setting(&v, "net/ipv6/conf/"+l.name+"/accept_dad", "0") // addresses are known to be unique
	}
	if l.forwards {
		for _, f := range familiesOf(l.addresses) {
			l.setting(&v, forwarding[f], "1")
		}
	}
	for _, p := range l.addresses {
		v.add(wire.LinuxAddressKey(l.on(), p), wire.LinuxAddress{
			On: l.on(), Namespace: l.namespace, Link: l.name, Prefix: p,
		})
	}
	return v
}

// setting is one of the kernel for the Linux end's namespace.
func (l link) setting(v *values, name, value string) {
	v.add(wire.SysctlKey(l.on(), name), wire.Sysctl{On: l.on(), Namespace: l.namespace, Name: name, Value: value})
}

// linuxNeighbour is a neighbour of the Linux end, behind the dataplane's.
func (l link) linuxNeighbour(v *values, a netip.Addr) {
	v.add(wire.LinuxNeighbourKey(l.on(), a), wire.LinuxNeighbour{
		On: l.on(), Namespace: l.namespace, Link: l.name, Address: a, MAC: l.mac,
	})
}

// linuxRoute is a route of the namespace by the Linux end. Without a valid gateway the destination is on the link.
func (l link) linuxRoute(v *values, destination netip.Prefix, gateway, source netip.Addr) {
	v.add(wire.LinuxRouteKey(l.on(), destination), wire.LinuxRoute{
		On: l.on(), Namespace: l.namespace, Link: l.name, Destination: destination, Gateway: gateway, Source: source,
	})
}

func hasFamily(prefixes []netip.Prefix, f wire.Family) bool {
	for _, p := range prefixes {
		if wire.FamilyOf(p.Addr()) == f {
			return true
		}
	}
	return false
}
