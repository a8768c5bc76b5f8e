package ipnet

import (
	"net/netip"

	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// typeTap is the type of a main interface.
const typeTap = "tap"

// mainInterface is the main interface of an attachment, as it is recorded. Everything else about it follows from the
// record and the attachment's key.
func (n *Network) mainInterface(k pod.Key, mac wire.MAC, leases []ipam.Lease) pod.Interface {
	main := pod.Interface{
		Name:   k.IfName,
		Type:   typeTap,
		Object: objectName(k, k.IfName),
		MAC:    mac.String(),
		MTU:    n.config.MTU,
	}
	for _, l := range leases {
		family := wire.FamilyOf(l.Address)
		gateway := gatewayOf(family)
		main.Addresses = append(main.Addresses, single(l.Address))
		main.Pools = append(main.Pools, l.Pool)
		main.Gateways = append(main.Gateways, gateway)
		if family == wire.IP4 {
			main.Routes = append(main.Routes, pod.Route{Destination: single(gateway)})
		}
		main.Routes = append(main.Routes, pod.Route{Destination: defaultOf(family), Gateway: gateway})
	}
	return main
}

// podValues is what wires an attachment; nothing if it has no interface.
func podValues(a *pod.Attachment) values {
	if len(a.Interfaces) == 0 {
		return nil
	}
	var v values
	v.add(wire.NamespaceKey(a.Netns.Path), wire.Namespace(a.Netns))
	main := a.Interfaces[0]
	link := mainTap(a, main)
	v = append(v, link.dataplane()...)
	v = append(v, link.linux()...)
	for _, r := range main.Routes {
		link.linuxRoute(&v, r.Destination, r.Gateway, netip.Addr{})
	}
	return v
}

func mainTap(a *pod.Attachment, main pod.Interface) tap {
	link := tap{
		object: main.Object, namespace: a.Netns.Path, name: main.Name, alias: aliasOf(a.Key),
		mac: macOf(main.Object, dataplaneEnd), peerMAC: macOf(main.Object, linuxEnd), mtu: main.MTU,
	}
	if mac, err := wire.ParseMAC(main.MAC); err == nil { // as the pod asked for
		link.peerMAC = mac
	}
	for _, p := range main.Addresses {
		link.addresses = append(link.addresses, p.Addr())
	}
	return link
}
